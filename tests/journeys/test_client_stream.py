"""The stream of the client over real loopback sockets that drop, repeat, jump, stall and cut as the wire may."""

import json
import random
from collections.abc import Iterator

import pytest

from chalicelib.client import Event, NotFound, Turnlog
from chalicelib.client.pace import Pace
from tests.journeys.loopback import (
    MESSAGE,
    RUN,
    STATUS,
    THREAD,
    Dropped,
    House,
    Line,
    Loopback,
    Reply,
    accepted,
    event,
    message,
    problem,
    serving,
    thread,
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


def test_a_stream_hands_out_what_is_stored_and_then_what_comes(turnlog: Turnlog, server: Loopback) -> None:
    async def session(line: Line) -> None:
        await line.events(ROWS[await line.subscribed() : 3])
        await line.caught_up(3)
        await line.events(ROWS[3:5])
        await line.stay()

    server.sessions = [session]
    states: list[str] = []
    events = take(turnlog, 4, after=1, states=states)
    assert [one.envelope for one in events] == ROWS[1:5]
    assert states == ["connecting", "live", "closed"]
    assert server.frames[0] == {"action": "subscribe", "thread_id": THREAD, "after": 1, "logs": False}


def test_a_dropped_stream_goes_on_from_its_cursor_with_a_ticket_of_its_own(
    turnlog: Turnlog, server: Loopback, waits: list[float]
) -> None:
    async def cut(line: Line) -> None:
        await line.events(ROWS[await line.subscribed() : 4])
        await line.caught_up(4)
        raise Dropped

    async def retire(line: Line) -> None:
        await line.events(ROWS[await line.subscribed() : 6])
        await line.close()

    async def last(line: Line) -> None:
        await line.events(ROWS[await line.subscribed() : 8])
        await line.caught_up(8)
        await line.stay()

    server.sessions = [cut, retire, last]
    states: list[str] = []
    with turnlog.stream(THREAD, on_state=states.append) as stream:
        assert numbers([next(stream) for _ in range(8)]) == list(range(1, 9))
        assert stream.wait_live() == 8
    assert [frame["after"] for frame in server.frames if frame["action"] == "subscribe"] == [0, 4, 6]
    assert len(server.seen("POST /stream/tickets")) == 3
    assert states == ["connecting", "live", "reconnecting", "live", "closed"]
    assert waits == [0.5, 0.5]


def test_a_stream_outlives_a_server_that_is_away_for_a_while(
    turnlog: Turnlog, server: Loopback, waits: list[float]
) -> None:
    async def cut(line: Line) -> None:
        await line.events(ROWS[await line.subscribed() : 2])
        server.answer("POST /stream/tickets", *[problem(503, "retry-later")] * 7, Reply(body=ticket))
        raise Dropped

    async def last(line: Line) -> None:
        await line.events(ROWS[await line.subscribed() : 3])
        await line.stay()

    ticket = {"ticket": "later", "url": server.socket_url, "expires_at": 0}
    server.tickets_open.add("later")
    server.sessions = [cut, last]
    assert numbers(take(turnlog, 3)) == [1, 2, 3]
    assert len(waits) > 3


def test_repeats_are_dropped(turnlog: Turnlog, server: Loopback) -> None:
    async def session(line: Line) -> None:
        await line.subscribed()
        await line.events(ROWS[:3])
        await line.events(ROWS[1:4])
        await line.caught_up(4)
        await line.events(ROWS[:5])
        await line.stay()

    server.sessions = [session]
    assert numbers(take(turnlog, 5)) == [1, 2, 3, 4, 5]


def test_a_jump_in_the_numbers_makes_the_stream_ask_again_from_its_last_one(
    turnlog: Turnlog, server: Loopback, waits: list[float]
) -> None:
    async def session(line: Line) -> None:
        await line.events(ROWS[await line.subscribed() : 2])
        await line.caught_up(2)
        await line.events(ROWS[3:4])
        await line.events(ROWS[await line.subscribed() : 5])
        await line.caught_up(5)
        await line.stay()

    server.sessions = [session]
    assert numbers(take(turnlog, 5)) == [1, 2, 3, 4, 5]
    assert [frame["after"] for frame in server.frames] == [0, 2]
    assert waits == []


def test_a_jump_that_asking_does_not_mend_is_asked_for_ever_more_slowly(
    turnlog: Turnlog, server: Loopback, waits: list[float]
) -> None:
    async def session(line: Line) -> None:
        for _ in range(4):
            await line.subscribed()
            await line.caught_up(1)
        await line.subscribed()
        await line.events(ROWS[:1])
        await line.stay()

    server.sessions = [session]
    assert numbers(take(turnlog, 1)) == [1]
    assert waits == [0.5, 1.0, 2.0]


def test_a_replay_that_ends_early_is_asked_for_until_it_has_caught_up(turnlog: Turnlog, server: Loopback) -> None:
    async def session(line: Line) -> None:
        for end in (4, 8, 11):
            await line.events(ROWS[await line.subscribed() : end])
            await line.caught_up(end, more=end < 11)
        await line.stay()

    server.sessions = [session]
    states: list[str] = []
    assert numbers(take(turnlog, 11, states=states)) == list(range(1, 12))
    assert [frame["after"] for frame in server.frames] == [0, 4, 8]
    assert states.count("live") <= 1


def test_an_event_in_parts_is_joined_in_any_order_and_over_a_drop(turnlog: Turnlog, server: Loopback) -> None:
    text = json.dumps(ROWS[1])
    parts = [text[:20], text[20:50], text[50:]]

    async def send(line: Line, *places: int) -> None:
        for place in places:
            await line.send(type="event_part", delivery_seq=2, index=place, count=3, data=parts[place])

    async def cut(line: Line) -> None:
        await line.subscribed()
        await line.events(ROWS[:1])
        await send(line, 0, 1)
        raise Dropped

    async def last(line: Line) -> None:
        await line.subscribed()
        await send(line, 2, 0, 0, 1, 1)
        await line.events(ROWS[2:3])
        await line.stay()

    server.sessions = [cut, last]
    assert [one.envelope for one in take(turnlog, 3)] == ROWS[:3]


def test_a_cursor_past_the_end_is_taken_as_the_end(turnlog: Turnlog, server: Loopback) -> None:
    async def session(line: Line) -> None:
        assert await line.subscribed() == 999_999
        await line.caught_up(4)
        await line.events(ROWS[4:6])
        await line.stay()

    server.sessions = [session]
    with turnlog.stream(THREAD, 999_999) as stream:
        assert stream.wait_live() == 4
        assert numbers([next(stream), next(stream)]) == [5, 6]


def test_what_came_while_waiting_to_be_live_is_handed_out_afterwards(turnlog: Turnlog, server: Loopback) -> None:
    async def session(line: Line) -> None:
        await line.events(ROWS[await line.subscribed() : 3])
        await line.caught_up(3)
        await line.events(ROWS[3:4])
        await line.stay()

    server.sessions = [session]
    with turnlog.stream(THREAD) as stream:
        assert stream.wait_live() == 3
        assert stream.status == STATUS
        assert numbers([next(stream) for _ in range(4)]) == [1, 2, 3, 4]


def test_rows_that_retention_has_removed_are_told_as_a_gap(turnlog: Turnlog, server: Loopback) -> None:
    async def session(line: Line) -> None:
        await line.subscribed()
        await line.send(type="gap", thread_id=THREAD, **{"from": 1, "to": 7})
        await line.events(ROWS[7:9])
        await line.caught_up(9)
        await line.stay()

    server.sessions = [session]
    states: list[str] = []
    with turnlog.stream(THREAD, on_state=states.append) as stream:
        assert numbers([next(stream), next(stream)]) == [8, 9]
        assert stream.gaps == [(1, 7)]
    assert "gap" in states


def test_an_error_frame_that_no_reconnect_can_mend_ends_the_stream(turnlog: Turnlog, server: Loopback) -> None:
    async def session(line: Line) -> None:
        await line.receive()
        await line.send(type="error", problem=problem(404, "not-found").body)
        await line.stay()

    server.sessions = [session]
    with turnlog.stream(THREAD) as stream, pytest.raises(NotFound):
        next(stream)
    assert server.connections == 1


def test_an_error_frame_that_passes_is_a_reason_to_reconnect(turnlog: Turnlog, server: Loopback) -> None:
    async def busy(line: Line) -> None:
        await line.receive()
        await line.send(type="error", problem=problem(503, "retry-later").body)
        await line.stay()

    async def last(line: Line) -> None:
        await line.events(ROWS[await line.subscribed() : 1])
        await line.stay()

    server.sessions = [busy, last]
    assert numbers(take(turnlog, 1)) == [1]


@pytest.mark.parametrize(
    "frame", ['"text"', "no json", '{"type": "caught_up"}', '{"type": "events", "items": [{"x": 1}]}']
)
def test_a_frame_that_is_none_costs_a_reconnect_and_no_event(turnlog: Turnlog, server: Loopback, frame: str) -> None:
    async def odd(line: Line) -> None:
        await line.events(ROWS[await line.subscribed() : 1])
        await line.raw(frame)
        await line.stay()

    async def last(line: Line) -> None:
        await line.events(ROWS[await line.subscribed() : 2])
        await line.stay()

    server.sessions = [odd, last]
    assert numbers(take(turnlog, 2)) == [1, 2]


def test_frames_of_unknown_types_and_of_other_threads_are_left_alone(turnlog: Turnlog, server: Loopback) -> None:
    async def session(line: Line) -> None:
        await line.subscribed()
        await line.send(type="weather", sky="grey")
        await line.events([ROWS[0] | {"thread_id": "thr_other"}])
        await line.events(ROWS[:1])
        await line.stay()

    server.sessions = [session]
    assert [one.thread_id for one in take(turnlog, 1)] == [THREAD]


@pytest.mark.parametrize("seed", range(8))
def test_whatever_the_wire_does_each_event_comes_once_and_in_order(
    turnlog: Turnlog, server: Loopback, seed: int
) -> None:
    dice = random.Random(seed)

    async def one_row(line: Line, seq: int) -> None:
        luck = dice.random()
        if luck < 0.10:
            raise Dropped
        if luck < 0.20:
            await line.close()
            raise Dropped
        if luck < 0.30:
            return
        if luck < 0.45:
            await line.events(ROWS[max(0, seq - 3) : seq])
        elif luck < 0.65:
            text, cut = json.dumps(ROWS[seq - 1]), dice.randint(1, 40)
            for index, data in ((1, text[cut:]), (0, text[:cut])):
                await line.send(type="event_part", delivery_seq=seq, index=index, count=2, data=data)
        else:
            await line.events(ROWS[seq - 1 : seq])

    async def wild(line: Line) -> None:
        while True:
            after, end = await line.subscribed(), len(ROWS)
            if dice.random() < 0.3:
                end = dice.randint(after, end)
            for seq in range(after + 1, end + 1):
                await one_row(line, seq)
            await line.caught_up(end, more=end < len(ROWS))

    server.sessions = [wild]
    assert [one.envelope for one in take(turnlog, len(ROWS))] == ROWS


def test_one_message_is_said_and_its_answer_is_read(turnlog: Turnlog, server: Loopback) -> None:
    async def session(line: Line) -> None:
        await line.subscribed()
        await line.events([event(1, "message.completed", message=message("user", "hi", MESSAGE))])
        await line.events([event(2, "run.completed", reason="stop_on_response")])
        await line.stay()

    server.answer("POST /threads", Reply(body={"thread": thread(), **accepted()}, status=201))
    server.sessions = [session]
    created = turnlog.create_thread(message="hi")
    with turnlog.stream(created["thread"]["id"]) as stream:
        assert next(one for one in stream if one.ends_run).run_id == RUN
