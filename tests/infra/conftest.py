"""A gateway to the stub handlers on a real loopback port, and a patient look at conditions."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from infra.local.app_process import listen
from infra.local.emulator import free_port
from infra.local.gateway import build
from infra.local.host import Server, configuration
from tests.infra import stub_app


def until(condition: Callable[[], object], seconds: float = 15.0) -> None:
    """Return as soon as the condition holds; fail when it does not in time."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"did not come true in {seconds:g} s"
        pause.wait(0.01)


@pytest.fixture(scope="module")
def gateway() -> Iterator[str]:
    """The address of a gateway, without its `http://`; the stub's memory is empty at first."""
    for seen in stub_app.SEEN.values():
        seen.clear()
    listening: socket.socket = listen(free_port())
    made = build(stub_app)
    server = Server(configuration(made))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    yield f"127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    stub_app.HOLD.set()
    thread.join(10)
    assert not thread.is_alive()
