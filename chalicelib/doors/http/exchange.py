"""One request being answered: who asks, for what, and the house behind the door. Views read it once, with `current()`.

It must not know single routes. It lives in a ContextVar, because one attribute of the app would cross requests that
are answered on threads of one process.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chalice.app import Request, Response

from chalicelib.domain.commands import Answer, Idempotency, Page, Principal
from chalicelib.domain.errors import InvalidRequest, Unauthorized, UnsupportedMedia
from chalicelib.doors import body, cursors
from chalicelib.doors.http import asks, idempotency
from chalicelib.doors.http.query import Query

if TYPE_CHECKING:
    from chalicelib.doors.http.house import House

Headers = dict[str, str | list[str]]  # as Chalice declares them
_JSON_MEDIA = re.compile(r'application/json *(; *charset *= *("utf-8"|utf-8) *)?', re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A request after its credential was checked. `asker` is None on routes that need none."""

    request: Request
    house: "House"
    asker: Principal | None

    @property
    def principal(self) -> Principal:
        """Who asks; 401 where nobody was asked for a credential."""
        if self.asker is None:
            raise Unauthorized
        return self.asker

    @property
    def query(self) -> Query:
        return Query(self.request.to_original_event().get("multiValueQueryStringParameters"))

    @property
    def ids(self) -> Mapping[str, str]:
        """The ids in the path, as the gateway decoded them."""
        return self.request.uri_params or {}

    def json(self) -> Any:
        """The value of a required JSON body: 415 for another media type, 413, 400."""
        raw = body.raw_bytes(self.request.to_original_event())
        if not raw:
            raise InvalidRequest.at("", "a JSON body is required")
        if not _JSON_MEDIA.fullmatch(self.request.headers.get("content-type") or ""):
            raise UnsupportedMedia("Send the body with `Content-Type: application/json`.")
        return body.parse(raw)

    def no_body(self) -> None:
        """For routes that need no body: none at all, or an empty object."""
        if body.raw_bytes(self.request.to_original_event()):
            asks.nothing(self.json())

    def idempotency(self, ask: Any = None) -> Idempotency | None:
        """The caller's key, bound to this route, path and ask."""
        given = _values(self.request, idempotency.HEADER)
        if len(given) > 1:
            raise InvalidRequest.at(idempotency.HEADER, "is there more than once")
        header = given[0] if given else None
        return idempotency.read(header, self.request.method, self.request.path, self.ids, ask)

    def scope(self, name: str, inside: str = "", **filters: str | None) -> cursors.Scope:
        """What cursors of a list of this asker are bound to."""
        chosen = tuple(sorted((key, value) for key, value in filters.items() if value is not None))
        return cursors.Scope(org=self.principal.org, list=name, inside=inside, filters=chosen)

    def position(self, scope: cursors.Scope) -> Any:
        """The position that the request's cursor holds, None for the first page."""
        token = self.query.text("cursor", most=cursors.CHARACTERS)
        return None if token is None else cursors.open_cursor(self.house.settings.secret, scope, token)

    def listed(self, scope: cursors.Scope, items: list[Any], following: Any) -> dict[str, Any]:
        """The form of a list, with the cursor of its next page."""
        cursor = None if following is None else cursors.sign(self.house.settings.secret, scope, following)
        return {"items": items, "next_cursor": cursor}

    def page(self, scope: cursors.Scope, page: Page) -> Response:
        """The answer of a list route."""
        return Response(body=self.listed(scope, page.items, page.next))


def answered(answer: Answer) -> Response:
    """The answer of a service to a mutating POST, marked if it is a replay."""
    headers: Headers = {"Idempotency-Replayed": "true"} if answer.replayed else {}
    return Response(body=answer.body, status_code=answer.status, headers=headers)


def _values(request: Request, name: str) -> list[str]:
    several = request.to_original_event().get("multiValueHeaders") or {}
    found = [value for header, values in several.items() if header.lower() == name.lower() for value in values]
    single = request.headers.get(name)
    return found or ([] if single is None else [single])


_current: ContextVar[Exchange] = ContextVar("exchange")


def current() -> Exchange:
    """The exchange of the running view. LookupError outside of one."""
    return _current.get()


def running() -> Exchange | None:
    """The exchange of the running view, None outside of one."""
    return _current.get(None)


@contextmanager
def opened(exchange: Exchange) -> Iterator[None]:
    """Make an exchange the current one of this thread or task."""
    token = _current.set(exchange)
    try:
        yield
    finally:
        _current.reset(token)
