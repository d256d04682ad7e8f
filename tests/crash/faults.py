"""The faults that strike a schedule, and which of its calls they strike: the process dies, or an answer is lost."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.audit import audit
from tests.crash.scenarios import Scenario
from tests.crash.tap import Moment, Tap, lose_answer
from tests.crash.world import World

Worlds = Callable[[str], World]
#: `make test` strikes some points, others of each scenario for each fault. In `make test-slow` the process dies before
#: and after every call; answers are lost at every third, at others for each fault.
SOME, THIRD = 40, 3


def _dies_before(tap: Tap, point: int) -> None:
    tap.at(point, Moment.BEFORE, tap.die)


def _dies_after(tap: Tap, point: int) -> None:
    tap.at(point, Moment.AFTER, tap.die)


def _sent_again(tap: Tap, point: int) -> None:
    """The answer is lost on its way to the SDK, which sends the request again by itself."""
    tap.at(point, Moment.ANSWERED, lambda: 0)


def _sent_again_then_dies(tap: Tap, point: int) -> None:
    tap.at(point, Moment.ANSWERED, lambda: 0)
    tap.at(point, Moment.AFTER, tap.die)


def _answer_lost(tap: Tap, point: int) -> None:
    """The answer is lost for good: whoever called must send it again, or live without it."""
    tap.at(point, Moment.AFTER, lose_answer)


FAULTS: dict[str, Callable[[Tap, int], None]] = {
    "dies before": _dies_before,
    "dies after": _dies_after,
    "sent again": _sent_again,
    "sent again, then dies": _sent_again_then_dies,
    "answer lost": _answer_lost,
}
#: Of schedules that are short: one point in five, or all of them.
EVERY = [pytest.param(5, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]
POINTS = [pytest.param(SOME, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]

_clean: dict[str, tuple[list[str], Any]] = {}


def clean(worlds: Worlds, scenario: Scenario) -> tuple[list[str], Any]:
    """Calls and outcome of a scenario without a fault; played once a test process."""
    if scenario.name not in _clean:
        world = worlds(f"{scenario.name}: clean")
        scenario.play(world)
        assert audit(world) == []
        assert world.sweeps == scenario.sweeps
        _clean[scenario.name] = (list(world.tap.calls), scenario.outcome(world))
    return _clean[scenario.name]


def stride(fault: str, every: int) -> int:
    """How far apart the points of a fault are, where `every` is asked for."""
    return every if fault in ("dies before", "dies after") else max(every, THIRD)


def struck(worlds: Worlds, scenario: Scenario, fault: str, every: int, offset: int) -> list[str]:
    """What is wrong after the fault at each point in turn that `every` and `offset` choose."""
    calls, outcome = clean(worlds, scenario)
    every = stride(fault, every)
    points = range(scenario.first + offset % every, len(calls) + 1, every)
    print(f"{scenario.name}, {fault}: {len(points)} of {len(calls)} calls, {list(points)}")
    return [line for point in points for line in _faults(worlds, scenario, fault, point, calls, outcome)]


def _faults(worlds: Worlds, scenario: Scenario, fault: str, point: int, calls: list[str], outcome: Any) -> list[str]:
    """What is wrong after one fault at one call."""
    world = worlds(f"{scenario.name}: {fault} at {point}")
    FAULTS[fault](world.tap, point)
    scenario.play(world)
    found = audit(world)
    if world.sweeps > scenario.sweeps + 2:
        found.append(f"{world.sweeps} sweeps came before all was done")
    if not world.tap.struck or world.tap.calls[:point] != calls[:point]:
        found.append(f"the schedule was not repeated: {world.tap.calls}")
    if (after := scenario.outcome(world)) != outcome:
        found.append(f"the outcome is another:\n      {after}\n      {outcome}")
    return [f"{world.seed} ({calls[point - 1]}): {line}" for line in found]
