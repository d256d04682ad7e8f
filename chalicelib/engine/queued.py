"""Tools that code has queued: a model step whose answer was known beforehand (decision 0023).

It must not write or run anything. It guarantees that such a step is taken in alone, with its one call open and a place
kept for the result, so that from there on it is a step like any other: after a crash, for people, for the stops.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from chalicelib.domain.model import Call, Command, Message, Outcome
from chalicelib.domain.queueing import Draft
from chalicelib.engine import planning, sides
from chalicelib.engine.attempt import Attempt
from chalicelib.engine.ending import completed_call
from chalicelib.engine.stops import Cast


def taken_next(joins: Sequence[Command]) -> tuple[Command, ...]:
    """Of pending joins in order, those that one write may take in: the messages before a tool, or the tool alone."""
    tool = next((n for n, join in enumerate(joins) if join.is_call), len(joins))
    return tuple(joins[: tool or 1])


def begun(attempt: Attempt, cast: Cast, draft: Draft, now: int) -> Draft:
    """The step of a queued tool, on the draft that places its message last: its call is open, or closed if it cannot
    run.
    """
    message, head = draft.messages[-1], draft.after
    (call,) = (_row(attempt, message, part, head.run_steps + 1, now) for part in message.content)
    after = sides.stepped(
        cast,
        replace(head, run_steps=call.step, open_calls=message.place, messages=message.place + 1),
    )
    closed = () if call.outcome is None else (completed_call(head, call, now),)
    return replace(draft, after=after, facts=(*draft.facts, *closed), new_calls=(*draft.new_calls, call))


def _row(attempt: Attempt, message: Message, part: Mapping[str, Any], step: int, now: int) -> Call:
    call = Call(id=part["call_id"], run=message.run, step=step, name=part["name"], arguments=part["arguments"])
    fault = planning.unplayable(attempt.tools, call.name, call.arguments)
    return call if fault is None else replace(call, outcome=Outcome.ERROR, result=fault, ended_at=now)
