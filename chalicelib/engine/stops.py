"""What follows a model step: another step, the other side's turn, or the end of the run. Pure: no row, no clock.

It must not know how anything is stored. It guarantees that the same stored step is followed by the same thing, whoever
asks and how often, so that an attempt which takes a run up after a crash goes the way that the first one would have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.domain.model import Outcome, RunStatus
from chalicelib.engine.prompts import MAX_TURNS, SIDE_A, SIDE_B, Side


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Who plays: the sides by name, one of them for an `ai_human` agent."""

    sides: Mapping[str, Side]
    max_turns: int = MAX_TURNS

    @property
    def two_sided(self) -> bool:
        """True if two sides take turns in a run."""
        return len(self.sides) == 2

    def other(self, side: str) -> str:
        """The side that has the turn after this one: itself if it is alone."""
        return (SIDE_B if side == SIDE_A else SIDE_A) if self.two_sided else side

    def speaker(self, stored: str, *, begins: bool = False, hears: str = "") -> str:
        """The side that has the turn. `stored`: the side on the head, "" at first. `begins`: a run does, and whatever
        began it, it is no turn of a human's. `hears`: the side that this is for, if it is for one.
        """
        side = next((name for name in (hears, stored) if name in self.sides), SIDE_A)
        return self.other(side) if begins and self.sides[side].human else side


@dataclass(frozen=True, kw_only=True)
class Next:
    """What follows. No `reason`: the run goes on, with `side` in its turn."""

    side: str
    passes: bool = False
    """The turn of the side is over, and `side` has the next one."""
    reason: str = ""
    status: RunStatus = RunStatus.COMPLETED
    gives_way: bool = False
    """This end gives way to messages that came meanwhile (spec section 3, `delivery`)."""
    said: str | None = None
    """What the side says by a result of its stop tool."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """A finished call of the step."""

    name: str
    outcome: str
    content: Any


def before_step(cast: Cast, side: str, *, steps: int, limit: int) -> Next | None:
    """Why the side takes no further step, or None. `steps`: of this turn."""
    if cast.sides[side].human:
        return Next(side=side, reason="awaiting_human")
    return Next(side=side, reason="max_steps") if steps >= limit else None


def after_answer(cast: Cast, side: str, *, turns: int) -> Next:
    """What follows an answer without calls. `turns`: taken in this run before it."""
    if not cast.sides[side].stop_on_response:
        return Next(side=side)
    if cast.two_sided:
        return _passed(cast, side, turns)
    return Next(side=side, reason="stop_on_response", gives_way=True)


def after_calls(cast: Cast, side: str, results: Sequence[Result], *, turns: int) -> Next:
    """What follows the results of a step: only calls that succeeded stop anything, and a failure stops first."""
    rules, done = cast.sides[side], [result for result in results if result.outcome == Outcome.OK]
    names = {result.name for result in done}
    if rules.session_fail in names:
        return Next(side=side, reason="session_fail", status=RunStatus.FAILED)
    if rules.session_stop in names:
        return Next(side=side, reason="session_stop")
    stop = next((result for result in done if result.name == rules.stop_tool), None)
    if stop is None:
        return Next(side=side)
    said = _said(stop.content, rules.response_property)
    if cast.two_sided:
        return _passed(cast, side, turns, said)
    return Next(side=side, reason="stop_tool", said=said)


def _passed(cast: Cast, side: str, turns: int, said: str | None = None) -> Next:
    then = cast.other(side)
    if cast.sides[then].human:
        return Next(side=then, passes=True, reason="awaiting_human", said=said)
    reason = "max_turns" if turns + 1 >= cast.max_turns else ""
    return Next(side=then, passes=True, reason=reason, said=said)


def _said(content: Any, response_property: str | None) -> str | None:
    """The property as text; None if the result has none."""
    if response_property is None or not isinstance(content, Mapping):
        return None
    value = content.get(response_property)
    return None if value is None else str(value)
