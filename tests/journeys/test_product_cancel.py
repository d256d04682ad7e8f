"""Cancel is a durable fact about one run (P05, P01): whenever it comes, the run ends once, nothing else is touched."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.client import Misused, NotFound, Turnlog
from tests.journeys.audit import assert_sound
from tests.journeys.product import (
    Talk,
    call,
    command_of,
    pause,
    run_of,
    step,
    text,
    text_of,
    together,
)

SLOW = {"slow": {"takes_ms": 6000, "returns": "late"}, "quick": {"returns": "here"}}


def test_a_run_that_no_worker_has_claimed_ends_without_a_model_call(begin: Callable[..., Talk]) -> None:
    talk = begin([step(text("x"), pause(700)), step(text("never"))], message="0")
    talk.event("message.started")
    queued = talk.turnlog.create_run(talk.id, "1")
    answer = talk.turnlog.cancel(run_of(queued))
    assert answer["run"] is not None
    assert (answer["run"]["status"], answer["run"]["reason"]) == ("cancelled", "aborted_by_user")
    thread = assert_sound(talk)
    assert thread["status"]["reason"] == "stop_on_response"
    assert len(talk.asked()) == 1
    assert [run["status"] for run in talk.runs()] == ["completed", "cancelled"]
    assert talk.turnlog.command(command_of(queued))["state"] == "withdrawn"


@pytest.mark.parametrize("seed", range(8))
def test_a_cancel_at_any_moment_of_a_start_ends_the_run_once(begin: Callable[..., Talk], seed: int) -> None:
    dice = random.Random(seed)
    talk = begin([step(text("abc"), pause(dice.choice([0, 40, 400]))), step(text("next"))], message="0")
    run = run_of(talk.sent[0])
    talk.read(wait=dice.choice([0, 0, 0.01, 0.03]))
    first = talk.turnlog.cancel(run)
    second = talk.turnlog.cancel(run)
    assert second["run"] is not None
    assert second["run"]["id"] == run
    thread = assert_sound(talk)
    (told,) = [e for e in talk.log if e["type"] in ("run.cancelled", "run.completed")]
    if first["command"] is not None:
        assert told["type"] == "run.cancelled"
        assert (thread["status"]["state"], thread["status"]["reason"]) == ("idle", "aborted_by_user")
        assert command_of(second) == command_of(first)
    assert talk.turnlog.run(run)["status"] == told["type"].partition(".")[2]
    talk.turn("and now?")
    assert_sound(talk)


@pytest.mark.parametrize(("before", "behind"), [("short", 3000), ("x" * 2500, 3000), ("x" * 40_000, 3000), ("", 3000)])
def test_a_cancel_in_an_answer_closes_it_as_incomplete(begin: Callable[..., Talk], before: str, behind: int) -> None:
    talk = begin([step(text(before), pause(behind), text("never")), step(text("next"))], message="0")
    talk.event("message.started")
    answer = talk.turnlog.cancel(run_of(talk.sent[0]))
    assert talk.turnlog.command(command_of(answer))["kind"] == "run.cancel"
    thread = assert_sound(talk)
    assert (thread["status"]["state"], thread["status"]["reason"]) == ("idle", "aborted_by_user")
    (message,) = [m for m in talk.messages() if m["role"] == "assistant"]
    assert (message["incomplete"], text_of(message)) == (True, before)
    assert talk.of("run.cancelled")[0]["data"]["finished_calls"] == []


def test_a_cancel_of_a_run_that_has_ended_changes_nothing(begin: Callable[..., Talk]) -> None:
    talk = begin([step(text("a")), step(text("b"), pause(900), text("c"))])
    done = talk.turn("0")
    running = run_of(talk.say("1"))
    talk.event("message.started", count=2)
    answer = talk.turnlog.cancel(done)
    assert answer["run"] is not None
    assert answer["run"]["status"] == "completed"
    assert_sound(talk)
    assert [run["status"] for run in talk.runs()] == ["completed", "completed"]
    talk.turnlog.cancel(running)
    assert not talk.read()


def test_a_cancel_of_a_cancelled_run_answers_as_the_first(begin: Callable[..., Talk]) -> None:
    talk = begin([step(text("a"), pause(4000))], message="0")
    talk.event("message.started")
    run = run_of(talk.sent[0])
    answers = together(*[lambda: talk.turnlog.cancel(run)] * 12)
    assert len({command_of(answer) for answer in answers}) == 1
    assert_sound(talk)
    late = talk.turnlog.cancel(run)
    assert late["run"] is not None
    assert (late["run"]["status"], command_of(late)) == ("cancelled", command_of(answers[0]))
    assert not talk.read()


@pytest.mark.parametrize(
    "run", ["run_aaaaaaaaaaaaaaaaaaaa_1", "run_1", "nonsense", "cmd_aaaaaaaaaaaaaaaaaaaa_1", "run_é_1"]
)
def test_a_cancel_of_an_unknown_run_is_not_found(turnlog: Turnlog, run: str) -> None:
    with pytest.raises(NotFound):
        turnlog.cancel(run)


def test_a_cancel_of_another_threads_or_a_joined_number_is_not_found(
    begin: Callable[..., Talk], other: Turnlog
) -> None:
    talk = begin([step(text("a"), pause(600))], message="0")
    talk.event("message.started")
    talk.say("joins")
    for client, number in ((talk.turnlog, 2), (talk.turnlog, 3), (other, 1)):
        with pytest.raises((NotFound, Misused)):
            client.cancel(run_of(talk.sent[0]).rpartition("_")[0] + f"_{number}")
    assert_sound(talk)
    assert [run["status"] for run in talk.runs()] == ["completed"]


@pytest.mark.parametrize("seed", range(4))
def test_a_cancel_in_parallel_tools_keeps_what_has_finished_and_aborts_the_rest(
    begin: Callable[..., Talk], seed: int
) -> None:
    dice = random.Random(seed)
    names = [dice.choice(["slow", "quick"]) for _ in range(dice.randint(2, 7))]
    names[dice.randrange(len(names))] = "slow"
    calls = [call(f"c{n}", name) for n, name in enumerate(names)]
    talk = begin([step(text("now"), *calls, stop="tool_calls"), step(text("again"))], SLOW, "0")
    quick = names.count("quick")
    talk.event("tool.completed", count=quick) if quick else talk.event("tool.started", f"c{len(names) - 1}")
    talk.turnlog.cancel(run_of(talk.sent[0]))
    assert_sound(talk)
    assert [part["outcome"] for part in talk.results().values()] == [
        {"slow": "aborted", "quick": "ok"}[name] for name in names
    ]
    finished = talk.of("run.cancelled")[0]["data"]["finished_calls"]
    assert sorted(finished) == sorted(f"c{n}" for n, name in enumerate(names) if name == "quick")
    talk.turn("are you there?")
    assert_sound(talk)
    tools = [message for message in talk.asked()[-1] if message["role"] == "tool"]
    assert [len(message["content"]) for message in tools] == [len(names)]


def test_a_cancel_while_the_model_is_asked_again_ends_the_run(begin: Callable[..., Talk]) -> None:
    overloaded = step(text("partial"), {"type": "error", "status": 529, "detail": "busy", "retryable": True}, stop=None)
    talk = begin([overloaded] * 5, message="0")
    talk.event("message.reset")
    talk.turnlog.cancel(run_of(talk.sent[0]))
    thread = assert_sound(talk)
    assert thread["status"]["reason"] in ("aborted_by_user", "model_error")
    talk.turn("again")
    assert_sound(talk)


def test_stop_cancels_the_run_in_flight_and_what_is_queued_goes_on(begin: Callable[..., Talk]) -> None:
    talk = begin([step(text("x"), pause(5000)), *[step(text("y"))] * 5], message="0")
    talk.event("message.started")
    talk.turnlog.create_run(talk.id, "1")
    talk.turnlog.create_run(talk.id, "2")
    answer = talk.turnlog.stop(talk.id)
    assert answer["run"]["id"] == run_of(talk.sent[0])
    thread = assert_sound(talk)
    assert [run["status"] for run in talk.runs()] == ["cancelled", "completed", "completed"]
    assert thread["status"]["reason"] == "stop_on_response"
    before = len(talk.log)
    assert talk.turnlog.stop(talk.id)["run"] is None
    talk.read()
    assert len(talk.log) == before


def test_a_cancelled_run_leaves_the_messages_bound_to_it_to_a_run_of_their_own(begin: Callable[..., Talk]) -> None:
    failing = step(pause(1500), {"type": "error", "status": 400, "detail": "no", "retryable": False}, stop=None)
    talk = begin([failing, step(text("x"), pause(2000)), *[step(text("y"))] * 5], message="0")
    talk.event("run.started")
    talk.turnlog.create_run(talk.id, "1")
    talk.say("2")
    talk.say("3")
    talk.event("run.started", count=2)
    promoted = talk.runs()[-1]["id"]
    talk.turnlog.cancel(promoted)
    assert_sound(talk)
    assert [run["status"] for run in talk.runs()] == ["failed", "completed", "cancelled", "completed"]
    assert [text_of(message) for message in talk.asked()[-1] if message["role"] == "user"][-1] == "3"


@pytest.mark.parametrize("many", [0, 3, pytest.param(70, marks=pytest.mark.slow)])
def test_stop_of_all_withdraws_what_is_queued_and_pending(begin: Callable[..., Talk], many: int) -> None:
    talk = begin([step(text("x"), pause(20_000)), *[step(text("y"))] * 200], message="0")
    talk.event("message.started")
    ways: list[Any] = ["join", "enqueue"]
    for n in range(many):
        talk.say(str(n), delivery=ways[n % 2])
    talk.turnlog.stop(talk.id, all=True)
    thread = assert_sound(talk)
    assert (thread["status"]["state"], thread["status"]["reason"]) == ("idle", "aborted_by_user")
    assert thread["queue"] == {"pending": 0, "runs": 0}
    assert [run["status"] for run in talk.runs()] == ["cancelled"] * (1 + many // 2)
    assert len(talk.asked()) == 1
    assert sorted(text_of(m) for m in talk.messages() if m["role"] == "user") == sorted(["0", *map(str, range(many))])
    assert {talk.turnlog.command(command_of(one))["state"] for one in talk.sent[1:]} <= {"withdrawn"}
    talk.turn("go on")
    assert_sound(talk)


def test_stop_of_all_with_more_content_than_one_write_holds(begin: Callable[..., Talk]) -> None:
    dice = random.Random(1)
    talk = begin([step(text("x"), pause(20_000)), *[step(text("y"))] * 20], message="0")
    talk.event("message.started")
    ways: list[Any] = ["join", "enqueue"]
    for n in range(12):
        words = "".join(dice.choices("abcdefghijklmnopqrstuvwxyz0123456789!$%&/()=?#+", k=250_000))
        talk.say(words, delivery=ways[n % 2])
    talk.turnlog.stop(talk.id, all=True)
    thread = assert_sound(talk)
    assert (thread["status"]["reason"], thread["queue"]) == ("aborted_by_user", {"pending": 0, "runs": 0})
    assert {run["status"] for run in talk.runs()} == {"cancelled"}


def test_continue_runs_the_agent_again_without_a_message(begin: Callable[..., Talk]) -> None:
    talk = begin([step(text("a")), step(text("b")), step(text("c"))])
    talk.turn("0")
    accepted = talk.turnlog.continue_(talk.id)
    assert accepted.get("message") is None
    talk.end(run_of(accepted))
    assert_sound(talk)
    assert [text_of(message) for message in talk.messages()] == ["0", "a", "b"]
    queued = [talk.turnlog.continue_(talk.id), talk.turnlog.continue_(talk.id)]
    talk.turnlog.cancel(run_of(queued[1]))
    assert_sound(talk)
