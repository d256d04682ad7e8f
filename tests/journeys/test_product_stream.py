"""The live stream of the running product (P15, P17, P18).

Every event once, in order, byte for byte as HTTP says, through any number of drops.
"""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from socket import SHUT_RDWR
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from chalicelib.client import Event, NotFound, Turnlog
from tests.journeys.audit import assert_sound
from tests.journeys.product import (
    DEADLINE_SECONDS,
    Body,
    Talk,
    asking,
    call,
    pause,
    step,
    text,
    together,
    until,
)

FRAME_BYTES = 32 * 1024


def canonical(value: Any) -> str:
    """The JSON text that is the same for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


class Line:
    """One websocket as a careful subscriber uses it: joins parts, and drops repeats by their number."""

    def __init__(self, turnlog: Turnlog) -> None:
        ticket = turnlog.ticket()
        mark = "&" if "?" in ticket["url"] else "?"
        address = (
            ticket["url"] if ticket["ticket"] in ticket["url"] else f"{ticket['url']}{mark}ticket={ticket['ticket']}"
        )
        self.socket: ClientConnection = connect(
            address, max_size=None, compression=None, open_timeout=DEADLINE_SECONDS, legacy=True
        )
        self.frames: list[Body] = []
        self.events: list[Body] = []
        self.largest = 0
        self._parts: dict[int, dict[int, str]] = {}

    def send(self, **frame: Any) -> None:
        self.socket.send(json.dumps(frame))

    def subscribe(self, talk: Talk, after: Any = 0) -> "Line":
        self.send(action="subscribe", thread_id=talk.id, after=after, logs=False)
        return self

    def receive(self, seconds: float = DEADLINE_SECONDS) -> Body:
        """The next frame."""
        raw = self.socket.recv(timeout=seconds)
        self.largest = max(self.largest, len(raw if isinstance(raw, bytes) else raw.encode()))
        frame: Body = json.loads(raw)
        self.frames.append(frame)
        if frame["type"] == "events":
            self._take(frame["items"])
        elif frame["type"] == "event_part":
            pieces = self._parts.setdefault(frame["delivery_seq"], {})
            pieces[frame["index"]] = frame["data"]
            if len(pieces) == frame["count"]:
                self._take([json.loads("".join(pieces[place] for place in sorted(pieces)))])
        return frame

    def _take(self, items: list[Body]) -> None:
        for event in items:
            last = self.events[-1]["delivery_seq"] if self.events else None
            if last is None or event["delivery_seq"] > last:
                assert last in (None, event["delivery_seq"] - 1), f"{event['delivery_seq']} came after {last}"
                self.events.append(event)

    def until(self, kind: str) -> Body:
        """The next frame of a type."""
        while (frame := self.receive())["type"] != kind:
            pass
        return frame

    def caught_up(self, talk: Talk) -> "Line":
        """Read to the end of the replay, asking again where it stopped."""
        while (frame := self.until("caught_up")).get("more"):
            self.subscribe(talk, frame["cursor"])
        return self

    def up_to(self, number: int) -> "Line":
        """Read until the event of that number has come."""
        while not self.events or self.events[-1]["delivery_seq"] < number:
            self.receive()
        return self


@pytest.fixture
def lines(turnlog: Turnlog) -> Iterator[Callable[[], Line]]:
    opened: list[Line] = []

    def open_line() -> Line:
        opened.append(Line(turnlog))
        return opened[-1]

    yield open_line
    for line in opened:
        line.socket.close()


def broken(socket: ClientConnection) -> None:
    """The line breaks under the client, without a closing handshake."""
    with suppress(OSError):  # it had been closed already
        socket.socket.shutdown(SHUT_RDWR)


def busy(begin: Callable[..., Talk], seed: int) -> Talk:
    """A thread on which much happens for a second or two: texts in many pieces, tools, a large result."""
    dice = random.Random(seed)
    script = []
    for n in range(3):
        pieces = [text("".join(dice.choices('abc é🚀"\n', k=dice.choice([5, 300, 2500])))) for _ in range(8)]
        spaced = [piece for one in pieces for piece in (one, pause(dice.choice([0, 30, 170])))]
        size = dice.choice([10, 31_000, 50_000])
        calls = call(
            f"c{n}", "write", json.dumps({"letters": dice.choice(["quotes", "emoji", "random"]), "size": size})
        )
        script.append(step(*spaced, calls, stop="tool_calls"))
    return begin([*script, step(text("end"))], message="go")


def stored(talk: Talk) -> list[str]:
    """The whole log as HTTP tells it, each item as canonical JSON."""
    assert_sound(talk)
    return [canonical(event) for event in talk.log]


@pytest.mark.parametrize("seed", range(4))
def test_a_subscriber_that_drops_at_random_cursors_sees_every_event_once_as_http_says(
    begin: Callable[..., Talk], lines: Callable[[], Line], seed: int
) -> None:
    dice, talk = random.Random(seed), busy(begin, seed)
    seen: list[Body] = []
    while not seen or seen[-1]["type"] != "thread.status" or seen[-1]["data"]["state"] == "running":
        line = lines().subscribe(talk, len(seen))
        line.up_to(len(seen) + dice.randint(1, 6))
        seen += line.events
        if dice.random() < 0.5:
            broken(line.socket)
        else:
            line.socket.close()
        assert line.largest < FRAME_BYTES
        assert line.frames[0]["type"] == "thread_status"
    assert [canonical(event) for event in seen] == stored(talk)


@pytest.mark.parametrize("seed", range(3))
def test_many_subscribers_at_many_cursors_see_the_same(
    begin: Callable[..., Talk], lines: Callable[[], Line], seed: int
) -> None:
    dice, talk = random.Random(seed), busy(begin, 10 + seed)
    cursors = [0, *[dice.randint(0, 12) for _ in range(7)]]

    def follow(after: int) -> Line:
        talk_seen = Talk(talk.turnlog, talk.id)
        talk_seen.until(lambda one: len(one.log) >= after, f"event {after}")
        line = lines().subscribe(talk, after)
        while not line.events or line.events[-1]["data"].get("state") != "idle":
            line.receive()
        return line

    followed = together(*[lambda after=after: follow(after) for after in cursors])
    log = stored(talk)
    for after, line in zip(cursors, followed, strict=True):
        assert [canonical(event) for event in line.events] == log[after:]
        assert line.largest < FRAME_BYTES


@pytest.mark.parametrize("seed", range(3))
def test_the_clients_stream_reconnects_from_its_cursor(begin: Callable[..., Talk], turnlog: Turnlog, seed: int) -> None:
    dice, talk = random.Random(seed), busy(begin, 20 + seed)
    seen: list[Event] = []
    states: list[str] = []
    with turnlog.stream(talk.id, on_state=states.append) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "thread.status" and event.data["state"] == "idle":
                break
            if dice.random() < 0.2 and stream._socket is not None:
                broken(stream._socket)
    assert [canonical(event.envelope) for event in seen] == stored(talk)
    assert states[0] == "connecting"


def test_a_short_text_turn_costs_four_frames(begin: Callable[..., Talk], lines: Callable[[], Line]) -> None:
    talk = begin([step(text("a")), step(text("b"))])
    line = lines().subscribe(talk).caught_up(talk)
    before = len(line.frames)
    talk.say("go")
    while line.frames[-1]["type"] != "thread_status" or line.frames[-1]["status"]["state"] != "idle":
        line.receive()
    assert len(line.frames) - before <= 4, [frame["type"] for frame in line.frames[before:]]


def test_the_snapshot_comes_first_and_says_at_least_what_the_events_say(
    begin: Callable[..., Talk], lines: Callable[[], Line]
) -> None:
    talk = begin([step(text("a"), pause(600), text("b"))], message="go")
    talk.event("run.started")
    line = lines().subscribe(talk)
    assert line.receive() == {"type": "thread_status", "thread_id": talk.id, "status": line.frames[0]["status"]}
    assert line.frames[0]["status"]["state"] == "running"
    while not line.events or line.events[-1]["data"].get("state") != "idle":
        line.receive()
    until(lambda: line.frames[-1]["type"] == "thread_status" or not line.receive(), "the status behind the last event")
    assert line.frames[-1]["status"]["state"] == "idle"
    again = lines().subscribe(talk).caught_up(talk)
    assert again.frames[0]["status"] == assert_sound(talk)["status"]


@pytest.mark.parametrize("beyond", [0, 1, 999_999, 2**31 - 1, 2**53])
def test_a_cursor_at_the_end_or_past_it_replays_nothing_and_goes_on_live(
    begin: Callable[..., Talk], lines: Callable[[], Line], beyond: int
) -> None:
    talk = begin([step(text("a")), step(text("b"))])
    talk.turn("0")
    assert_sound(talk)
    end = len(talk.log)
    line = lines().subscribe(talk, end + beyond).caught_up(talk)
    assert line.events == []
    assert line.frames[-1]["cursor"] == end
    talk.turn("1")
    assert_sound(talk)
    line.up_to(len(talk.log))
    assert line.events == talk.log[end:]


@pytest.mark.parametrize("cursor", ["abc", -1, 1.5, None, True, [1], "1", {}, 10**400])
def test_a_bad_cursor_is_an_error_and_the_socket_stays_open(
    begin: Callable[..., Talk], lines: Callable[[], Line], cursor: Any
) -> None:
    talk = begin([step(text("a"))])
    line = lines().subscribe(talk, cursor)
    error = line.until("error")
    assert error["problem"]["type"].startswith("/problems/")
    assert error["problem"]["status"] in (400, 413)
    line.subscribe(talk).caught_up(talk)
    line.send(action="ping")
    line.until("pong")
    talk.turn("0")
    assert_sound(talk)
    line.up_to(len(talk.log))
    assert line.events == talk.log


def test_another_orgs_thread_is_as_unknown_as_no_thread(
    begin: Callable[..., Talk], other: Turnlog, lines: Callable[[], Line]
) -> None:
    talk = begin([step(text("a"))], message="0")
    theirs = Line(other)
    ours = lines()
    unknown = Talk(other, "thr_aaaaaaaaaaaaaaaaaaaa")
    problems = []
    for line, thread in ((theirs, talk), (theirs, unknown), (ours, unknown)):
        problems.append(line.subscribe(thread).until("error")["problem"])
    assert [problem["status"] for problem in problems] == [404] * 3
    assert problems[0] == problems[1]
    theirs.send(action="ping")
    theirs.until("pong")
    theirs.socket.close()
    assert theirs.events == []
    with pytest.raises(NotFound), other.stream(talk.id) as stream:
        next(stream)
    assert_sound(talk)


def test_subscribers_that_vanish_stop_nobody(begin: Callable[..., Talk], lines: Callable[[], Line]) -> None:
    talk = begin([step(*[piece for n in range(12) for piece in (text(f"w{n} "), pause(90))])])
    living = [lines().subscribe(talk).caught_up(talk) for _ in range(3)]
    for _ in range(5):
        broken(lines().subscribe(talk).caught_up(talk).socket)
    talk.say("go")
    talk.event("message.delta")
    broken(living[1].socket)
    assert_sound(talk)
    for line in (living[0], living[2]):
        line.up_to(len(talk.log))
        assert line.events == talk.log


def test_a_second_subscribe_replaces_the_first_and_an_unsubscribe_ends_it(
    begin: Callable[..., Talk], lines: Callable[[], Line]
) -> None:
    talk = begin([step(text("a")), step(text("b")), step(text("c"))])
    talk.turn("0")
    line = lines().subscribe(talk).caught_up(talk).subscribe(talk, 2).caught_up(talk)
    talk.turn("1")
    assert_sound(talk)
    line.up_to(len(talk.log))
    assert line.events == talk.log
    assert sum(len(frame["items"]) for frame in line.frames if frame["type"] == "events") <= 3 * len(talk.log)
    line.send(action="unsubscribe", thread_id=talk.id)
    line.send(action="ping")
    line.until("pong")
    before = len(line.events)
    talk.turn("2")
    line.send(action="ping")
    line.until("pong")
    assert len(line.events) == before


@pytest.mark.parametrize("size", [32 * 1024, 32 * 1024 + 1, 128 * 1024 + 1])
def test_a_frame_of_a_client_that_is_too_large_is_told_or_closes_the_socket_with_a_code(
    lines: Callable[[], Line], size: int
) -> None:
    line = lines()
    frame = json.dumps({"action": "ping", "padding": ""})
    line.socket.send(frame[:-2] + "x" * (size - len(frame)) + frame[-2:])
    try:
        told = line.receive()["type"]
    except ConnectionClosed as closed:
        told = closed.rcvd.code if closed.rcvd else None
    assert told in (("pong", "error") if size <= FRAME_BYTES else ("error", 1009))


def test_a_ticket_opens_one_socket(turnlog: Turnlog) -> None:
    ticket = turnlog.ticket()
    mark = "&" if "?" in ticket["url"] else "?"
    address = ticket["url"] if ticket["ticket"] in ticket["url"] else f"{ticket['url']}{mark}ticket={ticket['ticket']}"

    def opened() -> int:
        try:
            with connect(address, open_timeout=DEADLINE_SECONDS):
                return 101
        except InvalidStatus as refusal:
            return refusal.response.status_code

    assert sorted(together(*[opened] * 6)) == [101, 401, 401, 401, 401, 401]


def test_a_long_poll_answers_as_soon_as_there_is_news_and_empty_when_there_is_none(begin: Callable[..., Talk]) -> None:
    talk = begin([step(text("a"), pause(300), text("b"))])
    page = talk.turnlog.events(talk.id, 1, wait=0.2)
    assert (page.items, page.cursor, page.status["state"]) == ((), 1, "idle")
    polls: list[Callable[[], Any]] = [lambda: talk.turnlog.events(talk.id, 1, wait=20)] * 8
    *pages, _ = together(*polls, lambda: talk.say("go"))
    assert all(page.items[0].delivery_seq == 2 for page in pages)
    assert_sound(talk)


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pages_of_any_size_make_the_same_log(begin: Callable[..., Talk], limit: int) -> None:
    talk = busy(begin, 30)
    log = stored(talk)
    after, pages = 0, []
    while (page := talk.turnlog.events(talk.id, after, limit=limit)).items:
        assert len(page.items) <= limit
        assert page.cursor == page.items[-1].delivery_seq
        pages += [canonical(event.envelope) for event in page.items]
        after = page.cursor
    assert pages == log


@pytest.mark.parametrize("parallel", [2, 9])
def test_parallel_tools_are_told_in_one_order_to_everybody(
    begin: Callable[..., Talk], lines: Callable[[], Line], parallel: int
) -> None:
    tools = {f"t{n}": {"takes_ms": 40 * ((n * 7) % 5), "returns": n} for n in range(parallel)}
    talk = begin([asking(*[call(f"c{n}", f"t{n}") for n in range(parallel)]), step(text("done"))], tools)
    line = lines().subscribe(talk).caught_up(talk)
    talk.say("go")
    assert_sound(talk)
    line.up_to(len(talk.log))
    assert line.events == talk.log
    (message,) = [m for m in talk.messages() if m["role"] == "tool"]
    assert [part["call_id"] for part in message["content"]] == [f"c{n}" for n in range(parallel)]
