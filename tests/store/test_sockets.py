"""Frames reach the management endpoint as API Gateway would take them, on a server of the test's own."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from urllib.parse import unquote

import pytest

from chalicelib.adapters.clients import Clients
from chalicelib.adapters.sockets import ManagedSockets
from chalicelib.domain.errors import RetryLater
from chalicelib.domain.limits import POST_BYTES
from chalicelib.ports import SocketGone


@dataclass
class Gateway:
    """A management endpoint: answers `status` and keeps what was posted. `silent` until it is set free."""

    endpoint: str = ""
    status: int = 200
    posted: list[tuple[str, bytes]] = field(default_factory=list)
    silent: bool = False
    free: Event = field(default_factory=Event)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """A gateway on a free loopback port."""
    made = Gateway()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if made.silent:
                made.free.wait(30)
            made.posted.append((unquote(self.path), body))
            self.send_response(made.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.endpoint = f"http://127.0.0.1:{server.server_port}/_sockets"
        Thread(target=server.serve_forever, daemon=True).start()
        yield made
        made.free.set()
        server.shutdown()


@pytest.fixture
def sockets(gateway: Gateway) -> ManagedSockets:
    """The adapter on that gateway."""
    return ManagedSockets(Clients(region="us-east-1"), gateway.endpoint)


def test_a_frame_arrives_as_it_was_given(sockets: ManagedSockets, gateway: Gateway) -> None:
    sockets.post("abc/d=", b'{"a":"\xc3\xa9"}')
    sockets.post("second", b"x" * POST_BYTES)

    assert gateway.posted == [
        ("/_sockets/@connections/abc/d=", b'{"a":"\xc3\xa9"}'),
        ("/_sockets/@connections/second", b"x" * POST_BYTES),
    ]


def test_a_connection_that_is_gone_is_told(sockets: ManagedSockets, gateway: Gateway) -> None:
    gateway.status = 410

    with pytest.raises(SocketGone):
        sockets.post("gone", b"{}")


@pytest.mark.parametrize("status", [400, 403, 404, 429, 500, 503])
def test_any_other_answer_is_for_later_and_tried_once(sockets: ManagedSockets, gateway: Gateway, status: int) -> None:
    gateway.status = status

    with pytest.raises(RetryLater):
        sockets.post("busy", b"{}")

    assert len(gateway.posted) == 1


def test_a_connection_that_does_not_answer_is_given_up(sockets: ManagedSockets, gateway: Gateway) -> None:
    gateway.silent = True

    with pytest.raises(RetryLater):
        sockets.post("slow", b"{}")


def test_an_endpoint_that_is_not_there_is_for_later() -> None:
    with pytest.raises(RetryLater):
        ManagedSockets(Clients(region="us-east-1"), "http://127.0.0.1:1/_sockets").post("any", b"{}")


def test_a_frame_that_the_gateway_would_refuse_is_not_sent(sockets: ManagedSockets, gateway: Gateway) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        sockets.post("any", b"x" * (POST_BYTES + 1))

    assert gateway.posted == []
