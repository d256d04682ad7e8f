"""How runs and threads end, as pure decisions: completed, failed, cancelled, withdrawn, terminated, deleted.

It goes on where `domain.queueing` stops and must not know who ends what. It guarantees one terminal event a run, that
the same write names the run that goes next (or brings the thread to rest), and that a child which comes to rest reports
to its parent with it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import costs, wire
from chalicelib.domain.events import Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Child, Command, CommandState, Head, Message, ModelSpent, Report, RunStatus, State
from chalicelib.domain.queueing import (
    AT_ONCE,
    CANCEL_GRACE,
    Draft,
    StaleHead,
    change_state,
    free_joins,
    in_flight,
    no_run,
    promote,
    run_queued,
    with_promoted,
)

#: What stands below a tombstone is taken away this long after it: requests that had read the living head are over.
PURGE_DELAY = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ends. `first_queued`: the run after the one that is named next, 0 if there is none."""

    status: RunStatus
    reason: str
    error: Mapping[str, Any] | None = None
    label: str | None = None
    answer: str | None = None
    """What the run says in the end: told to the parent of a child."""
    finished_calls: tuple[str, ...] = ()


def end(
    ref: ThreadRef,
    head: Head,
    command: Command,
    ending: Ending,
    *,
    promoted: Command | None,
    first_queued: int,
    now: int,
    balance: tuple[ModelSpent, ...] = (),
    follow: Callable[[Head], Draft] | None = None,
) -> Draft:
    """The run in flight ends; the same write promotes the oldest join it leaves behind and names the next run.

    `follow` names it where another run is parked (`domain.sessions`), on the head without a run in flight.

    `balance` is what stands on the row of the run that ended last (`Head.balance_at`).

    `promoted` is the oldest pending join of this run, if it leaves any. `first_queued` is the number of the second run
    in the queue (the promoted one not counted), 0 if there is none.
    """
    row = replace(
        command,
        state=CommandState.DONE,
        status=ending.status,
        reason=ending.reason,
        error=ending.error,
        label=ending.label,
        cancelled_by=head.cancel,
        attempts=head.run_attempt,
        steps=head.run_steps,
        usage=head.run_usage,
        balance=costs.so_far(balance, head, command.model),
        started_at=head.run_started_at,
        ended_at=now,
        first=head.run_first,
        last=head.messages,
    )
    facts = [terminal(row, ending, now, head.run_attempt)]
    if ending.status is RunStatus.COMPLETED:
        facts.insert(0, _done(row, now, head.run_attempt))
    rows = [row]
    after = replace(head, balance_at=row.number)
    if promoted is not None:
        own = promote(promoted, (*command.joins, *free_joins(head)))
        rows.append(own)
        facts += run_queued(ref, own, now)
        after = with_promoted(replace(after, free_pending=0, free_from=after.commands + 1), own)
    sessions, told = _session_over(row, result_of(ending), now)
    facts += told
    if follow is not None:
        named = follow(no_run(after))
        return replace(named, facts=(*facts, *named.facts), commands=(*rows, *named.commands), children=sessions)
    waiting = {head.first_queued, first_queued, promoted.number if promoted else 0} - {0}
    after, status = _name_next(after, waiting, ending, now)
    report = None if after.run else _report(after, row, ending, now)
    return Draft(after=after, facts=(*facts, *status), commands=tuple(rows), children=sessions, report=report)


def end_queued(
    ref: ThreadRef,
    head: Head,
    command: Command,
    *,
    reason: str,
    promoted: Command | None,
    first_queued: int,
    now: int,
) -> Draft:
    """A run that has not started ends cancelled; its message stays in the conversation, and the oldest join bound to it
    becomes a run in its place. `first_queued`: the queue's new first, the promoted one not counted.
    """
    row, messages, facts = withdraw_run(ref, head, command, reason=reason, now=now)
    sessions, told = _session_over(row, None, now)
    after = replace(head, queued=head.queued - 1, first_queued=first_queued, messages=head.messages + len(messages))
    ended = Draft(after=after, facts=(*facts, *told), commands=(row,), messages=messages, children=sessions)
    if promoted is None:
        return ended
    own = promote(promoted, command.joins)
    return replace(
        ended,
        after=with_promoted(after, own),
        facts=(*ended.facts, *run_queued(ref, own, now)),
        commands=(row, own),
    )


def withdraw_run(
    ref: ThreadRef, head: Head, command: Command, *, reason: str, now: int
) -> tuple[Command, tuple[Message, ...], tuple[Fact, ...]]:
    """Row, placed message and facts of a run that ends before it started."""
    has_message = command.content is not None and command.place == 0
    place = head.messages + 1 if has_message else command.place
    messages = (wire.user_message(ref, command, place=place, run=command.run),) if has_message else ()
    row = replace(
        command,
        content=None,
        place=place,
        state=CommandState.WITHDRAWN,
        status=RunStatus.CANCELLED,
        reason=reason,
        ended_at=now,
    )
    ending = Ending(status=RunStatus.CANCELLED, reason=reason)
    return row, messages, (terminal(row, ending, now, 0),)


def withdraw_all(ref: ThreadRef, head: Head, commands: tuple[Command, ...], *, reason: str, now: int) -> Draft:
    """Queued runs and pending joins are taken back, in order; what was said stays in the conversation, unanswered."""
    rows: list[Command] = []
    messages: list[Message] = []
    facts: list[Fact] = []
    sessions: list[Child] = []
    at = head
    for command in commands:
        if command.is_pending_join:
            taken = replace(command, state=CommandState.WITHDRAWN, place=at.messages + 1)
            message = wire.user_message(ref, taken, place=taken.place, run=0)
            placed: tuple[Message, ...] = (message,)
            rows.append(replace(taken, content=None))
            facts.append(Fact(type="message.completed", data={"message": wire.message_body(ref, message)}, at=now))
        else:
            row, placed, told = withdraw_run(ref, at, command, reason=reason, now=now)
            over, of_session = _session_over(row, None, now)
            rows.append(row)
            facts += (*told, *of_session)
            sessions += over
        messages += placed
        at = replace(at, messages=at.messages + len(placed))
    joins = sum(1 for c in commands if c.is_pending_join)
    queued = head.queued - (len(commands) - joins)
    pending = head.pending - joins
    free = sum(1 for c in commands if c.is_pending_join and c.number >= head.free_from)
    after = replace(
        at,
        queued=queued,
        first_queued=head.first_queued if queued else 0,
        pending=pending,
        first_pending=head.first_pending if pending else 0,
        free_pending=head.free_pending - free,
    )
    return Draft(
        after=after,
        facts=tuple(facts),
        commands=tuple(rows),
        messages=tuple(messages),
        children=tuple(sessions),
    )


def terminate(head: Head, now: int) -> Draft:
    """The thread takes no more work, for good. A run that is in flight or queued has to be ended by what follows."""
    told = Fact(type="thread.terminated", data={}, at=now)
    terminated = replace(head, terminated_at=now)
    if head.children:
        terminated = _closing(terminated)
    if head.run or head.queued:
        return Draft(after=terminated, facts=(told,))
    after, status = change_state(terminated, State.IDLE, cancel_reason(terminated), now)
    key = f"{head.reference}.terminated"
    report = Report(key=key, reference=head.reference, outcome="terminated", at=now) if head.parent else None
    return Draft(after=after, facts=(told, *status), report=report)


def left_over(head: Head) -> Head:
    """A terminated thread with work that waits still: it has to be taken back."""
    return _closing(head) if head.terminated_at and (head.queued or head.pending) else head


def _closing(head: Head) -> Head:
    return replace(head, closing=True, due_at=AT_ONCE)


def tombstone(head: Head, total_cost: int, now: int) -> Draft:
    """What is left of a deleted thread: its numbers, by which its rows are found, and what it has cost. Whoever held
    its lease finds another head.
    """
    after = replace(
        no_run(head),
        state=State.IDLE,
        since=now,
        reason=None,
        queued=0,
        first_queued=0,
        pending=0,
        first_pending=0,
        free_pending=0,
        parked=0,
        closing=False,
        deleted_at=now,
        total_cost=total_cost,
        due_at=now + PURGE_DELAY,
    )
    key = f"{head.reference}.deleted"
    report = Report(key=key, reference=head.reference, outcome="terminated", at=now) if head.parent else None
    return Draft(after=after, report=report)


def cancel_reason(head: Head) -> str:
    """Why a run of this thread is cancelled (spec section 4)."""
    return "terminated" if head.terminated_at else "aborted_by_user"


def ask_cancel(head: Head, number: int, now: int) -> Head:
    """The run in flight is asked to end; the sweep ends it if its attempt does not."""
    due = min(head.due_at, now + CANCEL_GRACE) if head.due_at else now + CANCEL_GRACE
    return replace(head, cancel=number, cancel_at=now, due_at=due)


def terminal(row: Command, ending: Ending, now: int, attempt: int) -> Fact:
    """The one terminal event of a run (I5)."""
    data: dict[str, Any] = {"reason": ending.reason}
    if ending.status is RunStatus.FAILED:
        data["error"] = dict(ending.error or {})
    if ending.status is RunStatus.CANCELLED:
        data["finished_calls"] = list(ending.finished_calls)
    data["usage"] = wire.usage_body(row.usage)
    data["cost_usd"] = wire.cost_usd(row.usage)
    return Fact(type=f"run.{ending.status.value}", data=data, at=now, run=row.run, attempt=attempt)


def result_of(ending: Ending) -> Any:
    """What a run has come to, for whoever waits for it."""
    return (ending.error or {}).get("detail") if ending.status is RunStatus.FAILED else ending.answer


def _session_over(row: Command, result: Any, now: int) -> tuple[tuple[Child, ...], tuple[Fact, ...]]:
    """A run that was a child session has ended: its row of the registry, and what tells the thread."""
    if row.session is None:
        return (), ()
    data: dict[str, Any] = {"reference_id": row.session.reference, "outcome": row.status.value}
    data |= {"result": result} if result is not None else {}
    over = replace(row.session, status=row.status.value, result=result)
    return (over,), (Fact(type="child.completed", data=data, at=now),)


def _report(head: Head, row: Command, ending: Ending, now: int) -> Report | None:
    """What a child that comes to rest tells its parent; each of its runs is told at most once."""
    if not head.parent:
        return None
    outcome = "terminated" if head.terminated_at else ending.status.value
    key = f"{head.reference}.{row.number}"
    return Report(key=key, reference=head.reference, outcome=outcome, result=result_of(ending), at=now)


def _name_next(head: Head, waiting: set[int], ending: Ending, now: int) -> tuple[Head, tuple[Fact, ...]]:
    """The run that goes next takes the thread, or the thread comes to rest. `waiting`: the first two of the queue at
    least.
    """
    if not head.queued:
        state = State.FAILED if ending.status is RunStatus.FAILED else State.IDLE
        return change_state(no_run(head), state, ending.reason, now)
    follows = waiting - {head.first_queued}
    if head.queued > 1 and not follows:
        raise StaleHead
    after = replace(head, queued=head.queued - 1, first_queued=min(follows) if head.queued > 1 else 0)
    return in_flight(after, head.first_queued, now), ()


def _done(row: Command, now: int, attempt: int) -> Fact:
    step = wire.done_step(replace(row, ended_at=now))
    return Fact(type="step.recorded", data={"step": step}, at=now, run=row.run, attempt=attempt)
