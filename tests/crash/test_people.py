"""Questions and approvals on the emulator: who decides first has decided, and nobody waits for nothing."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from chalicelib.domain.commands import AnswerQuestion, Decide
from chalicelib.domain.errors import AlreadyDecided
from tests.crash.audit import audit, log_rows
from tests.crash.residents import results
from tests.crash.scenarios import PEOPLE, call, step, text
from tests.crash.tap import Moment
from tests.crash.world import World

Worlds = Callable[[str], World]
ENDS = [step(text("Thank you."))] * 6


def waiting(world: World, *names: str, tools: Mapping[str, Any] = PEOPLE) -> None:
    """A run that waits on one call of each of these tools."""
    calls = [part for number, name in enumerate(names, 1) for part in call(f"c{number}", name)]
    world.create({"script": [step(*calls, stop="tool_calls"), *ENDS], "tools": dict(tools)})
    world.drain()
    assert world.head.waiting == "awaiting_human"


def types(world: World, *prefixes: str) -> list[str]:
    return [event["type"] for event in world.events() if event["type"].startswith(prefixes)]


def test_a_waiting_run_holds_no_lease_and_is_taken_by_no_wake_up(world: Worlds) -> None:
    at = world("a waiting run")
    waiting(at, "pay")
    head = at.head
    assert (head.lease_until, head.due_at, head.state) == (0, 0, "idle")
    at.house.queue.wake(at.thread, epoch=head.epoch, number=99)
    at.drain()
    assert at.head == head


def test_a_call_that_was_answered_runs_again_from_its_start_with_the_same_token(world: Worlds) -> None:
    at = world("an answered call")
    waiting(at, "ask")
    at.answer({"a": [1, 2.5]})
    at.settle()
    assert results(at) == {"c1": ("ok", {"a": [1, 2.5]})}
    assert len(at.guests.effects) == 2
    assert len({effect.token for effect in at.guests.effects}) == 1
    assert types(at, "tool.started") == ["tool.started"]
    assert audit(at) == []


def test_of_two_decisions_one_wins_and_a_later_one_is_told_so(world: Worlds) -> None:
    at = world("two decisions")
    waiting(at, "pay")
    (approval,) = at.asked("approval")
    other = at.process(salt="other")

    def reject() -> None:
        with at.tap.outside():
            other.people.decide(at.principal, at.thread.id, approval, Decide(approve=False, reason="no"), None)

    at.tap.at(len(at.tap.calls) + 2, Moment.BEFORE, reject)
    with pytest.raises(AlreadyDecided):
        at.house.people.decide(at.principal, at.thread.id, approval, Decide(approve=True), None)
    at.settle()
    assert results(at)["c1"][0] == "refused"
    assert "no" in results(at)["c1"][1]
    assert [effect.call_id for effect in at.guests.effects] == []
    assert audit(at) == []


def test_what_nobody_decides_in_time_is_given_up_by_the_sweep(world: Worlds) -> None:
    at = world("expiry")
    tools = {**PEOPLE, "soon": {"asks": {"question": "Now?", "expires_in": 30}}}
    waiting(at, "soon", tools=tools)
    (question,) = at.asked("question")
    at.sweep(20)
    assert at.head.waiting
    at.sweep(20)
    at.drain()
    assert results(at)["c1"][0] == "refused"
    (resolved,) = [event["data"] for event in at.events() if event["type"] == "question.resolved"]
    assert resolved["outcome"] == "expired"
    with pytest.raises(AlreadyDecided):
        at.house.people.answer_question(at.principal, at.thread.id, question, AnswerQuestion(answer=1), None)
    assert types(at, "run.")[-2:] == ["run.resumed", "run.completed"]
    assert audit(at) == []


def test_one_question_that_expires_leaves_the_other_waiting(world: Worlds) -> None:
    at = world("one of two expires")
    tools = {**PEOPLE, "soon": {"asks": {"question": "Now?", "expires_in": 30}}}
    waiting(at, "soon", "ask", tools=tools)
    at.sweep(40)
    at.drain()
    assert at.head.waiting == "awaiting_human"
    at.answer("b")
    at.settle()
    assert {name: outcome for name, (outcome, _) in results(at).items()} == {"c1": "refused", "c2": "ok"}
    assert audit(at) == []


def test_a_run_with_an_open_question_ends_with_it_resolved_when_it_is_cancelled(world: Worlds) -> None:
    at = world("cancelled while waiting")
    waiting(at, "ask", "pay")
    answer = at.cancel()
    assert (answer.status, answer.body["run"]["status"]) == (200, "cancelled")
    assert types(at, "question.", "approval.")[-2:] == ["question.resolved", "approval.resolved"]
    assert {outcome for outcome, _ in results(at).values()} == {"aborted"}
    assert at.asked("question") == at.asked("approval") == []
    assert audit(at) == []


def test_a_join_at_any_call_of_a_run_that_asks_never_waits_behind_the_question(world: Worlds) -> None:
    """It is taken in before the question is asked, or it supersedes it."""
    clean = world("no join")
    waiting(clean, "pay")
    superseded = 0
    for point in range(4, len(clean.tap.calls) + 1):
        at = world(f"a join at {point}")
        at.tap.at(point, Moment.BEFORE, lambda at=at: at.meanwhile(lambda: at.post("never mind")))  # type: ignore[misc]
        calls = call("c1", "pay")
        at.create({"script": [step(*calls, stop="tool_calls"), *ENDS], "tools": dict(PEOPLE)})
        at.drain()
        head = at.head
        assert not head.pending, point
        if not head.waiting:
            superseded += 1
            assert results(at)["c1"][0] == "refused", point
            assert types(at, "run.")[-1] == "run.completed", point
        else:
            at.cancel()
        assert audit(at) == [], point
    assert superseded


def test_what_a_call_logged_before_it_asked_is_logged_once(world: Worlds) -> None:
    at = world("logs, then asks")
    tools = {"noisy": {"asks": "Go on?", "logs": [{"name": "before"}], "on_retry": "again"}}
    waiting(at, "noisy", tools=tools)
    at.answer("yes")
    at.settle()
    assert [row["model"] for row in log_rows(at) if row["kind"] == "app"] == ["before"]
    assert results(at) == {"c1": ("ok", "yes")}
    assert audit(at) == []
