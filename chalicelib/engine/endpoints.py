"""Endpoints as their authors write them: functions of an agent that answer requests to one of its threads.

@endpoint(method="GET", name="summary")
def summary(state: ThreadState, request: Request) -> object:
    return {"messages": len(state.get_messages())}

`GET /api/threads/<id>/x/summary` calls it. What it returns is the JSON of a 200; a `Response` says more, a `Problem`
refuses in words that the caller reads, any other exception is a 500 that says nothing.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chalicelib.engine.definitions import DefinitionError, named
from chalicelib.engine.state import ThreadState

METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
#: API Gateway gives up after 29 s (quotas page); the rest is for what stands around the function.
MAX_SECONDS = 25.0
DEFAULT_SECONDS = 10.0
HEADERS = 20
HEADER_CHARACTERS = 1024
_NAME = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,63}")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_HEADER_TEXT = re.compile(r"[ -~]*")
#: Headers that are the house's to say, or that would reach beyond this answer.
RESERVED = frozenset(
    {"connection", "content-length", "content-type", "set-cookie", "transfer-encoding", "turnlog-request-id"}
)
_PREFIXES = ("access-control-",)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked. `body` is the JSON value, None if there was none; headers have names in lower case, and those
    that hold credentials are left out. `user` is who asks: `{"id", "handle", "roles"}`, None for a key of no user.
    """

    method: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: Any
    user: Mapping[str, Any] | None
    level: str
    """Access level of the credential: `viewer`, `member` or `admin`."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """An answer that is more than the JSON of a 200. Raises ValueError for what HTTP does not take."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.status, int) or not 200 <= self.status <= 299:
            raise ValueError("status must be from 200 to 299; raise Problem to refuse")
        if len(self.headers) > HEADERS:
            raise ValueError(f"at most {HEADERS} headers")
        for name, text in self.headers.items():
            if not _HEADER.fullmatch(name) or name.lower() in RESERVED or name.lower().startswith(_PREFIXES):
                raise ValueError(f"the header {name!r} cannot be set by an endpoint")
            if len(text) > HEADER_CHARACTERS or not _HEADER_TEXT.fullmatch(text):
                raise ValueError(f"the header {name} must be at most {HEADER_CHARACTERS} visible ASCII characters")


class Problem(Exception):
    """Raise this in an endpoint to refuse a request: a status from 400 to 499, and a sentence that the caller reads."""

    def __init__(self, status: int, detail: str) -> None:
        if not 400 <= status <= 499:
            raise ValueError("status must be from 400 to 499")
        super().__init__(detail)
        self.status = status
        self.detail = detail


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A function of an agent that answers one method under one name."""

    method: str
    name: str
    run: Callable[[ThreadState, Request], Any]
    timeout_seconds: float = DEFAULT_SECONDS

    def __post_init__(self) -> None:
        where = f"endpoint {self.method} {self.name}"
        if self.method not in METHODS:
            raise DefinitionError(f"{where}: method must be one of {', '.join(METHODS)}")
        if not _NAME.fullmatch(self.name):
            raise DefinitionError(f"{where}: name must match {_NAME.pattern}")
        if not 0 < self.timeout_seconds <= MAX_SECONDS:
            raise DefinitionError(f"{where}: timeout_seconds must be above 0 and at most {MAX_SECONDS:.0f}")


def endpoint(
    *, method: str = "GET", name: str | None = None, timeout_seconds: float = DEFAULT_SECONDS
) -> Callable[[Callable[[ThreadState, Request], Any]], Endpoint]:
    """Make an endpoint of a function that takes the state and the request."""

    def make(f: Callable[[ThreadState, Request], Any]) -> Endpoint:
        return Endpoint(method=method, name=name or f.__name__, run=f, timeout_seconds=timeout_seconds)

    return make


def check(agent: str, endpoints: Sequence[Endpoint]) -> None:
    """Raises DefinitionError for what is no endpoint, or answers what another answers."""
    seen: set[tuple[str, str]] = set()
    for one in endpoints:
        if not isinstance(one, Endpoint):
            raise DefinitionError(
                f"agent {agent}: endpoints: {named(one)} is none; decorate the function with @endpoint(...)"
            )
        if (one.method, one.name) in seen:
            raise DefinitionError(f"agent {agent}: endpoints: two answer {one.method} {one.name}; rename one")
        seen.add((one.method, one.name))
