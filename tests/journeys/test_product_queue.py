"""Messages that come while a run is in flight (P04): taken in by it in order or answered by a run of their own, never
lost and never twice, whenever they come.
"""

import itertools
import json
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.client import Accepted, Conflict
from tests.journeys.audit import assert_sound
from tests.journeys.product import (
    Talk,
    asking,
    call,
    message_of,
    pause,
    run_of,
    step,
    text,
    text_of,
    together,
)


def users(messages: list[dict[str, Any]]) -> list[str]:
    """What people said, in the order of the conversation."""
    return [text_of(message) for message in messages if message["role"] == "user"]


def assert_each_is_answered_once(talk: Talk, said: list[str]) -> None:
    """Each message stands once in the conversation, the model has seen each, and none is marked as waiting."""
    assert_sound(talk)
    messages = talk.messages()
    assert sorted(users(messages)) == sorted(said)
    assert set(users(talk.asked()[-1])) == set(said)
    assert all(len(users(asked)) == len(set(users(asked))) for asked in talk.asked())
    assert not [message["id"] for message in messages if message["metadata"].get("queued")]
    assert messages[-1]["role"] == "assistant"


@pytest.mark.parametrize("many", [1, 10, 45])
def test_messages_in_flight_are_taken_in_together_in_order_before_the_next_model_step(
    begin: Callable[..., Talk], many: int
) -> None:
    talk = begin([step(text("thinking"), pause(1200)), step(text("now I know"))], message="0")
    talk.event("message.started")
    said = [talk.say(str(n)) for n in range(1, many + 1)]
    assert {accepted["command"]["state"] for accepted in said if accepted["command"]} == {"queued"}
    assert [accepted["run"] for accepted in said] == [None] * many
    assert all(accepted["message"]["metadata"] == {"queued": True} for accepted in said)
    everything = [str(n) for n in range(many + 1)]
    assert_each_is_answered_once(talk, everything)
    assert users(talk.messages()) == everything
    assert len(talk.runs()) == 1
    injected = [e for e in talk.of("message.completed") if e["data"].get("message", {}).get("role") == "user"]
    assert [e["data"]["message"]["id"] for e in injected] == list(map(message_of, talk.sent))
    command = said[-1]["command"]
    assert command is not None
    joined = talk.turnlog.command(command["id"])
    assert (joined["state"], joined.get("run_id")) == ("joined", talk.runs()[0]["id"])


def test_a_message_that_only_an_idle_thread_takes(begin: Callable[..., Talk]) -> None:
    talk = begin([step(text("thinking"), pause(1200)), step(text("so"))], message="0")
    talk.event("message.started")
    with pytest.raises(Conflict, match="running, queued or waiting"):
        talk.say("1", delivery="reject")
    with pytest.raises(Conflict, match="running, queued or waiting"):
        talk.turnlog.create_run(talk.id, "1", delivery="reject")
    assert users(talk.messages()) == ["0"]
    talk.end(talk.runs()[0]["id"])
    talk.end(run_of(talk.say("2", delivery="reject")))
    assert_each_is_answered_once(talk, ["0", "2"])


def test_messages_that_come_while_tools_run_stand_behind_the_results(begin: Callable[..., Talk]) -> None:
    script = [asking(call("c1", "slow"), call("c2", "slow")), step(text("done"))]
    talk = begin(script, {"slow": {"takes_ms": 700}}, "0")
    talk.event("tool.started", "c2")
    for n in range(1, 11):
        talk.say(str(n))
    assert_each_is_answered_once(talk, [str(n) for n in range(11)])
    roles = [message["role"] for message in talk.messages()]
    assert roles == ["user", "assistant", "tool", *["user"] * 10, "assistant"]


@pytest.mark.parametrize("seed", range(8))
def test_a_message_at_the_moment_of_finishing_is_taken_in_or_starts_a_run(
    begin: Callable[..., Talk], seed: int
) -> None:
    """The run ends after 150 ms or so; messages come from 60 ms before to 120 ms behind, some at once."""
    dice = random.Random(seed)
    talk = begin([step(text(f"a{n}"), pause(150)) for n in range(12)], message="0")
    talk.event("run.started")
    clock, said = threading.Event(), ["0"]
    for n in range(1, 6):
        clock.wait(dice.uniform(0.0, 0.06) + (0.09 if n == 1 else 0))
        words = [f"{n}.{k}" for k in range(dice.choice([1, 1, 3]))]
        together(*[lambda word=word: talk.say(word) for word in words])
        said += words
    assert_each_is_answered_once(talk, said)


@pytest.mark.parametrize("seed", range(4))
def test_messages_behind_each_quick_answer_are_all_answered_without_another_one(
    begin: Callable[..., Talk], seed: int
) -> None:
    """Each message is sent as soon as the end of the last run is seen, or a little before: the seam, many times."""
    dice = random.Random(100 + seed)
    talk = begin([step(text(f"a{n}")) for n in range(30)], message="0")
    said = ["0"]
    for n in range(1, 13):
        talk.event(dice.choice(["run.started", "message.completed", "usage.updated", "run.completed"]), count=1)
        talk.read(wait=dice.choice([0, 0.01, 0.05]))
        talk.say(str(n))
        said.append(str(n))
    assert_each_is_answered_once(talk, said)
    assert users(talk.messages()) == said


def test_three_messages_at_once_to_an_idle_thread_are_one_run_at_a_time_in_accepted_order(
    begin: Callable[..., Talk],
) -> None:
    talk = begin([step(text(f"a{n}")) for n in range(5)])
    accepted = together(*[lambda n=n: talk.turnlog.say(talk.id, str(n)) for n in range(3)])
    assert_each_is_answered_once(talk, ["0", "1", "2"])
    numbers = [int(message_of(one).rpartition("_c")[2]) for one in accepted]
    in_order = [message_of(one) for _, one in sorted(zip(numbers, accepted, strict=True), key=lambda pair: pair[0])]
    assert [message["id"] for message in talk.messages() if message["role"] == "user"] == in_order


@pytest.mark.parametrize(
    ("ending", "first"),
    [
        ("cancel", {"script": [step(text("x"), pause(5000))]}),
        ("stop", {"script": [step(text("x"), pause(5000))]}),
        ("failure", {"script": [step(text("x"), pause(700), {"type": "error", "status": 400, "detail": "no"})]}),
    ],
)
def test_joins_that_a_run_leaves_behind_become_a_run_in_their_accepted_place(
    begin: Callable[..., Talk], ending: str, first: dict[str, Any]
) -> None:
    script = [*first["script"], *[step(text(f"a{n}")) for n in range(9)]]
    talk = begin(script, message="0")
    talk.event("message.started")
    talk.say("1 join")
    talk.turnlog.create_run(talk.id, "2 run")
    talk.say("3 join")
    talk.turnlog.create_run(talk.id, "4 run")
    talk.say("5 join")
    if ending == "cancel":
        talk.turnlog.cancel(run_of(talk.sent[0]))
    elif ending == "stop":
        talk.turnlog.stop(talk.id)
    assert_sound(talk)
    # The oldest join is a run of its own and the later ones join that; the runs keep their places behind it.
    assert users(talk.messages()) == ["0", "1 join", "3 join", "5 join", "2 run", "4 run"]
    runs = talk.runs()
    assert [run["status"] for run in runs][1:] == ["completed"] * 3
    joined = [m["run_id"] for m in talk.messages() if text_of(m).endswith("join")]
    assert len(set(joined)) == 1


def test_runs_go_one_at_a_time_in_accepted_order(begin: Callable[..., Talk]) -> None:
    talk = begin([step(text(f"a{n}"), pause(20)) for n in range(20)])
    accepted = [talk.turnlog.create_run(talk.id, str(n)) for n in range(12)]
    assert_sound(talk)
    started = [event["run_id"] for event in talk.of("run.started")]
    assert started == [run_of(one) for one in accepted]
    assert users(talk.messages()) == [str(n) for n in range(12)]
    assert [e["data"]["state"] for e in talk.of("thread.status")] == ["running", "idle"]


def test_a_join_goes_to_the_run_in_flight_and_not_to_the_queue(begin: Callable[..., Talk]) -> None:
    talk = begin([step(text("x"), pause(800)), *[step(text("y"))] * 5], message="0")
    talk.event("message.started")
    queued: Accepted = talk.turnlog.create_run(talk.id, "later")
    talk.say("now")
    assert talk.turnlog.thread(talk.id)["queue"] == {"pending": 1, "runs": 1}
    assert_sound(talk)
    assert users(talk.messages()) == ["0", "now", "later"]
    assert users(talk.asked()[1]) == ["0", "now"]
    assert queued["run"] is not None


@pytest.mark.parametrize("words", [9_000, 60_000, 250_000])
def test_large_messages_in_flight_are_taken_in_whole(begin: Callable[..., Talk], words: int) -> None:
    """Twelve of them are more than one transaction holds."""
    letters = random.Random(words)
    said = ["".join(letters.choices("abcdefghijklmnopqrstuvwxyz0123456789!$%&/()=?#+", k=words)) for _ in range(12)]
    talk = begin([step(text("x"), pause(1500)), step(text("y"))], message="0")
    talk.event("message.started")
    for one in said:
        talk.say(one)
    assert_sound(talk)
    assert users(talk.messages()) == ["0", *said]
    assert len(talk.runs()) == 1


def test_messages_continue_and_runs_from_many_callers_are_each_answered_once(begin: Callable[..., Talk]) -> None:
    talk, dice = begin([step(text(f"a{n}"), pause(30)) for n in range(80)], message="start"), random.Random(3)
    numbers = itertools.count()

    def ask() -> Callable[[], Accepted]:
        words, way = f"{next(numbers)}", dice.choice(["join", "enqueue", "run"])
        if way == "run":
            return lambda: talk.turnlog.create_run(talk.id, words)
        return lambda: talk.turnlog.say(talk.id, words, delivery=way)  # type: ignore[arg-type]

    together(*[ask() for _ in range(24)])
    assert_sound(talk)
    assert sorted(users(talk.messages())) == sorted(["start", *[str(n) for n in range(24)]])
    commands = [event["data"]["command_id"] for event in talk.of("run.queued")]
    assert {talk.turnlog.command(command)["state"] for command in commands} == {"done"}
    assert json.dumps(talk.log).count("run.started") == len(commands)
