"""The queue of a thread as pure decisions: what a head becomes when work is accepted, taken in, ended or withdrawn.

Every function takes the head as it stands and answers a `Draft`: the head that should follow, the facts to tell and the
rows that change. A service or an attempt then writes the draft under the condition that the head has not moved; if it
has, it decides again on the head that stands. Nothing here reads, so nothing here can be stale.

Order (I2): runs start by the number of their command. A pending join that is promoted to a run of its own keeps its
number and so its place among what is queued; the joins behind it are bound to it by ranges of numbers
(`Command.joins`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import costs, values, wire
from chalicelib.domain.commands import Delivery, Part
from chalicelib.domain.entries import LogRow
from chalicelib.domain.events import Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import KB, QUEUED_COMMANDS
from chalicelib.domain.model import (
    About,
    Call,
    Child,
    Command,
    CommandState,
    File,
    Head,
    Inquiry,
    Message,
    ModelSpent,
    Report,
    RunStatus,
    State,
    Tokens,
    Value,
)

#: A due time that has come, whatever the time is.
AT_ONCE = 1
#: A wake-up that was sent is given this long before the sweep sends it again (microseconds).
WAKE_GRACE = 5_000_000
#: A cancelled attempt that has not settled loses its lease after this long (spec section 7).
CANCEL_GRACE = 10_000_000
#: Content of the messages that one write places: it stands in their rows, and in their events where it is small, in a
#: transaction of at most 3 MB (design section 4.4).
PLACED_BYTES = 3 * KB * KB // 2


#: Reasons for which a run waits (spec section 4).
AWAITING_HUMAN, AWAITING_CHILDREN = "awaiting_human", "awaiting_children"
#: Kind of the row behind a silent message: it takes a number like a command, and nobody is shown it as one.
SILENT = "message.silent"


class StaleHead(Exception):
    """The rows tell something else than the head: somebody has written in between. Read the head again, decide anew."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A decision on a head. `places` of messages are relative: the first message gets `after.messages` before the
    draft + 1.
    """

    after: Head
    facts: tuple[Fact, ...] = ()
    commands: tuple[Command, ...] = ()
    messages: tuple[Message, ...] = ()
    new_calls: tuple[Call, ...] = ()
    calls: tuple[Call, ...] = ()
    files: tuple[File, ...] = ()
    gone_files: tuple[str, ...] = ()
    logs: tuple[LogRow, ...] = ()
    values: tuple[Value, ...] = ()
    inquiries: tuple[Inquiry, ...] = ()
    children: tuple[Child, ...] = ()
    heard: tuple[str, ...] = ()
    report: Report | None = None
    """What the parent of this thread is told with the same write."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A run.create as `accept` hands it over: `content` None continues the thread without a new message."""

    content: tuple[Part, ...] | None
    metadata: Mapping[str, Any]
    delivery: Delivery
    parent: int = 0
    model: str | None = None
    key: str | None = None
    nonce: str
    session: Child | None = None
    """Of a child session: its row in the registry."""
    silent: bool = False
    """Only stored, in the context of the next model step: it starts nothing and joins nothing."""


def create(head: Head, about: About, now: int) -> Draft:
    """A new thread; `head` is as it will be stored."""
    data: dict[str, Any] = {"agent": head.agent, "arguments": dict(about.arguments)}
    data |= {"title": about.title} if about.title is not None else {}
    data |= {"parent": dict(about.parent)} if about.parent else {}
    return Draft(after=head, facts=(Fact(type="thread.created", data=data, at=now),))


def is_full(head: Head) -> bool:
    """True when the thread takes no more commands for now (spec section 13)."""
    return head.queued + head.pending >= QUEUED_COMMANDS


def placeable(commands: Iterable[Command], most: int) -> int:
    """How many of these commands' messages one write can place: the first ones, at most `most`, at least one."""
    count = used = 0
    for command in commands:
        used += values.size(list(command.content or ()))
        if count == most or (count and used > PLACED_BYTES):
            break
        count += 1
    return count


def accept(ref: ThreadRef, head: Head, ask: Ask, now: int) -> Draft:
    """A new command: it starts the thread, waits for its turn, or waits to be taken in by a run."""
    number = head.commands + 1
    if ask.silent:
        placed = place_silently(
            ref, head, content=ask.content or (), metadata=ask.metadata, nonce=ask.nonce, key=ask.key, now=now
        )
        return replace(placed, after=replace(placed.after, active_at=max(now, head.active_at + 1)))
    joins = head.run != 0 and ask.delivery is Delivery.JOIN
    command = Command(
        number=number,
        delivery=ask.delivery.value,
        created_at=now,
        nonce=ask.nonce,
        key=ask.key,
        content=ask.content,
        metadata=ask.metadata,
        run=0 if joins else number,
        agent=head.agent,
        model=ask.model,
        parent=ask.parent,
        session=ask.session,
    )
    head = replace(head, commands=number, active_at=max(now, head.active_at + 1))
    if joins:
        pending, told = _with_pending(head, number), _queued_message(ref, command, now)
        if head.waiting != AWAITING_HUMAN:
            return Draft(after=pending, facts=(told,), commands=(command,))
        resumed = resume(pending, (), now)
        return replace(resumed, facts=(told, *resumed.facts), commands=(command,))
    facts = _run_queued(ref, command, now)
    head = replace(head, last_run=number)
    if head.run:
        after, status = change_state(_with_queued(head, number), State.RUNNING, head.reason, now)
        return Draft(after=after, facts=(*facts, *status), commands=(command,))
    head, status = change_state(in_flight(head, number, now), State.RUNNING, head.reason, now)
    return Draft(after=head, facts=(*facts, *status), commands=(command,))


def place_silently(
    ref: ThreadRef,
    head: Head,
    *,
    content: tuple[Part, ...],
    metadata: Mapping[str, Any] | None = None,
    child: Mapping[str, Any] | None = None,
    nonce: str,
    key: str | None = None,
    now: int,
) -> Draft:
    """A message that takes its place at once and starts nothing. Its row keeps the number and the key; it is no command
    to anybody.
    """
    row = Command(
        number=head.commands + 1,
        kind=SILENT,
        state=CommandState.DONE,
        created_at=now,
        nonce=nonce,
        key=key,
        place=head.messages + 1,
    )
    said = replace(row, content=content, metadata=metadata)
    message = replace(wire.user_message(ref, said, place=row.place, run=0), silent=True, child=child)
    told = Fact(type="message.completed", data={"message": wire.message_body(ref, message)}, at=now)
    after = replace(head, commands=row.number, messages=row.place)
    return Draft(after=after, facts=(told,), commands=(row,), messages=(message,))


def start(ref: ThreadRef, head: Head, command: Command, *, now: int, model: str, version: str) -> Draft:
    """The run in flight begins: its message takes its place and `run.started` is told. Once per run."""
    placed = command.content is not None and command.place == 0
    place = head.messages + 1 if placed else command.place
    messages = (wire.user_message(ref, command, place=place, run=command.run),) if placed else ()
    after = replace(
        head,
        run_started_at=now,
        run_first=place or head.messages + 1,
        messages=head.messages + len(messages),
    )
    started = Fact(
        type="run.started",
        data={"agent": head.agent, "model": model, "version": version},
        at=now,
        run=head.run,
        attempt=head.run_attempt,
    )
    row = replace(command, content=None, place=place, state=CommandState.STARTED, model=model, version=version)
    return Draft(after=after, facts=(started,), commands=(row,), messages=messages)


def inject(ref: ThreadRef, head: Head, joins: tuple[Command, ...], *, free: int, now: int) -> Draft:
    """The run in flight takes in pending joins, oldest first. `free` of them were bound to no other run."""
    facts, messages, rows = [], [], []
    for offset, join in enumerate(joins, start=1):
        taken = replace(join, run=head.run, state=CommandState.JOINED, place=head.messages + offset)
        message = wire.user_message(ref, taken, place=taken.place, run=head.run)
        messages.append(message)
        rows.append(replace(taken, content=None))
        facts.append(_completed(ref, message, now, head))
    last_free = max((j.number for j in joins if j.number >= head.free_from), default=head.free_from - 1)
    pending = head.pending - len(joins)
    after = replace(
        head,
        messages=head.messages + len(joins),
        pending=pending,
        free_pending=head.free_pending - free,
        free_from=last_free + 1,
        first_pending=head.first_pending if pending else 0,
        stalls=0,
    )
    return Draft(after=after, facts=tuple(facts), commands=tuple(rows), messages=tuple(messages))


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
        facts += _run_queued(ref, own, now)
        after = _with_promoted(replace(after, free_pending=0, free_from=after.commands + 1), own)
    sessions, told = _session_over(row, result_of(ending), now)
    facts += told
    if follow is not None:
        named = follow(_no_run(after))
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
        after=_with_promoted(after, own),
        facts=(*ended.facts, *_run_queued(ref, own, now)),
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


def wait(head: Head, reason: str, on: tuple[str, ...], *, now: int, due_at: int = 0) -> Draft:
    """The run in flight waits: its lease ends, and nobody takes another until it is resumed. `due_at`: when something
    that it waits for expires.
    """
    told = Fact(
        type="run.waiting", data={"reason": reason, "on": list(on)}, at=now, run=head.run, attempt=head.run_attempt
    )
    released = replace(head, waiting=reason, stalls=0, lease_until=0, lease_nonce="", due_at=due_at)
    if head.queued:
        return Draft(after=released, facts=(told,))
    after, status = change_state(released, State.IDLE, reason, now)
    return Draft(after=after, facts=(told, *status))


def resume(head: Head, on: tuple[str, ...], now: int) -> Draft:
    """The waiting run may be taken again. The wake-up follows from this row."""
    told = Fact(type="run.resumed", data={"reason": head.waiting, "on": list(on)}, at=now, run=head.run)
    awake = replace(head, waiting=None, wake=head.wake + 1, due_at=now + WAKE_GRACE)
    after, status = change_state(awake, State.RUNNING, head.reason, now)
    return Draft(after=after, facts=(told, *status))


def due(head: Head, at: int) -> Head:
    """The sweep looks at the thread at that time (0: not for what it waits for)."""
    return replace(head, due_at=at)


def terminate(head: Head, now: int) -> Draft:
    """The thread takes no more work, for good. A run that is in flight or queued has to be ended by what follows."""
    told = Fact(type="thread.terminated", data={}, at=now)
    terminated = replace(head, terminated_at=now)
    if head.children:
        terminated = replace(terminated, closing=True, due_at=AT_ONCE)
    if head.run or head.queued:
        return Draft(after=terminated, facts=(told,))
    after, status = change_state(terminated, State.IDLE, cancel_reason(terminated), now)
    key = f"{head.reference}.terminated"
    report = Report(key=key, reference=head.reference, outcome="terminated", at=now) if head.parent else None
    return Draft(after=after, facts=(told, *status), report=report)


def tombstone(head: Head, total_cost: int, now: int) -> Draft:
    """What is left of a deleted thread: its numbers, by which its rows are found, and what it has cost. Whoever held
    its lease finds another head.
    """
    after = replace(
        _no_run(head),
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
        due_at=AT_ONCE,
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


def change_state(head: Head, state: State, reason: str | None, now: int) -> tuple[Head, tuple[Fact, ...]]:
    """The thread's status, and the event that tells of it; nothing if the state stays."""
    if head.state is state and state is State.RUNNING:
        return head, ()
    after = replace(head, state=state, since=now, reason=reason)
    return after, (Fact(type="thread.status", data=wire.status_body(after), at=now),)


def promote(join: Command, left: Iterable[tuple[int, int]]) -> Command:
    """A pending join as a run of its own; of the joins that are left with it, those behind it are bound to it."""
    behind = [(max(low, join.number + 1), high) for low, high in left]
    return replace(join, run=join.number, joins=tuple((low, high) for low, high in behind if low <= high))


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


def _with_pending(head: Head, number: int) -> Head:
    return replace(
        head,
        pending=head.pending + 1,
        first_pending=head.first_pending or number,
        free_pending=head.free_pending + 1,
    )


def free_joins(head: Head) -> tuple[tuple[int, int], ...]:
    """The range of the joins that are bound to no queued run: the run in flight takes them in, or leaves them. While a
    run is parked they wait for that one.
    """
    return ((head.free_from, head.commands),) if head.free_pending and not head.parked else ()


def _with_promoted(head: Head, own: Command) -> Head:
    pending = head.pending - 1
    taken = replace(
        head,
        pending=pending,
        first_pending=head.first_pending if pending else 0,
        last_run=max(own.number, head.last_run),
    )
    return _with_queued(taken, own.number)


def _with_queued(head: Head, number: int) -> Head:
    first = min(head.first_queued, number) if head.queued else number
    return replace(head, queued=head.queued + 1, first_queued=first)


def in_flight(head: Head, number: int, now: int) -> Head:
    """Name the run in flight; whoever takes the lease next works on it. The wake-up follows from this row."""
    free = _no_run(head)
    return replace(free, run=number, wake=head.wake + 1, due_at=free.due_at or now + WAKE_GRACE)


def _no_run(head: Head) -> Head:
    return replace(
        head,
        run=0,
        run_attempt=0,
        run_started_at=0,
        run_steps=0,
        run_first=0,
        run_calls=0,
        run_turns=0,
        side_steps=0,
        run_usage=Tokens(),
        open_message=0,
        open_calls=0,
        waiting=None,
        stalls=0,
        cancel=0,
        cancel_at=0,
        lease_until=0,
        lease_nonce="",
        due_at=AT_ONCE if head.closing else 0,
    )


def _name_next(head: Head, waiting: set[int], ending: Ending, now: int) -> tuple[Head, tuple[Fact, ...]]:
    """The run that goes next takes the thread, or the thread comes to rest. `waiting`: the first two of the queue at
    least.
    """
    if not head.queued:
        state = State.FAILED if ending.status is RunStatus.FAILED else State.IDLE
        return change_state(_no_run(head), state, ending.reason, now)
    follows = waiting - {head.first_queued}
    if head.queued > 1 and not follows:
        raise StaleHead
    after = replace(head, queued=head.queued - 1, first_queued=min(follows) if head.queued > 1 else 0)
    return in_flight(after, head.first_queued, now), ()


def _session_over(row: Command, result: Any, now: int) -> tuple[tuple[Child, ...], tuple[Fact, ...]]:
    """A run that was a child session has ended: its row of the registry, and what tells the thread."""
    if row.session is None:
        return (), ()
    data: dict[str, Any] = {"reference_id": row.session.reference, "outcome": row.status.value}
    data |= {"result": result} if result is not None else {}
    over = replace(row.session, status=row.status.value, result=result)
    return (over,), (Fact(type="child.completed", data=data, at=now),)


def result_of(ending: Ending) -> Any:
    """What a run has come to, for whoever waits for it."""
    return (ending.error or {}).get("detail") if ending.status is RunStatus.FAILED else ending.answer


def _report(head: Head, row: Command, ending: Ending, now: int) -> Report | None:
    """What a child that comes to rest tells its parent; each of its runs is told at most once."""
    if not head.parent:
        return None
    outcome = "terminated" if head.terminated_at else ending.status.value
    result = (ending.error or {}).get("detail") if ending.status is RunStatus.FAILED else ending.answer
    return Report(
        key=f"{head.reference}.{row.number}", reference=head.reference, outcome=outcome, result=result, at=now
    )


def _queued_message(ref: ThreadRef, command: Command, now: int) -> Fact:
    return Fact(type="message.queued", data={"message": wire.pending_body(ref, command)}, at=now)


def _run_queued(ref: ThreadRef, command: Command, now: int) -> tuple[Fact, ...]:
    """What an accepted run tells: its message, then itself."""
    data: dict[str, Any] = {"command_id": ref.command(command.number)}
    if command.parent:
        data["parent_run_id"] = ref.run(command.parent)
    data["delivery"] = command.delivery
    queued = Fact(type="run.queued", data=data, at=now, run=command.run)
    if command.content is None:
        return (queued,)
    body = wire.pending_body(ref, command)
    return Fact(type="message.completed", data={"message": body}, at=now, run=command.run), queued


def _completed(ref: ThreadRef, message: Message, now: int, head: Head) -> Fact:
    body = wire.message_body(ref, message)
    return Fact(type="message.completed", data={"message": body}, at=now, run=head.run, attempt=head.run_attempt)


def _done(row: Command, now: int, attempt: int) -> Fact:
    step = wire.done_step(replace(row, ended_at=now))
    return Fact(type="step.recorded", data={"step": step}, at=now, run=row.run, attempt=attempt)
