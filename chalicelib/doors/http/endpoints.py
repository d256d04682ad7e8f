"""Routes of endpoints that agents define in code: name and method choose the function, the answer is its own."""

from collections.abc import Mapping

from chalice.app import Blueprint, Response

from chalicelib.domain.commands import Call
from chalicelib.domain.errors import InvalidRequest
from chalicelib.doors import body
from chalicelib.doors.http import idempotency
from chalicelib.doors.http.exchange import Exchange, Headers, current

routes = Blueprint(__name__)

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
#: A header whose name holds one of these may hold a credential: code of agents does not see it.
_CREDENTIALS = ("authorization", "cookie", "token", "secret", "api-key", "password", "signature")


@routes.route("/threads/{thread_id}/x/{name}", methods=METHODS)
def call_endpoint(thread_id: str, name: str) -> Response:
    """Whatever the endpoint answers; 404 for an unknown one, 405 for one of another method."""
    x = current()
    _refuse_key(x)
    call = Call(
        method=x.request.method,
        query=x.request.to_original_event().get("multiValueQueryStringParameters") or {},
        headers=_safe_headers(x.request.headers),
        body=x.json() if body.raw_bytes(x.request.to_original_event()) else None,
    )
    called = x.house.endpoints.call_endpoint(x.principal, thread_id, name, call)
    headers: Headers = {**called.headers}
    return Response(body=called.body, status_code=called.status, headers=headers)


def _refuse_key(x: Exchange) -> None:
    """An endpoint runs each time it is asked, so it cannot keep what a key promises."""
    if x.request.method == "POST" and x.request.headers.get(idempotency.HEADER) is not None:
        raise InvalidRequest.at(idempotency.HEADER, "endpoints take none: they run each time they are asked")


def _safe_headers(headers: Mapping[str, str]) -> dict[str, str]:
    named = {name.lower(): text for name, text in headers.items()}
    return {name: text for name, text in named.items() if not any(word in name for word in _CREDENTIALS)}
