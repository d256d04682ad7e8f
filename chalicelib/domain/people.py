"""What a call asks of people, as pure decisions: a question or an approval is asked once and resolved once (spec
section 8).

It must not know who resolves it: a person at a door, a message that takes its place, the clock, or the end of the run.
It guarantees that the row of the inquiry, the row of its call and the events say the same, because one function makes
all of them.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import values
from chalicelib.domain.events import Fact
from chalicelib.domain.limits import KB
from chalicelib.domain.model import Call, Head, Inquiry, InquiryKind, Outcome, Verdict
from chalicelib.domain.queueing import Draft

#: What a question, and its options, may take in the log, as JSON.
QUESTION_BYTES, OPTIONS_BYTES = 16 * KB, 8 * KB
#: What the model reads of a call that was not allowed, or not answered.
REFUSALS: Mapping[Verdict, str] = {
    Verdict.REJECTED: "The call was not approved, so it did not run.",
    Verdict.SUPERSEDED: "Nobody decided before the next message came, so the call was given up.",
    Verdict.EXPIRED: "Nobody decided in time, so the call was given up.",
}
ABORTED = "The call was aborted before it finished."


@dataclass(frozen=True, kw_only=True)
class Decision:
    """How an inquiry is resolved."""

    verdict: Verdict
    answer: Any = None
    by: str | None = None
    reason: str | None = None


def is_inquiry(waits: str) -> bool:
    """True for what a call waits for if that is a person."""
    return waits.startswith(("qst_", "apr_"))


def approval_of(call: Call, approval_id: str, now: int) -> Inquiry:
    """What a person is asked before a call may run."""
    return Inquiry(
        id=approval_id,
        kind=InquiryKind.APPROVAL,
        run=call.run,
        call_id=call.id,
        tool=call.name,
        arguments=call.arguments,
        arguments_sha256=fingerprint(call.arguments),
        created_at=now,
    )


def question_of(
    call: Call, question_id: str, question: Any, options: Iterable[Any], expires_in: float | None, now: int
) -> Inquiry:
    """What the code of a call asks. `expires_in`: seconds."""
    shown, _ = values.cut_value(values.safe(question), QUESTION_BYTES)
    choices, was_cut = values.cut_value(values.safe(list(options)), OPTIONS_BYTES)
    return Inquiry(
        id=question_id,
        kind=InquiryKind.QUESTION,
        run=call.run,
        call_id=call.id,
        tool=call.name,
        question=shown,
        options=() if was_cut else tuple(choices),
        created_at=now,
        expires_at=now + int(expires_in * 1_000_000) if expires_in else 0,
    )


def fingerprint(arguments: Any) -> str:
    """SHA-256 of arguments as canonical JSON: what a decision is about."""
    return hashlib.sha256(values.canonical(arguments).encode()).hexdigest()


def asked(head: Head, inquiry: Inquiry) -> Fact:
    """The event that tells of an inquiry."""
    data: dict[str, Any]
    if inquiry.kind is InquiryKind.APPROVAL:
        data = {
            "approval_id": inquiry.id,
            "call_id": inquiry.call_id,
            "tool": inquiry.tool,
            "arguments": inquiry.arguments,
            "arguments_sha256": inquiry.arguments_sha256,
        }
    else:
        data = {"question_id": inquiry.id, "question": inquiry.question, "call_id": inquiry.call_id}
        data |= {"options": list(inquiry.options)} if inquiry.options else {}
    data |= {"expires_at": inquiry.expires_at} if inquiry.expires_at else {}
    kind = f"{inquiry.kind}.requested"
    return Fact(type=kind, data=data, at=inquiry.created_at, run=inquiry.run, attempt=head.run_attempt)


def resolve(head: Head, inquiry: Inquiry, call: Call, decision: Decision, now: int) -> Draft:
    """The inquiry has its verdict, and its call may start, goes on, or is over."""
    row = replace(
        inquiry,
        verdict=decision.verdict,
        answer=decision.answer,
        by=decision.by,
        reason=decision.reason,
        decided_at=now,
    )
    after, settled = _consequence(call, decision, now)
    told = [fact for fact in (_resolved(row, now), settled) if fact is not None]
    return Draft(after=head, facts=tuple(told), calls=(after,), inquiries=(row,))


def resolve_all(head: Head, asked_by: Iterable[tuple[Inquiry, Call]], decision: Decision, now: int) -> Draft:
    """Several inquiries, with the calls that asked, have the same verdict."""
    drafts = [resolve(head, inquiry, call, decision, now) for inquiry, call in asked_by]
    return Draft(
        after=head,
        facts=tuple(fact for draft in drafts for fact in draft.facts),
        calls=tuple(call for draft in drafts for call in draft.calls),
        inquiries=tuple(inquiry for draft in drafts for inquiry in draft.inquiries),
    )


def _consequence(call: Call, decision: Decision, now: int) -> tuple[Call, Fact | None]:
    """The call after the decision, and what tells of its end if that is one."""
    free = replace(call, waits="")
    if decision.verdict is Verdict.APPROVED:
        return replace(free, ready=True), None
    if decision.verdict is Verdict.ANSWERED:
        return replace(free, ready=True, answers=(*call.answers, decision.answer)), None
    aborted = decision.verdict is Verdict.CANCELLED
    outcome, result = (Outcome.ABORTED, ABORTED) if aborted else (Outcome.REFUSED, refusal(decision))
    ended = replace(free, outcome=outcome, result=result, ended_at=now)
    data = {
        "call_id": call.id,
        "name": call.name,
        "outcome": outcome,
        "result": result,
        "duration_ms": max(0, (now - call.started_at) // 1000) if call.started_at else 0,
    }
    return ended, Fact(type="tool.completed", data=data, at=now, run=call.run)


def refusal(decision: Decision) -> str:
    """What the model reads when a call was refused."""
    said = REFUSALS[decision.verdict]
    return f"{said} Reason: {decision.reason}" if decision.reason else said


def _resolved(row: Inquiry, now: int) -> Fact:
    if row.kind is InquiryKind.APPROVAL:
        approved = row.verdict is Verdict.APPROVED
        reason = row.reason or (None if row.verdict in (Verdict.APPROVED, Verdict.REJECTED) else row.verdict)
        data: dict[str, Any] = {"approval_id": row.id, "decision": "approve" if approved else "reject"}
    else:
        reason = row.reason
        data = {"question_id": row.id, "outcome": row.verdict}
        data |= {"answer": row.answer} if row.verdict is Verdict.ANSWERED else {}
    data |= {"by": row.by} if row.by else {}
    data |= {"reason": reason} if reason else {}
    return Fact(type=f"{row.kind}.resolved", data=data, at=now, run=row.run)
