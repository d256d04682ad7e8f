"""The client against a server on real loopback sockets that refuses, drops, repeats, jumps and cuts as the wire may."""

import ast
import hashlib
import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import chalicelib.client as client_room
from chalicelib.client import (
    Conflict,
    ConnectionFailed,
    Event,
    Forbidden,
    ForeignSocket,
    InvalidRequest,
    Misused,
    NotFound,
    ProblemError,
    ThreadTerminated,
    TooLarge,
    TooManyRequests,
    Turnlog,
    Unauthorized,
    Unavailable,
)
from chalicelib.client.pace import Pace
from chalicelib.client.stream import socket_address
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
    closed_port,
    event,
    message,
    problem,
    run,
    serving,
    thread,
)

ROWS = [event(seq, text=f"row {seq}") for seq in range(1, 21)]
MESSAGES = f"POST /threads/{THREAD}/messages"


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


# -- the room


def test_the_public_names_are_these_and_all_of_them_exist() -> None:
    assert client_room.__all__ == sorted(client_room.__all__)
    assert all(hasattr(client_room, name) for name in client_room.__all__)
    assert {"Turnlog", "EventStream", "Event", "TurnlogError", "Thread", "Run", "Message"} <= set(client_room.__all__)
    assert (Path(client_room.__file__).parents[1] / "py.typed").is_file()


def test_the_client_imports_httpx_websockets_the_standard_library_and_itself() -> None:
    for path in Path(client_room.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                _is_light(str(node.module))
            if isinstance(node, ast.Import):
                for name in node.names:
                    _is_light(name.name)


def _is_light(module: str) -> None:
    top = module.partition(".")[0]
    assert module.startswith("chalicelib.client") or top in {"httpx", "websockets"} or top in sys.stdlib_module_names


def test_importing_the_client_loads_nothing_of_the_server() -> None:
    code = "import sys, chalicelib.client; print(*{name.split('.')[0] for name in sys.modules})"
    root = Path(client_room.__file__).parents[2]
    loaded = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert not {"boto3", "botocore", "chalice", "pydantic", "pynamodb"} & set(loaded.stdout.split())


# -- address and key


def test_address_and_key_come_from_the_environment(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_URL", server.url + "/api/")
    monkeypatch.setenv("TURNLOG_KEY", " tl_env_key\n")
    server.answer(f"GET /threads/{THREAD}", Reply(body=thread()))
    with Turnlog() as made:
        assert made.thread(THREAD)["id"] == THREAD
    assert server.requests[0].headers["authorization"] == "Bearer tl_env_key"


def test_without_an_address_the_local_server_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNLOG_URL", raising=False)
    with Turnlog() as made:
        assert made.url == "http://127.0.0.1:8000"


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "127.0.0.1:8000", "http://", "http://[::1"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(Misused):
        Turnlog(url)


def test_a_key_with_odd_characters_is_refused_at_once() -> None:
    with pytest.raises(Misused):
        Turnlog("http://127.0.0.1", "tl_\u20ac")


@pytest.mark.parametrize("bad", ["", ".", "..", "\udc80"])
def test_an_id_that_would_name_another_route_is_refused_before_it_is_sent(turnlog: Turnlog, bad: str) -> None:
    with pytest.raises(Misused):
        turnlog.thread(bad)


def test_an_id_stays_inside_its_path_segment(turnlog: Turnlog, server: Loopback) -> None:
    with pytest.raises(NotFound):
        turnlog.run("../threads?x=1")
    assert [seen.query for seen in server.requests] == [{}]
    assert server.requests[0].route.startswith("GET /runs/")


def test_a_transport_replaces_the_network() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=run()))
    with Turnlog("http://inside", "k", transport=transport) as made:
        assert made.run(RUN)["status"] == "queued"


# -- calls and retries


def test_a_call_keeps_its_idempotency_key_over_its_retries(
    turnlog: Turnlog, server: Loopback, waits: list[float]
) -> None:
    server.answer(
        MESSAGES, problem(503, "retry-later"), problem(503, "retry-later"), Reply(body=accepted(), status=201)
    )
    assert turnlog.say(THREAD, "hi", delivery="join")["run"] == run()
    keys = {seen.headers["idempotency-key"] for seen in server.requests}
    assert (len(server.requests), len(keys)) == (3, 1)
    assert server.requests[0].body == {"content": "hi", "delivery": "join"}
    assert waits == [0.5, 1.0]


def test_two_calls_have_two_idempotency_keys(turnlog: Turnlog, server: Loopback) -> None:
    server.answer(MESSAGES, Reply(body=accepted(), status=201))
    turnlog.say(THREAD, "hi")
    turnlog.say(THREAD, "hi")
    turnlog.say(THREAD, "hi", idempotency_key="mine")
    keys = [seen.headers["idempotency-key"] for seen in server.requests]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("POST /threads", lambda t: t.create_thread(message="hi", title="x", arguments={"a": 1}, tags=["t"])),
        (f"POST /threads/{THREAD}/runs", lambda t: t.create_run(THREAD, "hi", model="offline:echo")),
        (f"POST /runs/{RUN}/cancel", lambda t: t.cancel(RUN)),
        (f"POST /threads/{THREAD}/stop", lambda t: t.stop(THREAD, all=True)),
        (f"POST /threads/{THREAD}/continue", lambda t: t.continue_(THREAD)),
    ],
)
def test_every_mutation_carries_a_key_and_a_body(
    turnlog: Turnlog, server: Loopback, method: str, call: Callable[[Turnlog], object]
) -> None:
    server.answer(method, Reply(body=accepted(), status=201))
    call(turnlog)
    assert len(server.requests[0].headers["idempotency-key"]) >= 32
    assert isinstance(server.requests[0].body, dict)


def test_retry_after_is_obeyed(turnlog: Turnlog, server: Loopback, waits: list[float]) -> None:
    full = problem(429, "queue-full", headers={"Retry-After": "7"})
    server.answer(MESSAGES, full, Reply(body=accepted(), status=201))
    turnlog.say(THREAD, "hi")
    assert waits == [7.0]


def test_a_retry_after_above_two_minutes_is_told_instead_of_waited_for(
    turnlog: Turnlog, server: Loopback, waits: list[float]
) -> None:
    server.answer(MESSAGES, problem(429, "budget-exceeded", headers={"Retry-After": "3600"}))
    with pytest.raises(TooManyRequests) as caught:
        turnlog.say(THREAD, "hi")
    assert (caught.value.retry_after, waits, len(server.requests)) == (3600.0, [], 1)


def test_the_waits_double_up_to_eight_seconds_less_a_quarter_at_most() -> None:
    longest, shortest = Pace(dice=lambda: 0.0), Pace(dice=lambda: 1.0)
    assert [longest.backoff_seconds(n) for n in range(1, 8)] == [0.5, 1, 2, 4, 8, 8, 8]
    assert [shortest.backoff_seconds(n) for n in (1, 2, 99)] == [0.375, 0.75, 6.0]


@pytest.mark.parametrize(
    ("status", "kind", "tries"),
    [
        (400, InvalidRequest, 1),
        (401, Unauthorized, 1),
        (403, Forbidden, 1),
        (404, NotFound, 1),
        (409, Conflict, 1),
        (413, TooLarge, 1),
        (415, ProblemError, 1),
        (423, ThreadTerminated, 1),
        (429, TooManyRequests, 3),
        (500, Unavailable, 1),
        (502, Unavailable, 3),
        (503, Unavailable, 3),
        (504, Unavailable, 3),
    ],
)
def test_each_status_has_its_class_and_its_number_of_tries(
    turnlog: Turnlog, server: Loopback, status: int, kind: type[ProblemError], tries: int
) -> None:
    server.answer(MESSAGES, problem(status, "some-name", errors=[{"path": "content", "message": "is missing"}]))
    with pytest.raises(ProblemError) as caught:
        turnlog.say(THREAD, "hi")
    error = caught.value
    assert (type(error), error.status, error.name) == (kind, status, "some-name")
    assert error.errors == [{"path": "content", "message": "is missing"}]
    assert error.request_id == f"req_{tries}"
    assert len(server.requests) == tries


def test_a_refusal_that_is_no_problem_document_still_has_its_class(turnlog: Turnlog, server: Loopback) -> None:
    server.answer(f"GET /runs/{RUN}", Reply(body=b"<html>", status=403, headers={"content-type": "text/html"}))
    with pytest.raises(Forbidden, match="HTTP 403"):
        turnlog.run(RUN)


def test_an_answer_that_is_not_json_is_no_usable_answer(turnlog: Turnlog, server: Loopback) -> None:
    server.answer(f"GET /runs/{RUN}", Reply(body=b"<html>hello</html>", headers={"content-type": "text/html"}))
    with pytest.raises(ConnectionFailed):
        turnlog.run(RUN)


def test_a_server_that_is_not_there_is_tried_three_times(waits: list[float]) -> None:
    with (
        Turnlog(f"http://127.0.0.1:{closed_port()}", "k", pace=Pace(sleep=waits.append)) as made,
        pytest.raises(ConnectionFailed, match="no answer from"),
    ):
        made.say(THREAD, "hi")
    assert len(waits) == 2


def test_what_has_no_json_form_is_refused_before_it_is_sent(turnlog: Turnlog, server: Loopback) -> None:
    for value in (float("nan"), {1, 2}):
        with pytest.raises(Misused):
            turnlog.create_thread(arguments={"x": value})
    assert server.requests == []


def test_half_a_character_reaches_the_server_as_it_is(turnlog: Turnlog, server: Loopback) -> None:
    server.answer(MESSAGES, problem(400, "invalid-request"))
    with pytest.raises(InvalidRequest):
        turnlog.say(THREAD, "half \ud83d")
    assert server.requests[0].body == {"content": "half \ud83d"}


def test_a_list_is_read_page_by_page_as_far_as_it_is_needed(turnlog: Turnlog, server: Loopback) -> None:
    route = f"GET /threads/{THREAD}/runs"
    pages = [
        Reply(body={"items": [run("run_1"), run("run_2")], "next_cursor": "c1"}),
        Reply(body={"items": [run("run_3")], "next_cursor": None}),
    ]
    server.answer(route, *pages)
    assert next(turnlog.runs(THREAD))["id"] == "run_1"
    assert len(server.requests) == 1
    server.answer(route, *pages)
    assert [one["id"] for one in turnlog.runs(THREAD)] == ["run_1", "run_2", "run_3"]
    assert [seen.query for seen in server.requests[1:]] == [{}, {"cursor": "c1"}]


def test_reads_pass_their_filters_on(turnlog: Turnlog, server: Loopback) -> None:
    empty = Reply(body={"items": [], "next_cursor": None})
    for route in ("GET /threads", f"GET /threads/{THREAD}/messages", "GET /runs", f"GET /runs/{RUN}/steps"):
        server.answer(route, empty)
    lists = (turnlog.threads(q="x y", tag="t"), turnlog.messages(THREAD, order="desc", silent=True))
    assert [list(one) for one in (*lists, turnlog.latest_runs(), turnlog.steps(RUN))] == [[], [], [], []]
    assert server.requests[0].query == {"q": "x y", "tag": "t"}
    assert server.requests[1].query == {"order": "desc", "include": "silent"}


def test_a_page_of_events_is_typed(turnlog: Turnlog, server: Loopback) -> None:
    server.answer(f"GET /threads/{THREAD}/events", Reply(body={"items": ROWS[:2], "cursor": 2, "status": STATUS}))
    page = turnlog.events(THREAD, 0, limit=2, wait=5)
    assert (numbers(list(page.items)), page.cursor, page.status) == ([1, 2], 2, STATUS)
    assert server.requests[0].query == {"after": "0", "limit": "2", "wait": "5"}


def test_an_event_of_an_unknown_type_passes_through_with_all_its_fields() -> None:
    row = event(7, "weather.changed", run_id=None, sky="grey") | {"novelty": 1}
    parsed = Event.parse(row)
    assert (parsed.type, parsed.run_id, parsed.data["sky"], parsed.envelope["novelty"]) == (
        "weather.changed",
        None,
        "grey",
        1,
    )
    assert not parsed.ends_run
    with pytest.raises(AttributeError):
        parsed.type = "other"  # type: ignore[misc]


def test_a_field_that_is_stored_apart_is_put_back_in_its_place(turnlog: Turnlog, server: Loopback) -> None:
    large = message("assistant", "long " * 9000)
    raw = json.dumps(large).encode()
    stub = {
        "ref": "b1",
        "bytes": len(raw),
        "sha256": hashlib.sha256(raw).hexdigest(),
        "content_type": "application/json",
    }
    server.answer(f"GET /threads/{THREAD}/blobs/b1", Reply(body=raw))
    apart = Event.parse(event(1, "message.completed", message=stub))
    assert turnlog.whole(apart).data == {"message": large}
    near = Event.parse(event(2, "message.completed", message=message("user", "x")))
    assert turnlog.whole(near) is near


def test_a_field_that_comes_back_changed_is_not_believed(turnlog: Turnlog, server: Loopback) -> None:
    stub = {"ref": "b1", "bytes": 3, "sha256": "0" * 64, "content_type": "text/plain"}
    server.answer(f"GET /threads/{THREAD}/blobs/b1", Reply(body=b"abc"))
    with pytest.raises(ConnectionFailed, match="not what was stored"):
        turnlog.whole(Event.parse(event(1, "tool.completed", result=stub)))


# -- the stream


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
    assert [frame["action"] for frame in server.frames][:3] == ["subscribe", "ping", "ping"]


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
    assert server.connections == 2


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
