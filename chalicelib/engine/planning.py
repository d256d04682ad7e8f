"""What becomes of the calls that an answer asks for, before any of them runs: their rows, and which may start now.

It must not run anything or write anything. It guarantees that a call id is new in the thread, that arguments which do
not fit never reach a tool, and that a call which needs a person's word does not start without it.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import children as family
from chalicelib.domain import people, values
from chalicelib.domain.events import Fact
from chalicelib.domain.ids import QUEUED_CALL
from chalicelib.domain.model import Call, Child, ChildKind, Head, Inquiry, Outcome
from chalicelib.domain.queueing import Draft, then
from chalicelib.engine import children, fitting, playing, sessions
from chalicelib.engine.agent import Tool
from chalicelib.engine.attempt import Attempt
from chalicelib.engine.ending import completed_call
from chalicelib.engine.speech import AskedCall, Speech

#: Children that one write registers: two rows each beside those of their calls, of at most 90 actions.
CHILDREN_A_WRITE = 20
CUT = "The answer was cut by the output limit, so this call did not run."


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A call of an answer: its row, and its part in the message by the model's own reference."""

    ref: str
    call: Call

    @property
    def part(self) -> dict[str, Any]:
        """The tool_call part of the stored answer."""
        return {"type": "tool_call", "call_id": self.call.id, "name": self.call.name, "arguments": self.call.arguments}


@dataclass(frozen=True, kw_only=True)
class Begun:
    """Calls of a step that change in one write: those that start, and those that ask to be allowed first."""

    calls: tuple[Call, ...] = ()
    facts: tuple[Fact, ...] = ()
    inquiries: tuple[Inquiry, ...] = ()
    children: tuple[Child, ...] = ()
    made: tuple[Callable[[Head], Draft], ...] = ()
    """What makes each of the children, on the head on which it is written."""

    def plus(self, other: "Begun") -> "Begun":
        """Both together."""
        return Begun(
            calls=self.calls + other.calls,
            facts=self.facts + other.facts,
            inquiries=self.inquiries + other.inquiries,
            children=self.children + other.children,
            made=self.made + other.made,
        )

    def along(self, head: Head) -> Draft:
        """The rows and facts as a draft on a head."""
        draft = Draft(after=head, facts=self.facts, calls=self.calls, inquiries=self.inquiries)
        for make in self.made:
            draft = then(draft, make)
        return draft


def plan(attempt: Attempt, speech: Speech, *, step: int, taken: frozenset[str], now: int) -> list[Planned]:
    """The calls of an answer as rows: named uniquely, arguments checked, what cannot run already closed."""
    used, planned = set(taken), []
    for asked in speech.calls:
        call_id = _unique(asked, used, attempt.journal.run, step)
        used.add(call_id)
        planned.append(Planned(ref=asked.ref, call=_row(attempt, asked, speech, call_id, step, now)))
    return planned


def candidates(attempt: Attempt, calls: list[Call]) -> list[Call]:
    """The open calls whose turn it is: all of them when they may run in parallel, else the first."""
    open_calls = [c for c in calls if c.outcome is None]
    return open_calls if attempt.agent.parallel_tool_calls else open_calls[:1]


def begin(attempt: Attempt, calls: list[Call], head: Head, now: int) -> Begun:
    """Start what may start now; what needs a person's word first asks for it. `calls`: all of the step, in order."""
    begun = Begun()
    for call in candidates(attempt, calls):
        if call.waits or (call.started_at and not call.ready):
            continue
        tool, position = attempt.tools[call.name], calls.index(call) + 1
        if not call.ready and tool.needs_approval(dict(call.arguments)):
            begun = begun.plus(_asking(attempt, call, position, head, now))
        elif attempt.covers(tool.timeout_seconds) and len(begun.children) < CHILDREN_A_WRITE:
            beside = (*calls, *begun.calls)
            refused = playing.refusal(attempt, call, beside)
            begun = begun.plus(_starting(attempt, call, position, head, now, refused=refused, made=begun.children))
    return begun


def _asking(attempt: Attempt, call: Call, position: int, head: Head, now: int) -> Begun:
    inquiry = people.approval_of(call, attempt.ref.approval(call.run, call.step, position), now)
    return Begun(calls=(replace(call, waits=inquiry.id),), facts=(people.asked(head, inquiry),), inquiries=(inquiry,))


def _starting(
    attempt: Attempt, call: Call, position: int, head: Head, now: int, *, refused: str | None, made: tuple[Child, ...]
) -> Begun:
    """A call that starts, and the child that it makes. `refused`: why it does not; `made`: children of this write."""
    makes = attempt.tools[call.name].by_the_turn and not refused
    child = children.plan(attempt, call, position, now, made) if makes else refused
    if isinstance(child, str):
        closed = replace(call, outcome=Outcome.ERROR, result=child, ended_at=now)
        return Begun(calls=(closed,), facts=(completed_call(head, closed, now),))
    started = replace(call, started_at=call.started_at or now, ready=False)
    facts = () if call.started_at else (_started(head, call, now),)
    if child is None:
        return Begun(calls=(started,), facts=facts)
    told = functools.partial(_made, attempt, child, call, now)
    return Begun(calls=(started,), facts=facts, children=(child,), made=(told,))


def _made(attempt: Attempt, child: Child, call: Call, now: int, head: Head) -> Draft:
    """A child on the head on which it is written: a session has its number from there."""
    after, child = replace(head, children=head.children + 1), replace(child, side=head.side)
    if child.kind is ChildKind.THREAD:
        told = family.started(attempt.ref, child, head, now)
        return Draft(after=after, facts=(told,), children=(child,))
    placed = sessions.place(attempt, after, child, call.arguments["prompt"], now)
    told = family.started(attempt.ref, placed.children[0], head, now)
    return replace(placed, facts=(told, *placed.facts))


def _started(head: Head, call: Call, now: int) -> Fact:
    data = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
    return Fact(type="tool.started", data=data, at=now, run=head.run, attempt=head.run_attempt)


def _unique(asked: AskedCall, used: set[str], run: int, step: int) -> str:
    """The model's own id if it is one and new in the thread, else one that says where the call was asked."""
    wanted = values.cut_text(values.safe_text(asked.call_id or ""), 64, "") or f"call-{run}-{step}"
    if wanted not in used and not wanted.startswith(QUEUED_CALL):
        return wanted
    return next(name for n in range(2, 1000) if (name := f"{wanted}-{run}-{step}-{n}") not in used)


def _row(attempt: Attempt, asked: AskedCall, speech: Speech, call_id: str, step: int, now: int) -> Call:
    arguments, fault = read_call(attempt.tools, asked, speech)
    call = Call(id=call_id, run=attempt.journal.run, step=step, name=asked.name, arguments=arguments)
    return call if fault is None else replace(call, outcome=Outcome.ERROR, result=fault, ended_at=now)


def read_call(tools: Mapping[str, Tool], asked: AskedCall, speech: Speech) -> tuple[dict[str, Any], str | None]:
    """The arguments of a call as the model spelled it, and why it cannot run, if it cannot."""
    arguments, fault = values.parse_arguments(asked.text)
    if speech.stop is not None and speech.stop.reason == "length":
        fault = CUT
    elif fault is None or asked.name not in tools:
        fault = unplayable(tools, asked.name, arguments or {})
    return arguments or {}, fault


def unplayable(tools: Mapping[str, Tool], name: str, arguments: Mapping[str, Any]) -> str | None:
    """Why no tool can play this call, in words for the model."""
    if name not in tools:
        return f"There is no tool named {name!r}. Known tools: {', '.join(sorted(tools)) or 'none'}."
    return fitting.misfit(tools[name].parameters, arguments)
