"""Children of a thread as pure decisions: what is told when one starts, and what becomes of its report.

It must not read, create threads or know tools. It guarantees that a report is told once: the write that tells it takes
it out of the inbox, and what comes from a child that the parent has closed by itself is dropped.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import queueing, values
from chalicelib.domain.events import Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import KB
from chalicelib.domain.limits import LIVE as LIVE  # who makes children reads it beside DEPTH
from chalicelib.domain.model import Call, Child, ChildKind, Head, Outcome, Report, Reporting, ReportKind
from chalicelib.domain.queueing import Draft

#: Spec section 10: threads above a child.
DEPTH = 5
#: Of what a child has said, in the message or the result that tells its parent.
RESULT_BYTES = 16 * KB
#: Reports that one write takes in: a message, its number and the row of the inbox each, of at most 90 actions.
REPORTS_A_WRITE = 20
COMPLETED, CANCELLED = "completed", "cancelled"

Heard = tuple[Report, Child]
"""A report, with the row of the child that it comes from."""


@dataclass(frozen=True, kw_only=True)
class Parent:
    """Where a new thread hangs: what its head and its about row say of it."""

    ref: ThreadRef
    child: Child
    depth: int


def reference(run: int, step: int, position: int) -> str:
    """Name of the child that a call makes: the call at that position of a model step."""
    return f"sub-{run}-{step}-{position}"


def started(ref: ThreadRef, child: Child, head: Head, now: int) -> Fact:
    """`child.started`, told with the call that makes it."""
    data: dict[str, Any] = {"reference_id": child.reference, "kind": child.kind, "name": child.name}
    data |= {"title": child.title} if child.title else {}
    if child.kind is ChildKind.THREAD:
        data["thread_id"] = ThreadRef(ref.org, child.token).id
    else:
        data["run_id"] = ref.run(child.run)
    data["blocking"] = child.blocking
    return Fact(type="child.started", data=data, at=now, run=head.run, attempt=head.run_attempt)


def hear(ref: ThreadRef, head: Head, heard: Iterable[Heard], *, nonce: str, now: int, silently: bool = False) -> Draft:
    """Reports become events, and messages of those that speak to the parent (`silently`: of none)."""
    draft = Draft(after=head)
    for number, (report, child) in enumerate(heard):
        told = _told(draft.after, report, child, now)
        draft = replace(draft, facts=draft.facts + told, heard=(*draft.heard, report.key))
        if speaks(report, child) and not silently:
            said = queueing.place_silently(
                ref,
                draft.after,
                content=({"type": "text", "text": message_text(report, child)},),
                child=projection(replace(child, status=report.outcome or child.status)),
                side=child.side,
                nonce=f"{nonce}.{number}",
                now=now,
            )
            draft = replace(
                draft,
                after=said.after,
                facts=draft.facts + said.facts,
                commands=draft.commands + said.commands,
                messages=draft.messages + said.messages,
            )
    return draft


def speaks(report: Report, child: Child) -> bool:
    """True if the parent is to be told in a message, and so has to go on."""
    if child.muted:
        return False
    if report.kind is ReportKind.OUTCOME:
        return child.reporting is Reporting.IMPLICIT and not child.blocking
    return report.kind is ReportKind.NOTE


def settled(call: Call, report: Report, now: int) -> Call:
    """A call that waited for its child, with the outcome as its result."""
    outcome = Outcome.OK if report.outcome == COMPLETED else Outcome.ERROR
    result = {"reference_id": report.reference, "outcome": report.outcome, "result": report.result}
    return replace(call, waits="", outcome=outcome, result=result, ended_at=now)


def given_up(head: Head, child: Child, now: int) -> tuple[Child, Fact]:
    """A child of a call that is given up: it is told as cancelled, and has to be ended."""
    row = replace(child, status=CANCELLED, muted=True)
    return row, _completed(head, child, CANCELLED, None, now)


def message_text(report: Report, child: Child) -> str:
    """What the parent's model reads."""
    name = f"{child.name} ({child.reference})"
    if report.kind is ReportKind.NOTE:
        return f"Subagent {name} says:\n{_text(report.result)}"
    said = f":\n{_text(report.result)}" if report.result not in (None, "") else "."
    return f"Subagent {name} has ended: {report.outcome}{said}"


def projection(child: Child) -> dict[str, Any]:
    """What a message that comes from a child carries (spec section 9), without the prefix `subagent_`."""
    return {
        "id": child.reference,
        "name": child.name,
        "title": child.title,
        "status": child.status,
        "relationship": child.reporting.value,
        "blocking": child.blocking,
    }


def cut_result(value: Any) -> Any:
    """A result as it is told to the parent."""
    return values.cut_value(values.safe(value), RESULT_BYTES)[0]


def wakes(heard: Sequence[Heard]) -> bool:
    """True if one of these makes the parent go on."""
    return any(speaks(report, child) for report, child in heard)


def _told(head: Head, report: Report, child: Child, now: int) -> tuple[Fact, ...]:
    if child.muted:
        return ()
    if report.kind is ReportKind.OUTCOME:
        return (_completed(head, child, report.outcome, report.result, now),)
    if report.kind is ReportKind.LABEL:
        data = {"reference_id": child.reference, "status": child.status, "label": child.label}
        return (Fact(type="child.updated", data=data, at=now),)
    return ()


def _completed(head: Head, child: Child, outcome: str, result: Any, now: int) -> Fact:
    data = {"reference_id": child.reference, "outcome": outcome}
    data |= {"result": result} if result is not None else {}
    return Fact(type="child.completed", data=data, at=now)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else values.dumps(value)
