"""Effects as their authors write them: code that runs outside of turns at a due time, at least once.

@effect(timeout_seconds=30)
def remind(state: ThreadState, text: str) -> None:
    '''Say something later.'''
    state.queue_message(text)

A tool schedules it with `state.schedule_effect("remind", {"text": "..."}, after_seconds=3600)`. What it returns goes
nowhere; what it raises is a failed try.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from chalicelib.domain import values
from chalicelib.domain.errors import InvalidRequest, NotFound, TooLarge
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import EFFECT_BYTES, EFFECT_DAYS
from chalicelib.domain.model import Effect as Row
from chalicelib.domain.model import EffectState
from chalicelib.engine.definitions import DefinitionError, named
from chalicelib.engine.fitting import misfit
from chalicelib.engine.schema import SchemaError, parameters_of
from chalicelib.engine.state import ThreadState

if TYPE_CHECKING:
    from chalicelib.engine.environment import Environment

#: A Lambda lives 900 s and needs a reserve to store what came of a try.
MAX_SECONDS = 840.0
DEFAULT_SECONDS = 60.0
MICROS = 1_000_000
DAY = 86_400 * MICROS
#: Effects that one reading of a thread brings.
LISTED = 100
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class Effect:
    """An effect of an agent. `run` takes the state and the checked arguments."""

    name: str
    parameters: Mapping[str, Any]
    run: Callable[[ThreadState, dict[str, Any]], Any]
    timeout_seconds: float = DEFAULT_SECONDS

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise DefinitionError(f"effect {self.name!r}: name must match {_NAME.pattern}")
        if not 0 < self.timeout_seconds <= MAX_SECONDS:
            raise DefinitionError(f"effect {self.name}: timeout_seconds must be above 0 and at most {MAX_SECONDS:.0f}")


@overload
def effect(function: Callable[..., Any], /) -> Effect: ...
@overload
def effect(
    *, name: str | None = None, timeout_seconds: float = DEFAULT_SECONDS
) -> Callable[[Callable[..., Any]], Effect]: ...
def effect(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    timeout_seconds: float = DEFAULT_SECONDS,
) -> Effect | Callable[[Callable[..., Any]], Effect]:
    """Make an effect of a function: its arguments are checked against its type hints, as a tool's are."""

    def make(f: Callable[..., Any]) -> Effect:
        try:
            shape = parameters_of(f)
        except SchemaError as error:
            raise DefinitionError(f"effect {named(f)}: {error}") from None

        def run(state: ThreadState, arguments: dict[str, Any]) -> Any:
            given = shape.convert(arguments)
            return f(state, **given) if shape.takes_state else f(**given)

        return Effect(name=name or f.__name__, parameters=shape.schema, run=run, timeout_seconds=timeout_seconds)

    return make(function) if function is not None else make


def check(agent: str, effects: Sequence[Effect]) -> None:
    """Raises DefinitionError for what is no effect, or has the name of another."""
    seen: set[str] = set()
    for one in effects:
        if not isinstance(one, Effect):
            raise DefinitionError(f"agent {agent}: effects: {named(one)} is none; decorate the function with @effect")
        if one.name in seen:
            raise DefinitionError(f"agent {agent}: effects: two are named {one.name}; give one another name")
        seen.add(one.name)


def planned(
    known: Sequence[Effect],
    name: str,
    arguments: Mapping[str, Any] | None,
    *,
    at: int | None,
    after: float | None,
    now: int,
    environment: "Environment",
) -> Row:
    """An effect as it will be stored, without its id. Raises NotFound, InvalidRequest, TooLarge."""
    found = next((one for one in known if one.name == name), None)
    if found is None:
        raise NotFound(f"This agent has no effect named {name!r}.")
    given = environment.safe(dict(arguments or {}))
    if fault := misfit(found.parameters, given, "effect"):
        raise InvalidRequest.at("arguments", fault)
    if (size := values.size(given)) > EFFECT_BYTES:
        raise TooLarge.at("arguments", f"has {size} bytes, the limit is {EFFECT_BYTES}")
    due = _due(at, after, now)
    return Row(id="", name=name, arguments=given, at=due, due_at=due, created_at=now)


def _due(at: int | None, after: float | None, now: int) -> int:
    if at is not None and after is not None:
        raise InvalidRequest.at("at", "give either `at` or `after_seconds`")
    if after is not None and not (isinstance(after, int | float) and math.isfinite(after)):
        raise InvalidRequest.at("after_seconds", "must be a number of seconds")
    if at is not None and (not isinstance(at, int) or isinstance(at, bool)):
        raise InvalidRequest.at("at", "must be an instant in whole microseconds")
    due = at if at is not None else now + int((after or 0.0) * MICROS)
    if due > now + EFFECT_DAYS * DAY:
        raise InvalidRequest.at("at", f"must be at most {EFFECT_DAYS} days ahead")
    return max(due, now)


def listed(ref: ThreadRef, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Effects that are to run or were given up, by their time."""
    shown = [row for row in rows if row.state in (EffectState.SCHEDULED, EffectState.PARKED)]
    return [_body(ref, row) for row in sorted(shown, key=lambda row: (row.at, row.id))]


def _body(ref: ThreadRef, row: Row) -> dict[str, Any]:
    return {
        "id": ref.effect(row.id),
        "name": row.name,
        "arguments": dict(row.arguments),
        "at": row.at,
        "state": row.state.value,
        "tries": row.tries,
        "created_at": row.created_at,
        **({"error": row.error} if row.error else {}),
    }
