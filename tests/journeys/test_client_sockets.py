"""The sockets of a stream: pings, lines that die, rights that end, and where a ticket may be taken."""

import threading
from collections.abc import Iterator

import pytest

from chalicelib.client import ConnectionFailed, Event, ForeignSocket, Turnlog, Unauthorized
from chalicelib.client.pace import Pace
from chalicelib.client.stream import socket_address
from tests.journeys.loopback import (
    THREAD,
    Dropped,
    House,
    Line,
    Loopback,
    event,
    problem,
    serving,
)

ROWS = [event(seq, text=f"row {seq}") for seq in range(1, 21)]


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with serving() as one:
        yield one


@pytest.fixture
def server(house: House) -> Loopback:
    return house.fresh()


@pytest.fixture
def waits() -> list[float]:
    """The seconds that the client meant to wait; none of them is waited."""
    return []


@pytest.fixture
def turnlog(server: Loopback, waits: list[float]) -> Iterator[Turnlog]:
    with Turnlog(server.url, "tl_test_key", pace=Pace(sleep=waits.append, dice=lambda: 0.0)) as made:
        yield made


def numbers(events: list[Event]) -> list[int]:
    return [one.delivery_seq for one in events]


def take(turnlog: Turnlog, count: int, after: int = 0, states: list[str] | None = None) -> list[Event]:
    """The next events of a stream, which is closed then."""
    with turnlog.stream(THREAD, after, on_state=states.append if states is not None else None) as stream:
        return [next(stream) for _ in range(count)]


def test_a_quiet_stream_pings(server: Loopback) -> None:
    async def session(line: Line) -> None:
        await line.subscribed()
        for _ in range(2):
            assert (await line.receive())["action"] == "ping"
            await line.pong()
        await line.events(ROWS[:1])
        await line.stay()

    server.sessions = [session]
    with Turnlog(server.url, "k", ping_seconds=0.2) as made, made.stream(THREAD) as stream:
        assert next(stream).delivery_seq == 1
    assert [frame["action"] for frame in server.frames].count("ping") >= 2


def test_a_line_that_no_longer_answers_is_left_for_a_new_one(server: Loopback, waits: list[float]) -> None:
    async def deaf(line: Line) -> None:
        await line.events(ROWS[await line.subscribed() : 1])
        while True:
            await line.receive()

    async def last(line: Line) -> None:
        await line.events(ROWS[await line.subscribed() : 2])
        await line.stay()

    server.sessions = [deaf, last]
    with Turnlog(server.url, "k", ping_seconds=0.05, pace=Pace(sleep=waits.append)) as made:
        assert numbers(take(made, 2)) == [1, 2]
    assert server.connections >= 2


def test_a_stream_that_never_was_served_says_so_instead_of_trying_for_ever(turnlog: Turnlog, server: Loopback) -> None:
    async def refuse(line: Line) -> None:
        raise Dropped

    server.sessions = [refuse]
    with turnlog.stream(THREAD) as stream, pytest.raises(ConnectionFailed):
        next(stream)
    assert server.connections == 3


def test_a_stream_without_a_right_ends_with_the_refusal(turnlog: Turnlog, server: Loopback) -> None:
    server.answer("POST /stream/tickets", problem(401, "unauthorized"))
    with turnlog.stream(THREAD) as stream, pytest.raises(Unauthorized):
        next(stream)


def test_closing_from_another_thread_ends_the_iteration(turnlog: Turnlog, server: Loopback) -> None:
    async def session(line: Line) -> None:
        await line.events(ROWS[await line.subscribed() : 1])
        await line.stay()

    server.sessions = [session]
    seen: list[Event] = []
    stream = turnlog.stream(THREAD)
    first = threading.Event()

    def read() -> None:
        for one in stream:
            seen.append(one)
            first.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert first.wait(10)
    stream.close()
    stream.close()
    reader.join(10)
    assert not reader.is_alive()
    assert numbers(seen) == [1]


@pytest.mark.parametrize(
    ("base", "offered", "hosts"),
    [
        ("http://127.0.0.1:8000", "ws://localhost:9/ws", ()),
        ("http://localhost:8000", "ws://[::1]:8000/ws", ()),
        ("https://turnlog.example/live", "wss://turnlog.example/live", ()),
        ("https://turnlog.example", "wss://sockets.example/", ("sockets.example",)),
        (
            "https://a1.execute-api.eu-west-1.amazonaws.com/live",
            "wss://b2.execute-api.eu-west-1.amazonaws.com/live",
            (),
        ),
        ("https://turnlog.example", "/ws", ()),
    ],
)
def test_a_websocket_at_home_is_trusted_with_the_ticket(base: str, offered: str, hosts: tuple[str, ...]) -> None:
    address = socket_address(base, {"ticket": "a b", "url": offered, "expires_at": 0}, hosts)
    assert address.endswith("?ticket=a%20b")
    assert address.startswith("wss://turnlog.example/ws" if offered == "/ws" else offered)


def test_a_ticket_that_stands_in_the_address_is_not_added_again() -> None:
    url = "ws://127.0.0.1:1/ws?ticket=t1"
    assert socket_address("http://127.0.0.1:1", {"ticket": "t1", "url": url, "expires_at": 0}, ()) == url


@pytest.mark.parametrize(
    ("base", "offered"),
    [
        ("http://127.0.0.1:8000", "ws://192.0.2.7:8000/ws"),
        ("https://turnlog.example", "ws://turnlog.example/ws"),
        ("https://turnlog.example", "wss://turnlog.example.attacker.example/ws"),
        ("https://turnlog.example", "wss://user@attacker.example/ws"),
        ("https://turnlog.example", "https://turnlog.example/ws"),
        (
            "https://a1.execute-api.eu-west-1.amazonaws.com/live",
            "wss://b2.execute-api.us-east-1.amazonaws.com/live",
        ),
    ],
)
def test_a_websocket_elsewhere_never_gets_the_ticket(base: str, offered: str) -> None:
    with pytest.raises(ForeignSocket):
        socket_address(base, {"ticket": "t1", "url": offered, "expires_at": 0}, ())


def test_a_stream_to_a_foreign_host_is_refused_without_a_second_try(turnlog: Turnlog, server: Loopback) -> None:
    server.socket_url = "ws://192.0.2.7/ws"
    with turnlog.stream(THREAD) as stream, pytest.raises(ForeignSocket):
        next(stream)
    assert (server.connections, len(server.requests)) == (0, 1)
