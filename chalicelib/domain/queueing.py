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

from chalicelib.domain import values, wire
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
    Effect,
    File,
    Head,
    Inquiry,
    Message,
    Report,
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
    effects: tuple[Effect, ...] = ()


def then(first: Draft, decide: Callable[[Head], Draft]) -> Draft:
    """One draft made of two decisions, the second on the head that the first leaves."""
    second = decide(first.after)
    return Draft(
        after=second.after,
        facts=first.facts + second.facts,
        commands=tuple({c.number: c for c in (*first.commands, *second.commands)}.values()),
        messages=first.messages + second.messages,
        new_calls=first.new_calls + second.new_calls,
        calls=tuple({c.id: c for c in (*first.calls, *second.calls)}.values()),
        files=first.files + second.files,
        gone_files=first.gone_files + second.gone_files,
        logs=first.logs + second.logs,
        values=first.values + second.values,
        inquiries=tuple({i.id: i for i in (*first.inquiries, *second.inquiries)}.values()),
        children=tuple({c.reference: c for c in (*first.children, *second.children)}.values()),
        heard=first.heard + second.heard,
        report=second.report or first.report,
        effects=first.effects + second.effects,
    )


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A run.create as `accept` hands it over: `content` None continues the thread without a new message; one part of
    type `tool_call` (`name`, `arguments`) queues a tool.
    """

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
        if head.waiting != AWAITING_HUMAN or command.is_call:  # what code queues decides nothing for people
            return Draft(after=pending, facts=(told,), commands=(command,))
        resumed = resume(pending, (), now)
        return replace(resumed, facts=(told, *resumed.facts), commands=(command,))
    facts = run_queued(ref, command, now)
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
    side: str = "",
    nonce: str,
    key: str | None = None,
    now: int,
) -> Draft:
    """A message that takes its place at once and starts nothing; `side`: the only one that is shown it. Its row keeps
    the number and the key; it is no command to anybody.
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
    message = replace(wire.user_message(ref, said, place=row.place, run=0), silent=True, child=child, side=side)
    told = Fact(type="message.completed", data={"message": wire.message_body(ref, message)}, at=now)
    after = replace(head, commands=row.number, messages=row.place)
    return Draft(after=after, facts=(told,), commands=(row,), messages=(message,))


def start(ref: ThreadRef, head: Head, command: Command, *, now: int, model: str, version: str) -> Draft:
    """The run in flight begins: its message takes its place and `run.started` is told. Once per run."""
    placed = command.content is not None and command.place == 0
    place = head.messages + 1 if placed else command.place
    messages = (wire.user_message(ref, command, place=place, run=command.run, side=head.side),) if placed else ()
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
    row = replace(
        command,
        content=None,
        place=place,
        state=CommandState.STARTED,
        model=model,
        model_asked=command.model is not None,
        version=version,
    )
    return Draft(after=after, facts=(started,), commands=(row,), messages=messages)


def inject(ref: ThreadRef, head: Head, joins: tuple[Command, ...], *, free: int, now: int) -> Draft:
    """The run in flight takes in pending joins, oldest first. `free` of them were bound to no other run."""
    facts, messages, rows = [], [], []
    for offset, join in enumerate(joins, start=1):
        taken = replace(join, run=head.run, state=CommandState.JOINED, place=head.messages + offset)
        message = wire.user_message(ref, taken, place=taken.place, run=head.run, side=head.side)
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


def with_promoted(head: Head, own: Command) -> Head:
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
    free = no_run(head)
    return replace(free, run=number, wake=head.wake + 1, due_at=free.due_at or now + WAKE_GRACE)


def no_run(head: Head) -> Head:
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
        run_spent=(),
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


def _queued_message(ref: ThreadRef, command: Command, now: int) -> Fact:
    return Fact(type="message.queued", data={"message": wire.pending_body(ref, command)}, at=now)


def run_queued(ref: ThreadRef, command: Command, now: int) -> tuple[Fact, ...]:
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
