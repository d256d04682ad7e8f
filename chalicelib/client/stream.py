"""One thread, live: events over a websocket that reconnects by itself.

It must not know HTTP: `address` gets a fresh ticket and answers where to connect. It guarantees that the iteration
yields each event after the cursor once, in order, whatever drops, repeats or jumps on the wire; where retention has
removed rows it says so (`gaps`). It ends only when it is closed, or with the error that no reconnect can mend.

    connecting ──> live ──> reconnecting ──> live ──> ... ──> closed
"""

import json
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urljoin, urlsplit

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from chalicelib.client.errors import (
    ConnectionFailed,
    ForeignSocket,
    ProblemError,
    TooManyRequests,
    TurnlogError,
    Unavailable,
    problem,
)
from chalicelib.client.pace import Pace
from chalicelib.client.wire import Event, Status, Ticket

PING_SECONDS = 240.0  # the gateway closes a socket that was idle for 10 minutes
PONG_SECONDS = 20.0  # a line that stays silent for this long after a ping is dead (one ping period, if that is shorter)
CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 1.0  # nothing is lost with an unfinished closing handshake: the cursor is ours
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class LineBroken(Exception):
    """This socket is of no more use; the next one may be."""


class EventStream:
    """Iterate it, from one thread. `cursor` is the last number handed out, `status` the thread's last known status.

    `on_state` is told `connecting`, `live` (all that was stored has come), `reconnecting`, `gap` and `closed`.
    """

    def __init__(
        self,
        thread_id: str,
        after: int,
        *,
        address: Callable[[], str],
        on_state: Callable[[str], None] | None,
        pace: Pace,
        first_tries: int,
        ping_seconds: float,
        through_proxy: bool,
    ) -> None:
        self.thread_id = thread_id
        self.cursor = after
        self.status: Status | None = None
        self.gaps: list[tuple[int, int]] = []
        self._address = address
        self._on_state = on_state
        self._pace = pace
        self._first_tries = first_tries
        self._ping_seconds = ping_seconds
        self._through_proxy = through_proxy
        self._socket: ClientConnection | None = None
        self._closed = False
        self._state = ""
        self._served = False  # a subscription was answered at least once
        self._anchored = False  # the cursor is known to be a number that the log has
        self._replaying = False  # from a subscribe until its caught_up
        self._failures = 0  # in a row, without a step forward
        self._parts: dict[int, dict[int, str]] = {}
        self._waiting: deque[Event] = deque()
        self._steps = self._run()

    # -- for the reader

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if self._waiting:
            return self._waiting.popleft()
        for step in self._steps:
            if step is not None:
                return step
        raise StopIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait_live(self) -> int:
        """Receive all that is stored and answer the last number; what came is handed out by the iteration."""
        for step in self._steps:
            if step is None:
                break
            self._waiting.append(step)
        return self.cursor

    def close(self) -> None:
        """End the iteration; may be called from another thread, and again."""
        self._closed = True
        if self._socket is not None:
            self._socket.close()
        self._tell("closed")

    # -- one socket after the other

    def _run(self) -> Iterator[Event | None]:
        """Events, and None each time that the stream becomes live."""
        while not self._closed:
            self._tell("reconnecting" if self._served else "connecting")
            try:
                with self._connected() as self._socket:
                    yield from self._read(self._socket)
            except (LineBroken, OSError, WebSocketException, ConnectionFailed, TooManyRequests, Unavailable) as error:
                self._after(error)

    def _connected(self) -> ClientConnection:
        return connect(
            self._address(),
            open_timeout=CONNECT_SECONDS,
            close_timeout=CLOSE_SECONDS,
            ping_interval=None,  # our own pings are what the gateway counts
            compression=None,
            proxy=True if self._through_proxy else None,
        )

    def _after(self, error: Exception) -> None:
        """Wait before the next socket. A server that never served us gets a few tries, one that did gets all."""
        if self._closed:
            return
        self._failures += 1
        if self._served or not (isinstance(error, ConnectionFailed) or self._failures >= self._first_tries):
            self._pace.back_off(self._failures)
        elif isinstance(error, TurnlogError):
            raise error
        else:
            raise ConnectionFailed(f"no websocket: {error}") from error

    def _read(self, socket: ClientConnection) -> Iterator[Event | None]:
        self._parts.clear()
        self._subscribe(socket)
        ping_at, dead_at = self._pace.clock() + self._ping_seconds, math.inf
        while not self._closed:
            now = self._pace.clock()
            if now >= dead_at:
                raise LineBroken("no answer to a ping")
            if now >= ping_at:
                socket.send('{"action": "ping"}')
                ping_at = now + self._ping_seconds
                dead_at = min(dead_at, now + min(PONG_SECONDS, self._ping_seconds))
            try:
                raw = socket.recv(timeout=min(ping_at, dead_at) - now)
            except TimeoutError:
                continue
            dead_at = math.inf
            yield from self._taken(socket, _frame(raw))

    def _subscribe(self, socket: ClientConnection) -> None:
        self._replaying = True
        frame = {"action": "subscribe", "thread_id": self.thread_id, "after": self.cursor, "logs": False}
        socket.send(json.dumps(frame))

    def _again(self, socket: ClientConnection) -> None:
        """Subscribe from the last number: at once after a step forward, ever later without one."""
        if self._failures:
            self._pace.back_off(self._failures)
        self._failures += 1
        self._subscribe(socket)

    def _tell(self, state: str) -> None:
        if self._on_state is not None and state != self._state:
            self._state = state
            self._on_state(state)

    # -- frames

    def _taken(self, socket: ClientConnection, frame: Mapping[str, Any]) -> Iterator[Event | None]:
        """What one frame brings. Types that are not known here are left alone."""
        match frame["type"]:
            case "events":
                for event in _events(frame.get("items")):
                    yield from self._news(socket, event)
            case "event_part":
                for event in _events(self._joined(frame)):
                    yield from self._news(socket, event)
            case "thread_status":
                self._served, self.status = True, frame.get("status")
            case "caught_up":
                yield from self._caught_up(socket, _number(frame, "cursor"), bool(frame.get("more")))
            case "gap":
                self._skip(_number(frame, "from"), _number(frame, "to"))
            case "error":
                raise _refusal(frame.get("problem"))

    def _news(self, socket: ClientConnection, event: Event) -> Iterator[Event]:
        """The event, if it is the next. A repeat is dropped; a jump asks again from here, or a running replay will."""
        if event.thread_id != self.thread_id or event.delivery_seq <= self.cursor:
            return
        if event.delivery_seq > self.cursor + 1:
            if not self._replaying:
                self._again(socket)
            return
        self.cursor, self._anchored, self._failures = event.delivery_seq, True, 0
        yield event

    def _joined(self, frame: Mapping[str, Any]) -> list[Any]:
        """The envelope that the parts make, once all are there."""
        seq, index, count = (_number(frame, name) for name in ("delivery_seq", "index", "count"))
        if seq <= self.cursor:
            return []
        pieces = self._parts.setdefault(seq, {})
        pieces[index] = str(frame.get("data"))
        if len(pieces) < count:
            return []
        del self._parts[seq]
        return [_json("".join(pieces[place] for place in sorted(pieces)))]

    def _caught_up(self, socket: ClientConnection, end: int, more: bool) -> Iterator[None]:
        if not more and not self._anchored:
            self.cursor = min(self.cursor, end)  # a cursor past the end is taken as the end
        if more or end > self.cursor:
            self._again(socket)
            return
        self._anchored, self._replaying, self._failures = True, False, 0
        self._tell("live")
        yield None

    def _skip(self, first: int, last: int) -> None:
        """Retention has removed these rows: nobody can have them any more."""
        if last > self.cursor:
            self.gaps.append((max(first, self.cursor + 1), last))
            self.cursor, self._anchored, self._failures = last, True, 0
            self._tell("gap")


# -- reading what came: anything odd breaks the line, and the next socket starts from the cursor


def _json(raw: str | bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise LineBroken("a frame that is not JSON") from error


def _frame(raw: str | bytes) -> dict[str, Any]:
    frame = _json(raw)
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
        raise LineBroken("a frame without a type")
    return frame


def _number(frame: Mapping[str, Any], name: str) -> int:
    value = frame.get(name)
    if type(value) is not int:
        raise LineBroken(f"a frame whose {name} is no number")
    return value


def _events(items: Any) -> list[Event]:
    try:
        return [Event.parse(row) for row in items]
    except (KeyError, TypeError, AttributeError) as error:
        raise LineBroken("an event without its fields") from error


def _refusal(fields: Any) -> ProblemError:
    status = fields.get("status") if isinstance(fields, dict) else None
    return problem(fields, status if type(status) is int else 500)


# -- where to connect


def is_loopback(url: str) -> bool:
    """True if the address stays on this machine."""
    return urlsplit(url).hostname in LOOPBACK


def socket_address(base: str, ticket: Ticket, also: Collection[str]) -> str:
    """The ticket's address with the ticket in it; ForeignSocket unless it is at home with the server at `base`."""
    url = urljoin(base.replace("http", "ws", 1) + "/", ticket["url"])
    there, home = urlsplit(url), urlsplit(base)
    if there.scheme != "wss" and (there.scheme != "ws" or home.scheme == "https"):
        raise ForeignSocket(f"the websocket of {home.netloc} is offered at {there.scheme}://, which is not as safe")
    if not _at_home(there.hostname or "", home.hostname or "", also):
        raise ForeignSocket(f"the websocket of {home.hostname} is offered at {there.hostname}: name it in socket_hosts")
    if ticket["ticket"] in url:
        return url
    return f"{url}{'&' if there.query else '?'}ticket={quote(ticket['ticket'], safe='')}"


def _at_home(host: str, home: str, also: Collection[str]) -> bool:
    if host == home or host in also or {host, home} <= LOOPBACK:
        return True
    return _gateway(host) is not None and _gateway(host) == _gateway(home)


def _gateway(host: str) -> str | None:
    """`execute-api.<region>.amazonaws.com`, where the HTTP and the websocket API of a stage have names of their own."""
    parent = host.partition(".")[2]
    return parent if parent.startswith("execute-api.") and parent.endswith(".amazonaws.com") else None
