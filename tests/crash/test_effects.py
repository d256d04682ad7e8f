"""Effects under faults: each runs again with the same token until it is done, what it writes counts once, and what
fails for good is parked in sight.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from chalicelib.domain import effects as rules
from chalicelib.domain.errors import RetryLater
from chalicelib.domain.model import EffectState
from chalicelib.doors import runner
from chalicelib.engine.effects import Effect, effect
from chalicelib.engine.state import ThreadState
from tests.crash.audit import audit
from tests.crash.faults import FAULTS
from tests.crash.residents import POINTS, result, rows, run_tool, said, settled_in, struck, wrong
from tests.crash.world import SWEEP_SECONDS, Context, World

Worlds = Callable[[str], World]
MICROS = 1_000_000


@dataclass
class Notes:
    """What effects have been seen to do outside the house."""

    tokens: list[str] = field(default_factory=list)
    fails: int = 0
    """Tries that fail before one goes well."""
    error: BaseException = field(default_factory=lambda: RuntimeError("not today"))


def remind(notes: Notes) -> Effect:
    """Says something in the thread; fails as often as it is told to."""

    def run(state: ThreadState, text: str) -> None:
        notes.tokens.append(state.idempotency_token)
        state.inject_message(text, role="system")
        state.emit("reminded", {"of": text})
        if len(notes.tokens) <= notes.fails:
            raise notes.error

    return effect(name="remind")(run)


def schedules(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
    """A tool that schedules, and looks at what it has scheduled."""
    name = state.schedule_effect("remind", {"text": "Drink water."}, after_seconds=30)
    return [[one["id"] == name, one["name"], one["state"]] for one in state.get_scheduled_effects()]


def effects(world: World) -> list[Any]:
    with world.tap.outside():
        return world.house.store.effects(world.thread, after="", limit=100)


def play(world: World, sweeps: int = 20) -> None:
    """The run that schedules, and what is due after it."""
    run_tool(world)
    play_on(world, sweeps)


def play_on(world: World, sweeps: int = 20) -> None:
    """A sweep whenever an effect is due, until nothing is due any more."""
    for _ in range(sweeps):
        due = [row.due_at for row in effects(world) if row.due_at]
        if not due:
            return
        world.sweep(max(SWEEP_SECONDS, (min(due) - world.clock.now()) / MICROS))
        world.drain()
        world.redeliver_all()
    raise AssertionError(f"still due after {sweeps} sweeps: {effects(world)}")


def reminded(world: World) -> tuple[int, int]:
    """How often the thread was reminded: messages and events."""
    told = [event for event in world.events() if event["type"] == "custom.reminded"]
    return said(world).count(("system", "Drink water.")), len(told)


def test_an_effect_runs_outside_the_turn_once_its_time_has_come(world: Worlds) -> None:
    notes = Notes()
    its = settled_in(world("effect"), schedules, effects=[remind(notes)])
    play(its)
    assert result(its) == ("ok", [[True, "remind", "scheduled"]])
    (row,) = effects(its)
    assert notes.tokens == [f"{its.thread.token}.{row.id}"]
    assert (row.state, row.tries, row.due_at) == (EffectState.DONE, 1, 0)
    assert reminded(its) == (1, 1)
    assert len(its.guests.requests) == 2
    (told,) = rows(its, "handler")
    assert (told["model"], told["handler"], told["status"]) == ("remind", "effect", "success")
    assert wrong(audit(its)) == []


@pytest.mark.parametrize("every", POINTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_an_effect_that_dies_at_any_call_runs_again_and_counts_once(world: Worlds, fault: str, every: int) -> None:
    clean = settled_in(world("effect: clean"), schedules, effects=[remind(Notes())])
    clean.sweeps_count = True
    play(clean)
    for point in struck(clean, fault, every, first=5):
        notes = Notes()
        its = settled_in(world(f"effect: {fault} at {point}"), schedules, effects=[remind(notes)])
        FAULTS[fault](its.tap, point)
        play(its)
        assert reminded(its) == (1, 1), its.seed
        assert len(set(notes.tokens)) == 1, its.seed
        assert [row.state for row in effects(its)] == [EffectState.DONE], its.seed
        assert wrong(audit(its)) == [], its.seed


@pytest.mark.parametrize("error", [RuntimeError("not today"), SystemExit("not today")], ids=repr)
def test_a_failing_effect_is_tried_again_with_growing_pauses(world: Worlds, error: BaseException) -> None:
    notes = Notes(fails=2, error=error)
    its = settled_in(world("fails"), schedules, effects=[remind(notes)])
    play(its)
    assert len(notes.tokens) == 3
    assert len(set(notes.tokens)) == 1
    assert reminded(its) == (1, 1)
    told = [(row["status"], row["error"]) for row in rows(its, "handler")]
    assert told == [("error", f"{type(error).__name__}: not today")] * 2 + [("success", None)]


def test_an_effect_that_fails_for_good_is_parked_in_sight(world: Worlds) -> None:
    notes = Notes(fails=100)
    its = settled_in(world("parked"), schedules, effects=[remind(notes)])
    play(its)
    (row,) = effects(its)
    assert (row.state, row.tries, row.error) == (EffectState.PARKED, rules.TRIES, "RuntimeError: not today")
    assert len(notes.tokens) == rules.TRIES
    assert len(rows(its, "handler")) == rules.TRIES


def test_an_effect_whose_code_is_gone_is_parked_with_a_sentence(world: Worlds) -> None:
    its = settled_in(world("gone"), schedules, effects=[remind(Notes())])
    run_tool(its)
    settled_in(its)
    play_on(its)
    (row,) = effects(its)
    assert (row.state, row.error) == (EffectState.PARKED, "The agent no longer has an effect named 'remind'.")


def test_two_wake_ups_begin_one_try(world: Worlds) -> None:
    notes = Notes()
    its = settled_in(world("twice"), schedules, effects=[remind(notes)])
    run_tool(its)
    its.clock.sleep(40)
    (row,) = effects(its)
    for _ in range(2):
        with its.tap.outside():
            its.house.run_effect.run(its.thread, its.thread.effect(row.id), lambda: 900.0)
    assert len(notes.tokens) == 1


def test_a_wake_up_that_comes_with_too_little_time_is_given_back(world: Worlds) -> None:
    notes = Notes()
    its = settled_in(world("short"), schedules, effects=[remind(notes)])
    run_tool(its)
    its.clock.sleep(40)
    (row,) = effects(its)
    with its.tap.outside(), pytest.raises(RetryLater):
        its.house.run_effect.run(its.thread, its.thread.effect(row.id), lambda: 70.0)
    assert (notes.tokens, effects(its)[0].tries) == ([], 0)


@pytest.mark.parametrize("effect_id", ["", "eff_x", f"eff_{'a' * 20}_{'b' * 20}", 5, None])
def test_a_wake_up_for_an_effect_that_is_none_holds_no_work(world: Worlds, effect_id: Any) -> None:
    its = settled_in(world("none"), effects=[remind(Notes())])
    run_tool(its)
    body = {"v": 1, "kind": "effect", "org": its.thread.org, "thread": its.thread.id, "effect": effect_id}
    record = {"messageId": "m", "body": json.dumps(body), "attributes": {"MessageGroupId": "g"}}
    with its.tap.outside():
        answer = runner.run({"Records": [record]}, Context(), house=lambda: its.house)
    assert answer == {"batchItemFailures": []}


def test_a_try_is_not_begun_before_its_time(world: Worlds) -> None:
    notes = Notes()
    its = settled_in(world("early"), schedules, effects=[remind(notes)])
    run_tool(its)
    (row,) = effects(its)
    with its.tap.outside():
        its.house.run_effect.run(its.thread, its.thread.effect(row.id), lambda: 900.0)
    assert notes.tokens == []


def test_an_effect_that_is_taken_back_never_runs(world: Worlds) -> None:
    notes = Notes()
    seen: list[Any] = []

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        name = state.schedule_effect("remind", {"text": "Drink water."})
        seen.append(state.remove_scheduled_effect(name))
        seen.append(state.remove_scheduled_effect(name))
        seen.append(state.remove_scheduled_effect("eff_x"))
        return state.get_scheduled_effects()

    its = settled_in(world("back"), use, effects=[remind(notes)])
    play(its)
    assert (result(its), seen, notes.tokens) == (("ok", []), [True, False, False], [])


@pytest.mark.parametrize(
    ("wrong_one", "error"),
    [
        (lambda state: state.schedule_effect("unknown"), LookupError),
        (lambda state: state.schedule_effect("remind"), ValueError),
        (lambda state: state.schedule_effect("remind", {"text": 5}), ValueError),
        (lambda state: state.schedule_effect("remind", {"text": "x" * 9000}), ValueError),
        (lambda state: state.schedule_effect("remind", {"text": "x"}, at=1, after_seconds=1), ValueError),
        (lambda state: state.schedule_effect("remind", {"text": "x"}, after_seconds=float("nan")), ValueError),
        (lambda state: state.schedule_effect("remind", {"text": "x"}, after_seconds=1e12), ValueError),
    ],
)
def test_an_effect_that_cannot_be_is_refused_when_it_is_scheduled(
    world: Worlds, wrong_one: Callable[[ThreadState], Any], error: type[Exception]
) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        with pytest.raises(error):
            wrong_one(state)
        return "refused"

    its = settled_in(world("no"), use, effects=[remind(Notes())])
    run_tool(its)
    assert (result(its), effects(its)) == (("ok", "refused"), [])


def test_effects_of_effects_and_queued_messages_are_one_each(world: Worlds) -> None:
    """An effect that fails once has done these things already; its next try finds them."""
    tries: list[str] = []

    def chain(state: ThreadState) -> None:
        tries.append(state.schedule_effect("last"))
        state.queue_message("Are you there?")
        if len(tries) == 1:
            raise RuntimeError("once")

    def last(state: ThreadState) -> None:
        tries.append("last")

    its = settled_in(
        world("chain"),
        lambda state, arguments: state.schedule_effect("chain"),
        effects=[effect(name="chain")(chain), effect(name="last")(last)],
    )
    play(its)
    assert (len(set(tries)), tries.count("last")) == (2, 1)
    assert said(its).count(("user", "Are you there?")) == 1
    assert len([e for e in its.events() if e["type"] == "run.completed"]) == 2


def test_a_terminated_thread_takes_no_effect_and_runs_none(world: Worlds) -> None:
    notes = Notes()
    its = settled_in(world("terminated"), schedules, effects=[remind(notes)])
    run_tool(its)
    its.terminate()
    play_on(its)
    assert (notes.tokens, [row.state for row in effects(its)]) == ([], [EffectState.REMOVED])
