"""Something comes at the exact moment of any AWS call of a turn, those around its end included: none lost, none twice.

What comes is answered without a timer: no sweep runs, and nobody says anything more.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.commands import Delivery, Idempotency
from chalicelib.domain.errors import ThreadBusy
from tests.crash.audit import audit, told
from tests.crash.residents import runs, said
from tests.crash.scenarios import FAMILY, TWO_CALLS, step, text, tools
from tests.crash.tap import Moment
from tests.crash.world import World, say

Worlds = Callable[[str], World]
EVERY = [pytest.param(8, id="an eighth"), pytest.param(1, id="all", marks=pytest.mark.slow)]
LATE = "one more thing"

FAILS: Mapping[str, Any] = {"events": [{"type": "error", "status": 400, "detail": "no", "retryable": False}]}
TURNS: dict[str, dict[str, Any]] = {
    "an answer": {"script": [step(text("yes"))] * 6},
    "a failure": {"script": [FAILS, *[step(text("yes"))] * 6]},
    "two tools": {"script": [TWO_CALLS, *[step(text("yes"))] * 6], "tools": tools("surface")},
}


def _join(world: World) -> None:
    world.post(LATE)


def _enqueue(world: World) -> None:
    world.post(LATE, Delivery.ENQUEUE)


def _cancel(world: World) -> None:
    world.cancel()


def _cancel_and_join(world: World) -> None:
    world.post(LATE)
    world.cancel()


ARRIVALS: dict[str, Callable[[World], None]] = {
    "a join": _join,
    "a run": _enqueue,
    "a cancel": _cancel,
    "a join and a cancel": _cancel_and_join,
}


def _moments(worlds: Worlds, turn: str) -> list[tuple[int, Moment]]:
    """Before and after each call that the runner makes in this turn."""
    world = worlds(f"{turn}: clean")
    world.create(TURNS[turn])
    first = len(world.tap.calls) + 1
    world.drain()
    points = range(first, len(world.tap.calls) + 1)
    return [(point, moment) for point in points for moment in (Moment.BEFORE, Moment.AFTER)]


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize("turn", TURNS)
def test_what_arrives_at_any_call_of_a_turn_is_done_once_and_without_a_timer(
    world: Worlds, turn: str, arrival: str, every: int
) -> None:
    moments = _moments(world, turn)[list(ARRIVALS).index(arrival) % every :: every]
    print(f"{turn}, {arrival}: {[(point, moment.name) for point, moment in moments]}")
    wrong = [line for point, moment in moments for line in _arrival(world, turn, arrival, point, moment)]
    assert wrong == [], "\n".join(wrong)


def _arrival(worlds: Worlds, turn: str, arrival: str, point: int, moment: Moment) -> list[str]:
    world = worlds(f"{turn}: {arrival} {moment.value}, call {point}")
    world.create(TURNS[turn])
    world.tap.at(point, moment, lambda: world.meanwhile(lambda: ARRIVALS[arrival](world)))
    world.drain()
    found = [*audit(world), *_said(world), *_cancelled(world)]
    if not world.tap.struck:
        found.append("nothing arrived")
    return [f"{world.seed} ({world.tap.calls[point - 1]}): {line}" for line in found]


def _said(world: World) -> list[str]:
    """Each message stands once, in the order of its acceptance, and no longer as queued; a late one was answered."""
    shown = told(world)
    asked = [m for m in shown["messages"] if m["role"] == "user"]
    words = [m["content"][0]["text"] for m in asked]
    expected = ["hello", *[LATE] * sum(answer.body.get("message") is not None for answer in world.answers[1:])]
    found = [] if words == expected else [f"said {words}, not {expected}"]
    found += [f"{m['id']} is still marked as queued" for m in asked if "queued" in m["metadata"]]
    if LATE in words:
        heard = [_heard(request.messages) for request in world.guests.requests]
        found += [f"the model was sent it {times} times" for times in heard if times > 1]
        found += [] if heard[-1:] == [1] else ["the model was not sent it"]
        last = list(shown["runs"].values())[-1]
        if last["status"] == "completed" and shown["messages"][-1]["role"] != "assistant":
            found.append("it was not answered")
    return found


def _heard(messages: Any) -> int:
    return sum(part.get("text") == LATE for message in messages for part in message["content"])


def _cancelled(world: World) -> list[str]:
    """After a 202 the run ends cancelled; any other run ends as it would."""
    first = next(iter(told(world)["runs"].values()))
    accepted = any(answer.status == 202 for answer in world.answers)
    if accepted and first["status"] != "cancelled":
        return [f"the cancel was accepted, and the run ended {first['status']}"]
    return []


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
@pytest.mark.parametrize("point", [1, 2, 3])
def test_messages_to_an_idle_thread_that_come_at_once_are_one_run_in_accepted_order(
    world: Worlds, point: int, moment: Moment
) -> None:
    this = world(f"at once {moment.value}, call {point}")
    this.create({"script": [step(text("yes"))] * 6}, text=None)
    start = len(this.tap.calls)
    this.tap.at(start + point, moment, lambda: this.meanwhile(lambda: [this.post("m10"), this.post("m11")]))
    this.post("m12")
    this.drain()
    assert audit(this) == []
    assert this.tap.struck
    accepted = [answer.body["message"]["content"][0]["text"] for answer in _by_command(this)]
    seen = [m["content"][0]["text"] for m in this.guests.requests[-1].messages if m["role"] == "user"]
    assert seen == accepted
    assert sorted(seen) == ["m10", "m11", "m12"]
    assert len(told(this)["runs"]) == 1


def _by_command(world: World) -> list[Any]:
    said = [answer for answer in world.answers if answer.body.get("command")]
    return sorted(said, key=lambda answer: int(answer.body["command"]["id"].rpartition("_")[2]))


# -- a message that only an idle thread takes


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("turn", TURNS)
def test_a_message_that_only_an_idle_thread_takes_is_refused_or_starts_a_run_at_any_call(
    world: Worlds, turn: str, every: int
) -> None:
    for point, moment in _moments(world, turn)[::every]:
        its = world(f"{turn}: only if idle, {moment.value} {point}")
        its.create(TURNS[turn])
        its.tap.at(point, moment, lambda at=its: at.meanwhile(lambda: _asks_politely(at)))  # type: ignore[misc]
        its.drain()
        taken = its.answers[1:]
        assert (len(runs(its)), audit(its)) == (1 + len(taken), []), point
        assert [text for role, text in said(its) if role == "user"] == ["hello", *[LATE] * len(taken)], point


def _asks_politely(world: World) -> None:
    before = world.head
    try:
        world.post(LATE, Delivery.REJECT)
    except ThreadBusy:
        assert before.run, "refused by an idle thread"
        assert world.head.commands == before.commands
    else:
        assert not before.run, "taken by a busy thread"


def test_what_was_taken_once_is_answered_again_by_its_key_though_the_thread_is_busy(world: Worlds) -> None:
    its = world("only if idle, twice")
    its.create({"script": [step(text("yes"))] * 6}, text=None)
    asked, key = say(LATE, Delivery.REJECT), Idempotency(key="k", fingerprint="f")
    with its.tap.outside():
        first, second = (its.house.accept.post_message(its.principal, its.thread.id, asked, key) for _ in range(2))
        with pytest.raises(ThreadBusy):
            its.house.accept.post_message(its.principal, its.thread.id, asked, replace(key, key="another"))
    assert (first.status, second.status, second.replayed) == (201, 200, True)
    assert first.body["run"]["id"] == second.body["run"]["id"]


# -- a run takes no further step: what comes during its last one is not placed behind it, where nobody would answer it


def _with_limit(world: World, steps: int, *, last_step: Callable[[], object]) -> World:
    world.house.agents["scripted"] = replace(world.house.agents["scripted"], max_steps=steps)
    world.guests.while_asked = lambda count: world.meanwhile(last_step) if count == steps else None
    return world


def test_a_message_that_comes_during_the_last_step_of_a_run_starts_its_own(world: Worlds) -> None:
    its = world("at the limit")
    _with_limit(its, 1, last_step=lambda: its.post(LATE))
    its.create({"script": [step(text("yes"))] * 6})
    its.drain()
    assert said(its) == [("user", "hello"), ("assistant", "yes"), ("user", LATE), ("assistant", "yes")]
    assert ([status for status, _, _ in runs(its)], audit(its)) == (["completed", "completed"], [])


def test_children_that_end_during_the_last_step_of_a_run_are_heard_by_another(world: Worlds) -> None:
    its = world("children at the limit")
    _with_limit(its, 2, last_step=its.drain)
    its.create(FAMILY)
    its.drain()
    heard = [str(request.messages) for request in its.guests.requests[-1:]]
    assert [all(f"kid {number} is done" in one for number in (1, 2)) for one in heard] == [True]
    assert ([steps for _, _, steps in runs(its)][:1], len(runs(its)), audit(its)) == ([2], 2, [])
