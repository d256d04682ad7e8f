"""The `turnlog` command against a server on real loopback sockets: what goes where, and how it ends."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from chalicelib.cli import main
from tests.journeys.loopback import (
    END,
    MESSAGE,
    MESSAGES,
    RUN,
    STARTED,
    STATUS,
    THREAD,
    House,
    Line,
    Loopback,
    Reply,
    accepted,
    closed_port,
    completed,
    delta,
    log,
    message,
    problem,
    run,
    serving,
    thread,
)


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
