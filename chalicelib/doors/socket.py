"""The websocket API's three events: a connection opens, says something, closes.

It must not decide who may connect or what a frame means. It guarantees that nothing is posted to a connection inside
its own `$connect`, and that a frame is answered 200 whatever is wrong with it: that is told on the socket, since after
a failing function the gateway would speak instead of us.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from chalicelib import bootstrap
from chalicelib.domain.errors import Forbidden, Refusal, Unauthorized
from chalicelib.domain.limits import FRAME_BYTES
from chalicelib.doors.body import parse, raw_bytes

_OK = 200
Answer = dict[str, int]
Event = Mapping[str, Any]


class Tickets(Protocol):
    """Lets a connection in; raises `Refusal`."""

    def redeem(self, ticket: str, connection_id: str, /, *, origins: tuple[str, ...], host: str) -> None: ...


class Subscribe(Protocol):
    """Answers clients on their sockets."""

    def message(self, connection_id: str, body: Any, /) -> None: ...
    def refuse(self, connection_id: str, refusal: Refusal, /) -> None: ...
    def disconnect(self, connection_id: str, /) -> None: ...


class House(Protocol):
    """What this door needs from the house."""

    @property
    def tickets(self) -> Tickets: ...
    @property
    def subscribe(self) -> Subscribe: ...


def connect(event: Event, context: Any, *, house: Callable[[], House] = bootstrap.house) -> Answer:
    """200 lets the socket open, 401 and 403 refuse it, 503 when the table could not be asked."""
    query = event.get("queryStringParameters") or {}
    try:
        house().tickets.redeem(
            query.get("ticket") or "",
            _connection(event),
            origins=_header(event, "origin"),
            host=next(iter(_header(event, "host")), ""),
        )
    except Refusal as refusal:
        return _status(refusal.status if isinstance(refusal, (Unauthorized, Forbidden)) else 503)
    return _status(_OK)


def message(event: Event, context: Any, *, house: Callable[[], House] = bootstrap.house) -> Answer:
    """A frame of a client. What it asks for has been sent when this returns."""
    subscribe = house().subscribe
    try:
        body = parse(raw_bytes(event), most_bytes=FRAME_BYTES)
    except Refusal as refusal:
        subscribe.refuse(_connection(event), refusal)
    else:
        subscribe.message(_connection(event), body)
    return _status(_OK)


def disconnect(event: Event, context: Any, *, house: Callable[[], House] = bootstrap.house) -> Answer:
    """The socket is closed. This event may never come: a 410 at a push does the same."""
    house().subscribe.disconnect(_connection(event))
    return _status(_OK)


def _connection(event: Event) -> str:
    connection: str = event["requestContext"]["connectionId"]
    return connection


def _header(event: Event, name: str) -> tuple[str, ...]:
    """Every value of a header, whatever the case of its name."""
    many = event.get("multiValueHeaders") or {key: [value] for key, value in (event.get("headers") or {}).items()}
    return tuple(value for key, values in many.items() if key.lower() == name for value in values)


def _status(status: int) -> Answer:
    return {"statusCode": status}
