"""The websocket API's part: connections, their events, and what is waiting to be sent to each.

As on AWS: a handler refuses a handshake with its status code; an id can be posted to only once its handshake is done;
text above 32 KB closes the connection with 1009 (AWS counts a frame, this counts a message: a client that splits a
message into frames is refused here and accepted there), binary with 1003; 10 minutes without traffic or 2 hours in
all end it. Messages of one connection are handled one at a time, in order. A consumer that lets 4 MB pile up is
dropped: its id is gone, which is what AWS tells a sender about a client that no longer reads.
"""

import asyncio
import contextlib
import json
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from infra.local import events
from infra.local.answers import problem
from infra.local.events import Request
from infra.local.lambdas import Function

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
OnThread = Callable[[Function, dict[str, Any]], Awaitable[Any]]

FRAME_LIMIT = 32 * 1024  # API Gateway's websocket frame size
IDLE_SECONDS = 600.0
LIFETIME_SECONDS = 7200.0
PENDING_LIMIT = 4 * 1024 * 1024  # bytes waiting for one slow reader; ours, AWS does not publish its own
REFUSALS = {400: "invalid-request", 401: "unauthorized", 403: "forbidden", 404: "not-found"}
TOO_LARGE, NOT_TEXT, GOING_AWAY, NORMAL, ABNORMAL = 1009, 1003, 1001, 1000, 1006


class Connection:
    """One open websocket."""

    def __init__(self, request: Request, send: Send) -> None:
        self.id = events.connection_id()
        self.request = request
        self.connected_at = int(time.time() * 1000)
        self.last_active_at = self.connected_at
        self.begun = self.touched = time.monotonic()
        self.is_open = False
        self._send = send
        self._pending: asyncio.Queue[str | None] = asyncio.Queue()
        self._pending_bytes = 0
        self.closed_with: tuple[int, str] = (ABNORMAL, "")
        self.closing = asyncio.Event()

    def touch(self) -> None:
        """Traffic in either direction."""
        self.touched, self.last_active_at = time.monotonic(), int(time.time() * 1000)

    def seconds_left(self) -> float:
        """Until this connection has been idle or alive for too long."""
        now = time.monotonic()
        return min(self.touched + IDLE_SECONDS, self.begun + LIFETIME_SECONDS) - now

    def post(self, text: str) -> bool:
        """Queue a message; False when the reader is too slow and has been given up."""
        self._pending_bytes += len(text)
        if self._pending_bytes > PENDING_LIMIT:
            self.close(GOING_AWAY, "slow consumer")
            return False
        self._pending.put_nowait(text)
        return True

    def close(self, code: int, reason: str = "") -> None:
        """Begin to end the connection from this side; a second call changes nothing."""
        if not self.closing.is_set():
            self.is_open, self.closed_with = False, (code, reason)
            self.closing.set()

    async def write(self) -> None:
        """Send what is queued, in order, until the connection ends."""
        while True:
            text = await self._pending.get()
            if text is None:
                return
            await self._send({"type": "websocket.send", "text": text})
            self._pending_bytes -= len(text)
            self.touch()

    def finish(self) -> None:
        """Let `write` return once everything queued has been sent."""
        self._pending.put_nowait(None)


class Sockets:
    """All connections of this process, by id."""

    def __init__(self, *, connect: Function, message: Function, disconnect: Function, on_thread: OnThread) -> None:
        self._connect, self._message, self._disconnect = connect, message, disconnect
        self._on_thread = on_thread
        self._connections: dict[str, Connection] = {}

    def find(self, connection: str) -> Connection | None:
        """The open connection of that id; None before its handshake is done and after it has ended."""
        found = self._connections.get(connection)
        return found if found and found.is_open else None

    async def refuse(self, receive: Receive, send: Send, status: int) -> None:
        """Answer a handshake with an HTTP status instead."""
        answer = problem(status, REFUSALS.get(status, "bad-gateway"), "The handshake was refused.", str(uuid.uuid4()))
        headers = [(name.encode(), value.encode()) for name, value in answer.headers]
        await receive()
        await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": answer.body})

    async def serve(self, request: Request, receive: Receive, send: Send) -> None:
        """One connection from handshake to $disconnect."""
        connection = Connection(request, send)
        status = await self._handshake(connection)
        if not 200 <= status < 300:
            return await self.refuse(receive, send, status)
        await receive()
        await send({"type": "websocket.accept"})
        connection.is_open = True
        self._connections[connection.id] = connection
        try:
            await self._talk(connection, receive, send)
        finally:
            connection.is_open = False
            self._connections.pop(connection.id, None)
            await self._gone(connection)

    async def _handshake(self, connection: Connection) -> int:
        event = events.connect(connection.request, connection.id, connection.connected_at)
        try:
            return int((await self._on_thread(self._connect, event))["statusCode"])
        except Exception:  # noqa: BLE001 - a crash of the handler is its own, told on stderr as Lambda's log would
            traceback.print_exc()
            return 502

    async def _talk(self, connection: Connection, receive: Receive, send: Send) -> None:
        """Write and read until either side ends it, then say goodbye if the other side can still hear it."""
        writing = asyncio.create_task(connection.write())
        reading = asyncio.create_task(self._read(connection, receive))
        ended = asyncio.create_task(connection.closing.wait())
        await asyncio.wait({writing, reading, ended}, return_when=asyncio.FIRST_COMPLETED)
        connection.is_open = False
        if connection.closing.is_set():
            await self._goodbye(connection, writing, send)
        for task in (writing, reading, ended):
            task.cancel()
        for outcome in await asyncio.gather(writing, reading, ended, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError):
                traceback.print_exception(outcome)

    async def _goodbye(self, connection: Connection, writing: "asyncio.Task[None]", send: Send) -> None:
        code, reason = connection.closed_with
        connection.finish()
        with contextlib.suppress(OSError, TimeoutError):  # the other side may be gone already, or not read
            async with asyncio.timeout(1):
                if code != ABNORMAL:
                    await asyncio.shield(writing)
                    await send({"type": "websocket.close", "code": code, "reason": reason})

    async def _read(self, connection: Connection, receive: Receive) -> None:
        """Handle messages one at a time until the client ends it or a limit does."""
        while not connection.closing.is_set():
            try:
                async with asyncio.timeout(max(0.0, connection.seconds_left())):
                    received = await receive()
            except TimeoutError:
                if connection.seconds_left() <= 0:
                    connection.close(GOING_AWAY, "Going away")
                continue
            connection.touch()
            if received["type"] == "websocket.disconnect":
                connection.closed_with = (received.get("code", ABNORMAL), received.get("reason") or "")
                return
            await self._received(connection, received)

    async def _received(self, connection: Connection, received: Message) -> None:
        text = received.get("text")
        if text is None:
            return connection.close(NOT_TEXT, "Binary is not supported")
        if len(text.encode()) > FRAME_LIMIT:
            return connection.close(TOO_LARGE, "Message too long")
        event = events.message(connection.request, connection.id, connection.connected_at, text)
        try:
            await self._on_thread(self._message, event)
        except Exception:  # noqa: BLE001 - a crash of the handler is its own; AWS tells the client in this frame
            traceback.print_exc()
            told = {"message": "Internal server error", "connectionId": connection.id}
            connection.post(json.dumps({**told, "requestId": event["requestContext"]["requestId"]}))

    async def _gone(self, connection: Connection) -> None:
        code, reason = connection.closed_with
        event = events.disconnect(connection.request, connection.id, connection.connected_at, code, reason)
        try:
            await self._on_thread(self._disconnect, event)
        except Exception:  # noqa: BLE001 - nobody is left to be told
            traceback.print_exc()
