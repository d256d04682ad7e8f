"""`turnlog say` against a server on real loopback sockets: whose answer is shown, and that each text is shown once."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from chalicelib.cli import main
from tests.journeys.loopback import (
    COMMAND,
    END,
    MESSAGE,
    MESSAGES,
    PAST,
    RUN,
    STARTED,
    THREAD,
    Dropped,
    House,
    Line,
    Loopback,
    Reply,
    accepted,
    answering,
    completed,
    delta,
    event,
    log,
    message,
    saying,
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
