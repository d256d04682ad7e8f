"""The calls of the client against a server on real loopback sockets: keys, retries, refusals, pages."""

import ast
import hashlib
import json
import subprocess
import sys
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
from tests.journeys.loopback import (
    RUN,
    STATUS,
    THREAD,
    House,
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
    assert ([one.delivery_seq for one in page.items], page.cursor, page.status) == ([1, 2], 2, STATUS)
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
