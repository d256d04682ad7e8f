"""Doors of websockets and streams over real sockets: the gateway that holds connections, and the house behind it."""

from collections.abc import Iterator

import pytest

from tests.doors.socket_gateway import Gateway
from tests.doors.socket_house import Meanwhile, SocketHouse


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """Holds the connections of one test."""
    with Gateway() as started:
        yield started


@pytest.fixture
def meanwhile() -> Meanwhile:
    """What happens between two steps of the house."""
    return Meanwhile()


@pytest.fixture
def house(emulator: str, gateway: Gateway, meanwhile: Meanwhile) -> SocketHouse:
    """The doors of sockets and streams on a table of the test's own."""
    return SocketHouse(emulator, gateway, wrap=meanwhile.wrap)
