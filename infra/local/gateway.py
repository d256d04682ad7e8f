"""API Gateway's part: real HTTP and websockets on one port, raw Lambda events to the handlers of app.py.

An ASGI application that knows route templates and limits, and nothing of what the routes mean. Handlers are
synchronous and run on worker threads. What the gateway answers by itself is a problem document with a request id, as
the gateway responses of infra/resources.json are on AWS: an unknown path 404, a body above 10 MB 413, a function that
raises 502, one that does not answer within 29 s 504. A method that a known path lacks goes to the app, which answers
for itself.
"""

import base64
import binascii
import traceback
import uuid
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import anyio.to_thread

from infra.local import events
from infra.local.answers import Answer, problem
from infra.local.events import Request
from infra.local.lambdas import (
    BACKGROUND_SECONDS,
    DOOR_SECONDS,
    RUNNER_SECONDS,
    Activity,
    Function,
)
from infra.local.management import Management
from infra.local.routes import Match, Routes
from infra.local.sockets import Sockets

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

WORKERS = 200  # 100 long polls must leave room for others; anyio's own limit is 40
BODY_LIMIT = 10 * 1024 * 1024  # API Gateway's payload limit
EVENT_LIMIT = 6 * 1024 * 1024  # Lambda's limit of a synchronous request and of its response
SOCKET_PATH = "/ws"
MANAGEMENT_PATH = "/_sockets/"
NO_BODY = (204, 304)


class Doors(Protocol):
    """The module of Lambda entry points (app.py)."""

    app: Any
    run_turn: Any
    fan_out: Any
    connect: Any
    message: Any
    disconnect: Any
    sweep: Any
    provision: Any


class Gateway:
    """The ASGI application; made by `build`."""

    def __init__(self, doors: Doors, activity: Activity) -> None:
        self._api = _function("api", doors.app, DOOR_SECONDS, activity)
        self._routes = Routes(doors.app.routes)
        self._binary_types: Sequence[str] = tuple(doors.app.api.binary_types)
        self._workers: anyio.CapacityLimiter | None = None
        self.sockets = Sockets(
            connect=_function("connect", doors.connect, DOOR_SECONDS, activity),
            message=_function("message", doors.message, DOOR_SECONDS, activity),
            disconnect=_function("disconnect", doors.disconnect, DOOR_SECONDS, activity),
            on_thread=self._on_thread,
        )
        self._management = Management(self.sockets)
        self._waiting: set[anyio.CancelScope] = set()
        self._stopping = False

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One connection, as ASGI hands it over."""
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["type"] == "http":
            await _respond(send, await self._http(scope, receive))

    def stop(self) -> None:
        """Tell whoever still waits for a function to come back later."""
        self._stopping = True
        for patience in list(self._waiting):
            patience.cancel()

    async def _websocket(self, scope: Message, receive: Receive, send: Send) -> None:
        request = _request(scope, "GET")
        if request.raw_path != SOCKET_PATH:
            return await self.sockets.refuse(receive, send, 404)
        await self.sockets.serve(request, receive, send)

    async def _http(self, scope: Message, receive: Receive) -> Answer:
        request, request_id = _request(scope, scope["method"]), str(uuid.uuid4())
        body = await _read(receive)
        if body is None:
            return problem(413, "too-large", "The body is larger than 10 MB.", request_id)
        if request.raw_path.startswith(MANAGEMENT_PATH):
            return await self._management.answer(request.method, scope["path"], body)
        match = self._routes.find(request.raw_path)
        if match is None:
            return problem(404, "not-found", "There is no such route.", request_id)
        return await self._invoke(request, body, match, request_id)

    async def _invoke(self, request: Request, body: bytes, match: Match, request_id: str) -> Answer:
        event = events.http(request, body, match, self._binary_types, request_id)
        if len(event["body"] or "") > EVENT_LIMIT:
            return problem(413, "too-large", "The body is larger than a function takes (6 MB).", request_id)
        with anyio.move_on_after(DOOR_SECONDS) as patience:
            self._waiting.add(patience)
            try:
                answered = await self._on_thread(self._api, event, request.method not in ("GET", "HEAD"))
                return _proxy_answer(answered, request.header("accept"), self._binary_types)
            except Exception:  # noqa: BLE001 - the function's own crash, told on stderr as Lambda's log would
                traceback.print_exc()
                return problem(502, "bad-gateway", "The function failed.", request_id)
            finally:
                self._waiting.discard(patience)
        if self._stopping:
            return problem(503, "retry-later", "The local cloud is stopping.", request_id)
        return problem(504, "gateway-timeout", "The function did not answer within 29 seconds.", request_id)

    async def _on_thread(self, function: Function, event: dict[str, Any], ring: bool = True) -> Any:
        self._workers = self._workers or anyio.CapacityLimiter(WORKERS)
        return await anyio.to_thread.run_sync(
            lambda: function(event, ring=ring), limiter=self._workers, abandon_on_cancel=True
        )


@dataclass(frozen=True, kw_only=True)
class Background:
    """The handlers that no request calls: the pumps and the launcher do."""

    run_turn: Function
    fan_out: Function
    sweep: Function
    provision: Function


def build(doors: Doors, activity: Activity | None = None) -> Gateway:
    """The gateway to the handlers of a module."""
    return Gateway(doors, activity or Activity())


def background(doors: Doors, activity: Activity) -> Background:
    """The handlers that the pumps call."""
    return Background(
        run_turn=_function("run_turn", doors.run_turn, RUNNER_SECONDS, activity),
        fan_out=_function("fan_out", doors.fan_out, BACKGROUND_SECONDS, activity),
        sweep=_function("sweep", doors.sweep, BACKGROUND_SECONDS, activity),
        provision=_function("provision", doors.provision, BACKGROUND_SECONDS, activity),
    )


def _function(name: str, handler: Any, seconds: float, activity: Activity) -> Function:
    return Function(name=name, handler=handler, seconds=seconds, activity=activity)


def _request(scope: Message, method: str) -> Request:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    return Request(
        method=method,
        raw_path=scope["raw_path"].decode("latin-1"),
        query=scope["query_string"].decode("latin-1"),
        headers=headers,
        client=scope["client"][0] if scope.get("client") else "127.0.0.1",
    )


async def _read(receive: Receive) -> bytes | None:
    """The whole body, or None when it is above the limit (read to its end all the same, so that the answer arrives)."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        size += len(message.get("body", b""))
        if size <= BODY_LIMIT:
            parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts) if size <= BODY_LIMIT else None


def _proxy_answer(answered: Any, accept: str, binary_types: Sequence[str]) -> Answer:
    """A Lambda proxy response as HTTP. Raises on one that API Gateway would call malformed."""
    status, body = int(answered["statusCode"]), answered.get("body") or ""
    if not isinstance(body, str) or len(body) > EVENT_LIMIT:
        raise ValueError("malformed proxy response: the body must be a string of at most 6 MB")
    raw = body.encode()
    if answered.get("isBase64Encoded") and events.matches_binary(accept, binary_types):
        raw = _decoded(body)
    headers = [(name, str(value)) for name, value in (answered.get("headers") or {}).items()]
    for name, values in (answered.get("multiValueHeaders") or {}).items():
        headers = [pair for pair in headers if pair[0].lower() != name.lower()]
        headers += [(name, str(value)) for value in values]
    return Answer(status=status, headers=headers, body=b"" if status in NO_BODY else raw)


def _decoded(body: str) -> bytes:
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise ValueError("malformed proxy response: the body is not base64") from error


async def _respond(send: Send, answer: Answer) -> None:
    dropped = ("content-length", "transfer-encoding", "connection")
    kept = [(name.lower(), value) for name, value in answer.headers if name.lower() not in dropped]
    if answer.status not in NO_BODY:
        kept.append(("content-length", str(len(answer.body))))
    headers = [(name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in kept]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
