"""A small server on real loopback sockets that plays the other side of the client, scripted by each test.

It knows the shapes of the public contract and nothing of how the product keeps them. HTTP answers are queued by route;
each websocket connection is played by the next coroutine of `sessions`, the last one again and again.
"""

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

THREAD, RUN, MESSAGE, COMMAND = "thr_1", "run_1", "msg_1", "cmd_1"
STATUS = {"state": "idle", "since": 1_700_000_000_000_000, "reason": None}
DEADLINE_SECONDS = 10.0


class Dropped(Exception):
    """The script cuts the connection without a closing handshake."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One HTTP request that came."""

    route: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One HTTP answer."""

    body: Any = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Line:
    """The server's end of one websocket."""

    def __init__(self, websocket: WebSocket, server: "Loopback") -> None:
        self._websocket = websocket
        self._server = server

    async def receive(self) -> dict[str, Any]:
        """The next frame of the client; the server keeps it for the test."""
        frame = dict(json.loads(await self._websocket.receive_text()))
        self._server.frames.append(frame)
        return frame

    async def asked(self, route: str) -> None:
        """Wait until a request to `METHOD /path` has come."""
        while not self._server.seen(route):
            await self._server.arrived.wait()

    async def subscribed(self) -> int:
        """Wait for a subscribe, answer the status as the contract wants, and hand back its `after`."""
        while (frame := await self.receive())["action"] != "subscribe":
            await self.pong()
        await self.send(type="thread_status", thread_id=frame["thread_id"], status=STATUS)
        return int(frame["after"])

    async def send(self, **frame: Any) -> None:
        """One frame."""
        await self._websocket.send_text(json.dumps(frame))

    async def raw(self, text: str) -> None:
        """A frame that need not be JSON."""
        await self._websocket.send_text(text)

    async def events(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """One `events` frame."""
        await self.send(type="events", items=list(rows))

    async def caught_up(self, cursor: int, **more: Any) -> None:
        """The end of a replay."""
        await self.send(type="caught_up", thread_id=THREAD, cursor=cursor, **more)

    async def pong(self) -> None:
        """The answer to a ping."""
        await self.send(type="pong")

    async def stay(self) -> None:
        """Answer pings until the client goes."""
        while True:
            if (await self.receive())["action"] == "ping":
                await self.pong()

    async def close(self) -> None:
        """End the socket in good order, as the gateway does after two hours."""
        await self._websocket.close(1001)


Session = Callable[[Line], Awaitable[None]]


class Loopback:
    """The server, and the record of what came to it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[Seen] = []
        self.frames: list[dict[str, Any]] = []
        self.connections = 0
        self.sessions: list[Session] = []
        self.socket_url = f"ws://127.0.0.1:{port}/ws"
        self.tickets_open: set[str] = set()
        self.arrived = asyncio.Event()  # set, and replaced, with each request
        self._answers: dict[str, list[Reply]] = {}
        self._tickets = 0

    def answer(self, route: str, *replies: Reply) -> None:
        """Queue answers for `METHOD /path`; the last one is given again and again."""
        self._answers[route] = list(replies)

    def seen(self, route: str) -> list[Seen]:
        """The requests to one route."""
        return [request for request in self.requests if request.route == route]

    async def http(self, request: Request) -> Response:
        """Answer from the queue of the route; a ticket is made without one."""
        raw = await request.body()
        route = f"{request.method} {request.url.path.removeprefix('/api')}"
        seen = Seen(
            route=route,
            query=dict(request.query_params),
            headers=dict(request.headers),
            body=json.loads(raw) if raw else None,
        )
        self.requests.append(seen)
        self.arrived.set()
        self.arrived = asyncio.Event()
        queued = self._answers.get(route)
        if queued:
            reply = queued.pop(0) if len(queued) > 1 else queued[0]
        elif route == "POST /stream/tickets":
            reply = self._ticket()
        else:
            reply = problem(404, "not-found")
        kind = "application/problem+json" if reply.status >= 400 else "application/json"
        raw_body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        headers = {"Turnlog-Request-Id": f"req_{len(self.requests)}", "content-type": kind, **reply.headers}
        return Response(raw_body, reply.status, headers)

    def _ticket(self) -> Reply:
        self._tickets += 1
        ticket = f"t{self._tickets}"
        self.tickets_open.add(ticket)
        body = {"ticket": ticket, "url": f"{self.socket_url}?ticket={ticket}", "expires_at": STATUS["since"]}
        return Reply(body=body, status=201)

    async def socket(self, websocket: WebSocket) -> None:
        """Play the next session on a connection whose ticket was not used before."""
        ticket = websocket.query_params.get("ticket")
        if ticket not in self.tickets_open:
            await websocket.close(1008)
            return
        self.tickets_open.discard(ticket)
        await websocket.accept()
        session = self.sessions.pop(0) if len(self.sessions) > 1 else self.sessions[0]
        self.connections += 1
        try:
            await session(Line(websocket, self))
        except WebSocketDisconnect:
            return


class House:
    """One listening port; each test moves in with a `Loopback` of its own, so that nothing is left of the last one."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.server = Loopback(port)

    def fresh(self) -> Loopback:
        """A server that nobody has spoken to, at the same address."""
        self.server = Loopback(self.port)
        return self.server

    async def http(self, request: Request) -> Response:
        """To the present server."""
        return await self.server.http(request)

    async def socket(self, websocket: WebSocket) -> None:
        """To the present server; it stays this connection's server."""
        await self.server.socket(websocket)


@contextmanager
def serving() -> Iterator[House]:
    """A port that is served as soon as the block begins and free when it ends."""
    # The protocol is named because asyncio switches Nagle's delay (40 ms an answer) off only where it reads TCP.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)  # from here on a client waits in the backlog: nobody has to wait for the server
        house = House(listener.getsockname()[1])
        methods = ["GET", "POST", "PATCH", "DELETE", "PUT"]
        app = Starlette(
            routes=[WebSocketRoute("/ws", house.socket), Route("/{path:path}", house.http, methods=methods)]
        )
        config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
        runner = uvicorn.Server(config)
        thread = threading.Thread(target=runner.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield house
        finally:
            runner.should_exit = True
            thread.join(DEADLINE_SECONDS)


def closed_port() -> int:
    """A port on loopback where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


# -- shapes of the contract


def problem(status: int, name: str, **more: Any) -> Reply:
    """An answer with problem details."""
    headers = more.pop("headers", {})
    body = {"type": f"/problems/{name}", "title": "No.", "status": status, "detail": f"about {name}", **more}
    return Reply(body=body, status=status, headers=headers)


def event(seq: int, kind: str = "custom.note", run_id: str | None = RUN, **data: Any) -> dict[str, Any]:
    """One envelope."""
    envelope = {
        "schema_version": 1,
        "delivery_seq": seq,
        "event_id": f"evt_{seq}",
        "type": kind,
        "thread_id": THREAD,
        "ts": 1_700_000_000_000_000 + seq * 1000,
        "data": data,
    }
    return envelope | ({"run_id": run_id} if run_id else {})


def log(*rows: tuple[str, Mapping[str, Any]], first: int = 1) -> list[dict[str, Any]]:
    """Envelopes with numbers in a row."""
    return [event(seq, kind, **data) for seq, (kind, data) in enumerate(rows, first)]


def message(role: str, text: str, message_id: str = "msg_2", **more: Any) -> dict[str, Any]:
    """A message with one text part."""
    return {
        "id": message_id,
        "thread_id": THREAD,
        "role": role,
        "content": [{"type": "text", "text": text}],
        "silent": False,
        "metadata": {},
        "created_at": STATUS["since"],
        **more,
    }


def run(run_id: str = RUN, status: str = "queued", **more: Any) -> dict[str, Any]:
    """A run."""
    return {
        "id": run_id,
        "thread_id": THREAD,
        "command_id": COMMAND,
        "status": status,
        "agent": "assistant",
        "attempts": 1,
        "steps": 1,
        "usage": {"input_tokens": 3, "output_tokens": 5},
        "cost_usd": 0.0012,
        "created_at": STATUS["since"],
        **more,
    }


def command(state: str = "started", run_id: str | None = RUN) -> dict[str, Any]:
    """A command."""
    return {
        "id": COMMAND,
        "kind": "run.create",
        "state": state,
        "thread_id": THREAD,
        "run_id": run_id,
        "created_at": STATUS["since"],
    }


def accepted(joined: bool = False) -> dict[str, Any]:
    """The answer to a message: it started a run, or joined the one in flight."""
    return {
        "message": message("user", "hi", MESSAGE),
        "command": command("queued", None) if joined else command(),
        "run": None if joined else run(),
    }


def thread() -> dict[str, Any]:
    """A thread."""
    return {
        "id": THREAD,
        "agent": "assistant",
        "tags": [],
        "arguments": {},
        "status": STATUS,
        "queue": {"pending": 0, "runs": 0},
        "created_at": STATUS["since"],
        "last_activity_at": STATUS["since"],
    }


# -- an answer in pieces

MESSAGES = f"POST /threads/{THREAD}/messages"
PAST = 4  # events that a thread has before the message of `answering`
STARTED = ("run.started", {"agent": "assistant", "model": "offline:echo", "version": "1"})
END = (
    "run.completed",
    {"reason": "stop_on_response", "usage": {"input_tokens": 3, "output_tokens": 5}, "cost_usd": 0.0012},
)


def answering(rows: Sequence[Mapping[str, Any]]) -> Session:
    """A socket that is at the end of the log, and sends these rows once the message has come."""

    async def session(line: Line) -> None:
        await line.subscribed()
        await line.caught_up(PAST)
        await line.asked(MESSAGES)
        await line.events(rows)
        await line.stay()

    return session


def saying(*rows: tuple[str, Mapping[str, Any]]) -> Session:
    """The same, from types and data."""
    return answering(log(*rows, first=PAST + 1))


def delta(text: str, message_id: str = "msg_2") -> tuple[str, Mapping[str, Any]]:
    """A piece of a text."""
    return "message.delta", {"message_id": message_id, "text": text}


def completed(text: str, **more: Any) -> tuple[str, Mapping[str, Any]]:
    """The whole of a text."""
    return "message.completed", {"message": message("assistant", text, **more)}
