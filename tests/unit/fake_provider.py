"""A loopback server that speaks OpenAI's chat protocol as a test tells it to: whole, cut, stalled, refused."""

import json
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from chalicelib.engine.models import ModelRegistry, ProviderSettings
from chalicelib.ports import Model

DEADLINE = 20.0  # seconds that a test waits for a condition before it fails


@dataclass(kw_only=True)
class Reply:
    """What the server does with one request: send `first`, wait for `go_on` if there is one, send `rest`."""

    first: bytes = b""
    rest: bytes = b""
    status: int = 200
    go_on: threading.Event | None = None


@dataclass(kw_only=True)
class Provider:
    """A server that answers with prepared replies, in order; the last one again and again."""

    server: ThreadingHTTPServer
    replies: list[Reply] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    client_left: threading.Event = field(default_factory=threading.Event)

    def model(self) -> Model:
        settings = ProviderSettings(
            openai_base_url=f"http://127.0.0.1:{self.server.server_port}/v1", openai_api_key="k"
        )
        return ModelRegistry(settings=settings).resolve("openai:local")

    def answers(self, *replies: Reply) -> Model:
        self.replies.extend(replies)
        return self.model()


class Handler(BaseHTTPRequestHandler):
    provider: Provider

    def do_POST(self) -> None:
        provider = self.provider
        provider.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        provider.asked.set()
        reply = provider.replies.pop(0) if len(provider.replies) > 1 else provider.replies[0]
        self.send_response(reply.status)
        self.send_header("Content-Type", "text/event-stream" if reply.status == 200 else "application/json")
        self.end_headers()
        self.wfile.write(reply.first)
        self.wfile.flush()
        if reply.go_on is not None and not self.held(reply.go_on):
            return
        self.wfile.write(reply.rest)

    def held(self, go_on: threading.Event) -> bool:
        """Wait until the test says to go on (True) or the client leaves (False)."""
        while not go_on.wait(0.02):
            if select.select([self.connection], [], [], 0)[0]:
                self.provider.client_left.set()
                return False
        return True

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def serving() -> Iterator[Provider]:
    class OwnHandler(Handler):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), OwnHandler)
    server.daemon_threads = True
    OwnHandler.provider = Provider(server=server)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield OwnHandler.provider
    for reply in OwnHandler.provider.replies:
        if reply.go_on is not None:
            reply.go_on.set()
    server.shutdown()
    server.server_close()
    thread.join(DEADLINE)
