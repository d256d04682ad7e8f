"""The `turnlog` command against a server on real loopback sockets: what goes where, and how it ends."""

import json
import os
import pty
import re
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from chalicelib.cli import main
from tests.journeys.loopback import (
    COMMAND,
    MESSAGE,
    RUN,
    STATUS,
    THREAD,
    Dropped,
    House,
    Line,
    Loopback,
    Reply,
    Session,
    accepted,
    closed_port,
    event,
    log,
    message,
    problem,
    run,
    serving,
    thread,
)

ROOT = Path(__file__).parents[2]
MESSAGES = f"POST /threads/{THREAD}/messages"
PAST = 4  # events that a thread has when the tests of `say` begin
DEADLINE_SECONDS = 20
Rows = Sequence[Mapping[str, Any]]


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with serving() as one:
        yield one


@pytest.fixture
def server(house: House) -> Loopback:
    fresh = house.fresh()
    fresh.answer("POST /threads", Reply(body={"thread": thread()}, status=201))
    fresh.answer(MESSAGES, Reply(body=accepted(), status=201))
    return fresh


def environment(server: Loopback, **more: str) -> dict[str, str]:
    return {"TURNLOG_URL": server.url, "TURNLOG_KEY": "tl_test_key", **more}


def turnlog(server: Loopback, *arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(main, arguments, env=environment(server), **options)


def answering(rows: Rows) -> Session:
    """A socket that is at the end of the log, and sends these rows once the message has come."""

    async def session(line: Line) -> None:
        await line.subscribed()
        await line.caught_up(PAST)
        await line.asked(MESSAGES)
        await line.events(rows)
        await line.stay()

    return session


def saying(*rows: tuple[str, Mapping[str, Any]]) -> Session:
    return answering(log(*rows, first=PAST + 1))


def delta(text: str, message_id: str = "msg_2") -> tuple[str, Mapping[str, Any]]:
    return "message.delta", {"message_id": message_id, "text": text}


def completed(text: str, **more: Any) -> tuple[str, Mapping[str, Any]]:
    return "message.completed", {"message": message("assistant", text, **more)}


END = (
    "run.completed",
    {"reason": "stop_on_response", "usage": {"input_tokens": 3, "output_tokens": 5}, "cost_usd": 0.0012},
)
STARTED = ("run.started", {"agent": "assistant", "model": "offline:echo", "version": "1"})


# -- new


def test_new_prints_the_id_and_nothing_else_on_stdout(server: Loopback) -> None:
    result = turnlog(server, "new")
    assert (result.exit_code, result.stdout) == (0, f"{THREAD}\n")
    assert f"next: turnlog say {THREAD}" in result.stderr
    assert server.requests[0].body == {"agent": "assistant"}


def test_new_passes_title_agent_and_arguments_on(server: Loopback) -> None:
    given = ("--agent", "scripted", "--title", "T", "--arguments", '{"n": 1, "a": 0}', "--argument", "a=b=c")
    turnlog(server, "new", *given, "--json")
    assert server.requests[0].body == {"agent": "scripted", "title": "T", "arguments": {"n": 1, "a": "b=c"}}


@pytest.mark.parametrize("bad", [("--argument", "novalue"), ("--arguments", "[1]"), ("--arguments", "{"), ("--nope",)])
def test_arguments_of_a_wrong_form_are_a_usage_error_and_send_nothing(server: Loopback, bad: tuple[str, ...]) -> None:
    result = turnlog(server, "new", *bad)
    assert (result.exit_code, server.requests, result.stdout) == (2, [], "")


def test_new_with_a_message_shows_the_answer(server: Loopback) -> None:
    async def session(line: Line) -> None:
        assert await line.subscribed() == 0
        await line.events(log(("thread.created", {}), STARTED, delta("Good "), completed("Good day"), END))
        await line.stay()

    server.answer("POST /threads", Reply(body={"thread": thread(), **accepted()}, status=201))
    server.sessions = [session]
    result = turnlog(server, "new", "Hello")
    assert (result.exit_code, result.stdout) == (0, f"{THREAD}\nGood day\n")
    assert server.requests[0].body["message"] == "Hello"


# -- say


def test_say_shows_the_pieces_and_the_rest_and_how_it_went(server: Loopback) -> None:
    server.sessions = [saying(STARTED, delta("Hel"), delta("lo wor"), completed("Hello world!"), END)]
    result = turnlog(server, "say", THREAD, "hi")
    assert (result.exit_code, result.stdout) == (0, "Hello world!\n")
    assert "completed (stop_on_response) · 3 in, 5 out tokens · $0.0012 · 0.0 s" in result.stderr
    assert f"next: turnlog say {THREAD}" in result.stderr


def test_an_answer_that_comes_whole_is_shown_once(server: Loopback) -> None:
    server.sessions = [saying(STARTED, ("message.started", {"message_id": "msg_2"}), completed("Short."), END)]
    assert turnlog(server, "say", THREAD, "hi").stdout == "Short.\n"


def test_an_answer_that_starts_anew_is_announced_and_shown_from_its_beginning(server: Loopback) -> None:
    reset = ("message.reset", {"message_id": "msg_2", "reason": "truncated"})
    server.sessions = [saying(STARTED, delta("Fir"), reset, delta("Sec"), completed("Second"), END)]
    result = turnlog(server, "say", THREAD, "hi")
    assert result.stdout == "Fir\nSecond\n"
    assert "starts anew (truncated)" in result.stderr


def test_a_tool_call_is_one_line_on_stderr(server: Loopback) -> None:
    call = {"call_id": "c1", "name": "weather"}
    done = {"outcome": "ok", "result": "two\nlines", "duration_ms": 12}
    server.sessions = [
        saying(
            STARTED,
            ("tool.started", call | {"arguments": {"city": "Oslo"}}),
            ("tool.completed", call | done),
            ("message.completed", {"message": message("tool", "not shown", "msg_3")}),
            completed("Rain."),
            END,
        )
    ]
    result = turnlog(server, "say", THREAD, "hi")
    assert result.stdout == "Rain.\n"
    lines = [line for line in result.stderr.splitlines() if "weather" in line]
    assert lines == ['weather {"city": "Oslo"} → ok in 12 ms: "two\\nlines"']


def test_reasoning_is_shown_to_who_asks_for_it(server: Loopback) -> None:
    thought = ("reasoning.completed", {"message_id": "msg_2", "text": "let me see"})
    server.sessions = [saying(STARTED, thought, completed("Yes"), END)]
    assert "let me see" not in turnlog(server, "say", THREAD, "hi").output
    result = turnlog(server, "say", THREAD, "hi", "--reasoning")
    assert (result.stdout, "let me see" in result.stderr) == ("Yes\n", True)


def test_a_failed_run_ends_with_six_and_says_why(server: Loopback) -> None:
    error = {"type": "model_error", "detail": "no such model", "retryable": False}
    used = ("usage.updated", {"model": "m", "input_tokens": 7, "output_tokens": 0})
    server.sessions = [saying(STARTED, used, ("run.failed", {"reason": "model_error", "error": error}))]
    result = turnlog(server, "say", THREAD, "hi")
    assert (result.exit_code, result.stdout) == (6, "")
    assert "failed (model_error) · 7 in, 0 out" in result.stderr
    assert "no such model" in result.stderr


def test_a_cancelled_run_ends_with_six_and_keeps_what_was_said(server: Loopback) -> None:
    end = ("run.cancelled", {"reason": "aborted_by_user", "finished_calls": []})
    server.sessions = [saying(STARTED, delta("Half an ans"), completed("Half an ans", incomplete=True), end)]
    result = turnlog(server, "say", THREAD, "hi")
    assert (result.exit_code, result.stdout) == (6, "Half an ans\n")
    assert "cancelled (aborted_by_user)" in result.stderr


def test_only_the_run_that_answers_is_shown(server: Loopback) -> None:
    other = [event(5, "message.delta", "run_0", message_id="m", text="other"), event(6, "run.completed", "run_0")]
    server.sessions = [answering([*other, *log(STARTED, completed("Mine"), END, first=7)])]
    result = turnlog(server, "say", THREAD, "hi", "--delivery", "enqueue")
    assert result.stdout == "Mine\n"
    assert server.seen(MESSAGES)[0].body == {"content": "hi", "delivery": "enqueue"}


def test_a_joined_message_is_answered_by_the_run_that_takes_it(server: Loopback) -> None:
    mine = message("user", "hi", MESSAGE)
    rows = log(
        delta("of before"),
        ("message.queued", {"message": mine}),
        completed("of before", message_id="msg_0"),
        ("message.completed", {"message": mine}),
        delta("To yo"),
        completed("To you"),
        END,
        first=PAST + 1,
    )
    server.answer(MESSAGES, Reply(body=accepted(joined=True), status=201))
    server.sessions = [answering(rows)]
    result = turnlog(server, "say", THREAD, "hi")
    assert (result.exit_code, result.stdout) == (0, "To you\n")
    assert "takes it before its next step" in result.stderr


def test_a_joined_message_that_becomes_a_run_of_its_own_is_answered_by_that(server: Loopback) -> None:
    ended = event(5, "run.cancelled", "run_0", reason="aborted_by_user", finished_calls=[])
    queued = ("run.queued", {"command_id": COMMAND, "delivery": "join"})
    server.answer(MESSAGES, Reply(body=accepted(joined=True), status=201))
    server.sessions = [answering([ended, *log(queued, STARTED, completed("Late"), END, first=6)])]
    result = turnlog(server, "say", THREAD, "hi")
    assert (result.exit_code, result.stdout) == (0, "Late\n")


def test_a_message_that_is_withdrawn_is_not_waited_for(server: Loopback) -> None:
    server.answer(MESSAGES, Reply(body=accepted(joined=True), status=201))
    server.sessions = [answering([event(5, "message.deleted", None, message_id=MESSAGE)])]
    result = turnlog(server, "say", THREAD, "hi")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "withdrawn" in result.stderr


def test_the_text_may_come_from_stdin(server: Loopback) -> None:
    turnlog(server, "say", THREAD, "-", "--no-wait", input="from a pipe\n")
    assert server.requests[0].body == {"content": "from a pipe\n"}


@pytest.mark.parametrize(("joined", "printed"), [(False, f"{RUN} queued\n"), (True, f"{MESSAGE} queued\n")])
def test_no_wait_prints_what_was_accepted_and_opens_no_socket(server: Loopback, joined: bool, printed: str) -> None:
    server.answer(MESSAGES, Reply(body=accepted(joined=joined), status=201))
    result = turnlog(server, "say", THREAD, "hi", "--no-wait")
    assert (result.exit_code, result.stdout, server.connections) == (0, printed, 0)


def test_json_lines_are_the_answer_of_the_door_and_the_events_as_they_came(server: Loopback) -> None:
    rows = log(STARTED, delta("\u202eHi"), completed("\u202eHi"), END, first=PAST + 1)
    server.sessions = [answering(rows)]
    result = turnlog(server, "say", THREAD, "hi", "--json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [accepted(), *rows]
    assert result.stdout.isascii()
    assert "next:" not in result.stderr


def test_a_lost_connection_is_told_and_costs_no_text(server: Loopback) -> None:
    rows = log(STARTED, delta("One "), delta("two"), completed("One two"), END, first=PAST + 1)

    async def cut(line: Line) -> None:
        await line.subscribed()
        await line.caught_up(PAST)
        await line.asked(MESSAGES)
        await line.events(rows[:2])
        raise Dropped

    async def last(line: Line) -> None:
        after = await line.subscribed()
        await line.events(rows[after - PAST :])
        await line.stay()

    server.sessions = [cut, last]
    result = turnlog(server, "say", THREAD, "hi")
    assert (result.exit_code, result.stdout) == (0, "One two\n")
    assert "connection lost, reconnecting" in result.stderr


def test_nothing_that_a_model_or_a_tool_wrote_can_act_on_the_terminal(server: Loopback) -> None:
    evil = "a\x1b[2J\x07b\u202ec\u2066\x9b1m\rd\x00e\u200f"
    call = {"call_id": "c1", "name": f"t{evil}"}
    server.sessions = [
        saying(
            STARTED,
            ("tool.started", call | {"arguments": {"x": evil}}),
            ("tool.completed", call | {"outcome": "error", "result": evil, "duration_ms": 1}),
            delta("ok \x1b"),
            delta("[31m"),
            completed("ok \x1b[31m" + evil + "\n\ttabbed"),
            ("run.failed", {"reason": "step_error", "error": {"type": "e", "detail": evil}}),
        )
    ]
    result = turnlog(server, "say", THREAD, "hi")
    assert result.stdout == "ok [31ma[2Jbc1mde\n\ttabbed\n"
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200f\u202a-\u202e\u2066-\u2069]", result.output)


# -- tail, runs, cancel


def test_tail_prints_each_event_on_one_line(server: Loopback) -> None:
    route = f"GET /threads/{THREAD}/events"
    rows = log(
        ("thread.created", {"agent": "assistant"}),
        ("message.completed", {"message": message("user", "two\nlines", MESSAGE)}),
        delta("a \x1b[1m b"),
        ("tool.completed", {"name": "weather", "outcome": "ok", "result": {"sky": "x" * 400}}),
        ("weather.changed", {"sky": "grey"}),
        END,
    )
    pages = [{"items": page, "cursor": 0, "status": STATUS} for page in (rows[:4], rows[4:], [])]
    server.answer(route, *[Reply(body=page) for page in pages])
    result = turnlog(server, "tail", THREAD, "--no-follow", "--after", "0")
    lines = result.stdout.splitlines()
    assert (result.exit_code, len(lines)) == (0, 6)
    assert [line.split()[2] for line in lines] == [row["type"] for row in rows]
    assert 'user "two\\nlines"' in lines[1]
    assert '"sky": "grey"' in lines[4]
    assert max(map(len, lines)) <= 200
    assert [seen.query["after"] for seen in server.seen(route)] == ["0", "4", "6"]
    assert f"next: turnlog tail {THREAD} --after 6" in result.stderr


def test_tail_in_json_is_the_stored_envelopes(server: Loopback) -> None:
    rows = log(STARTED, END)
    empty = {"items": [], "cursor": 2, "status": STATUS}
    server.answer(f"GET /threads/{THREAD}/events", Reply(body=empty | {"items": rows}), Reply(body=empty))
    result = turnlog(server, "tail", THREAD, "--no-follow", "--json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == rows


def test_runs_are_listed_one_a_line(server: Loopback) -> None:
    listed = [run("run_1", "completed", reason="stop_on_response"), run("run_2", "running", cost_usd=None)]
    server.answer(f"GET /threads/{THREAD}/runs", Reply(body={"items": listed, "next_cursor": None}))
    result = turnlog(server, "runs", THREAD)
    first, second = result.stdout.splitlines()
    assert first.split()[:3] == ["run_1", "completed", "stop_on_response"]
    assert "1 steps, 3 in, 5 out, $0.0012" in first
    assert "cost unknown" in second
    assert "turnlog cancel run_2" in result.stderr
    as_json = turnlog(server, "runs", THREAD, "--json")
    assert [json.loads(line) for line in as_json.stdout.splitlines()] == listed


def test_cancel_says_where_the_run_stands(server: Loopback) -> None:
    server.answer(f"POST /runs/{RUN}/cancel", Reply(body={"command": {}, "run": run(status="running")}, status=202))
    result = turnlog(server, "cancel", RUN)
    assert (result.exit_code, result.stdout) == (0, f"{RUN} running\n")
    assert f"next: turnlog tail {THREAD}" in result.stderr


# -- how it ends


@pytest.mark.parametrize(
    ("status", "name", "code"),
    [
        (400, "invalid-request", 2),
        (401, "unauthorized", 4),
        (403, "forbidden", 4),
        (404, "not-found", 3),
        (409, "thread-busy", 5),
        (413, "too-large", 1),
        (423, "thread-terminated", 5),
        (500, "internal", 1),
    ],
)
def test_each_refusal_has_its_exit_code_and_is_told_with_its_request_id(
    server: Loopback, status: int, name: str, code: int
) -> None:
    server.answer(f"POST /runs/{RUN}/cancel", problem(status, name, errors=[{"path": "here", "message": "is odd"}]))
    result = turnlog(server, "cancel", RUN)
    assert (result.exit_code, result.stdout) == (code, "")
    assert f"error: {status} {name}: about {name}" in result.stderr
    assert "here: is odd" in result.stderr
    assert "request id req_1" in result.stderr


def test_without_a_right_the_way_to_a_key_is_named(server: Loopback) -> None:
    server.answer(f"GET /threads/{THREAD}/runs", problem(401, "unauthorized"))
    assert "TURNLOG_KEY" in turnlog(server, "runs", THREAD).stderr


def test_a_server_that_is_not_there_is_said_in_one_sentence_with_the_remedy() -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    result = CliRunner().invoke(main, ["runs", THREAD, "--url", url])
    assert result.exit_code == 1
    assert f"error: no answer from {url}" in result.stderr
    assert "make run" in result.stderr


@pytest.mark.parametrize(
    "arguments", [("runs", ".."), ("runs", THREAD, "--url", "nowhere"), ("rums",), ("say", THREAD)]
)
def test_what_cannot_be_asked_is_a_usage_error(server: Loopback, arguments: tuple[str, ...]) -> None:
    result = turnlog(server, *arguments)
    assert (result.exit_code, server.requests) == (2, [])
    assert "Traceback" not in result.output


def test_no_command_takes_a_secret_as_an_option() -> None:
    for name, command in main.commands.items():
        options = {option for param in command.params for option in param.opts}
        assert not options & {"--key", "--token", "--password"}, name


# -- as a process


def start(server: Loopback, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
    env = {**os.environ, **environment(server), **options.pop("env", {})}
    return subprocess.Popen([sys.executable, "-m", "chalicelib.cli", *arguments], cwd=ROOT, env=env, **options)


def read_until(file: int, wanted: bytes) -> bytes:
    """Read until the bytes have come; fails at the deadline or the end of the file."""
    got = b""
    with selectors.DefaultSelector() as ready:
        ready.register(file, selectors.EVENT_READ)
        while wanted not in got:
            assert ready.select(DEADLINE_SECONDS), f"{wanted!r} did not come, only {got!r}"
            piece = os.read(file, 65536)
            assert piece, f"the end came before {wanted!r}: {got!r}"
            got += piece
    return got


def test_ctrl_c_ends_the_watching_and_names_both_ways_on(server: Loopback) -> None:
    server.sessions = [saying(STARTED, delta("Once upon "))]
    process = start(server, "say", THREAD, "hi", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    read_until(process.stdout.fileno(), b"Once upon ")
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 130
    assert f"turnlog cancel {RUN}" in talk.decode()
    # The last event may be named as not yet dealt with, never one that was not shown.
    assert re.search(f"turnlog tail {THREAD} --after ({PAST + 1}|{PAST + 2})\n", talk.decode())
    assert server.seen(f"POST /runs/{RUN}/cancel") == []


def test_tail_follows_until_ctrl_c_and_says_where_it_stopped(server: Loopback) -> None:
    async def session(line: Line) -> None:
        await line.events(log(STARTED)[await line.subscribed() :])
        await line.caught_up(1)
        await line.events([event(2, "custom.live")])
        await line.stay()

    server.sessions = [session]
    process = start(server, "tail", THREAD, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    read_until(process.stdout.fileno(), b"custom.live")
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 130
    assert re.search(f"turnlog tail {THREAD} --after [12]\n", talk.decode())


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_is_for_terminals_that_do_not_refuse_it(
    server: Loopback, environ: dict[str, str], coloured: bool
) -> None:
    listed = [run("run_1", "completed", reason="stop_on_response")]
    server.answer(f"GET /threads/{THREAD}/runs", Reply(body={"items": listed, "next_cursor": None}))
    near, far = pty.openpty()
    env = {"NO_COLOR": "", "TERM": "xterm", **environ}
    process = start(server, "runs", THREAD, env=env, stdout=far, stderr=subprocess.DEVNULL)
    os.close(far)
    shown = read_until(near, b"\n")
    process.wait(DEADLINE_SECONDS)
    os.close(near)
    assert (b"\x1b[32m" in shown) is coloured
    assert b"run_1" in shown


def test_on_a_terminal_passing_lines_are_wiped_out_by_what_follows(server: Loopback) -> None:
    call = {"call_id": "c1", "name": "weather"}
    done = {"outcome": "ok", "result": "rain", "duration_ms": 12}
    server.sessions = [
        saying(
            STARTED,
            ("tool.started", call | {"arguments": {}}),
            ("tool.completed", call | done),
            delta("Ra"),
            completed("Rain"),
            END,
        )
    ]
    near, far = pty.openpty()
    process = start(server, "say", THREAD, "hi", env={"NO_COLOR": "1", "TERM": "xterm"}, stdout=far, stderr=far)
    os.close(far)
    shown = read_until(near, b"turnlog tail").decode()
    process.wait(DEADLINE_SECONDS)
    os.close(near)
    assert process.returncode == 0
    assert "weather {} …\r\x1b[K" in shown
    assert "Rain\r\n" in shown
