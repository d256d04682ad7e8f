"""How a run ends, whoever ends it: its attempt, a cancel from outside, or the sweep. Everything open is closed first
(I5).

What stays open when nobody's attempt is alive is read back from the log: the deltas of an answer that was being
streamed, and the calls of the last answer that have no result.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import children as family
from chalicelib.domain import endings, entries, people, queueing, sessions, values, wire
from chalicelib.domain.endings import Ending
from chalicelib.domain.entries import LogRow
from chalicelib.domain.events import Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import CONTENT_BYTES, RESPONSE_BYTES
from chalicelib.domain.model import (
    RUNNING,
    Call,
    Command,
    CommandState,
    Head,
    Inquiry,
    Message,
    ModelSpent,
    Outcome,
    Role,
    RunStatus,
    Tokens,
    Verdict,
)
from chalicelib.domain.people import Decision
from chalicelib.domain.queueing import Draft, then
from chalicelib.domain.sessions import Next
from chalicelib.engine.waiting import next_queued, oldest_join, second_queued
from chalicelib.ports import Store

#: Finished calls that `run.cancelled` names, newest first: enough to see what was done, bounded (I11).
NAMED_CALLS = 50
#: Results of a model step in the conversation, together: they stand in one row (limits.ITEM_BYTES).
RESULTS_BYTES = CONTENT_BYTES


@dataclass(frozen=True, kw_only=True)
class OpenAnswer:
    """An answer that was being streamed: what was told of it."""

    message_id: str
    text: str


def end_run(
    store: Store,
    ref: ThreadRef,
    head: Head,
    command: Command,
    ending: Ending,
    *,
    now: int,
    placed: tuple[Message, ...] = (),
    balance: tuple[ModelSpent, ...] | None = None,
) -> Draft:
    """The decision that ends the run in flight on this head. Reads what the head says is there, and no more.

    `placed`: messages that the same write places, which no read can find yet. `balance`: what the thread had spent when
    this run began, if the caller knows it.
    """
    promoted = oldest_join(store, ref, (*command.joins, *queueing.free_joins(head)))
    parked = store.open(ref, head=False, commands=[head.parked]).commands[head.parked] if head.parked else None
    follow = None if parked is None else _follow(store, ref, command, parked, now)
    if ending.status is RunStatus.CANCELLED:
        ending = replace(ending, finished_calls=_finished_calls(store, ref, head, placed))
    return endings.end(
        ref,
        head,
        command,
        ending,
        promoted=promoted,
        first_queued=second_queued(store, ref, head),
        now=now,
        balance=balance_at(store, ref, head) if balance is None else balance,
        follow=follow,
    )


def _follow(store: Store, ref: ThreadRef, ended: Command, parked: Command, now: int) -> Callable[[Head], Draft]:
    """Who goes after a session: the next one that the parked run waits for, or that run itself."""

    def follow(head: Head) -> Draft:
        then = next_session(store, ref, head, parked.parked["runs"] if parked.parked else (), without=ended.number)
        return sessions.go_on(head, parked, then, now)

    return follow


def next_session(store: Store, ref: ThreadRef, head: Head, runs: Collection[int], *, without: int = 0) -> Next | None:
    """The first of these sessions that has not ended yet."""
    rows = store.open(ref, head=False, commands=[number for number in runs if number != without]).commands
    number = min((row.number for row in rows.values() if not row.status.ended), default=0)
    if not number:
        return None
    first = head.first_queued
    if first == number:
        first = next_queued(store, ref, head, after=number) if head.queued > 1 else 0
    return Next(number=number, first_queued=first)


def end_parked(store: Store, ref: ThreadRef, head: Head, command: Command, ending: Ending, *, now: int) -> Draft:
    """A run that is parked ends without being taken up again: what it left open is closed, and whoever plays in its
    place goes on as any run does.
    """
    assert command.parked is not None, "a parked run keeps its part of the head"
    alone = sessions.as_in_flight(head, command)
    closed = close_calls(store, ref, alone, now) if alone.open_calls else Draft(after=alone)
    ending = replace(ending, finished_calls=_finished_calls(store, ref, alone, closed.messages))
    balance = balance_at(store, ref, head)
    mine = replace(closed.after, queued=0, parked=0, parent="")
    over = endings.end(ref, mine, command, ending, promoted=None, first_queued=0, now=now, balance=balance)
    told = tuple(fact for fact in over.facts if fact.type != "thread.status")
    row = replace(over.commands[0], parked=None)
    above = _above(store, ref, head, command.number)
    below = command.parked["under"]
    rows = (replace(above, parked={**(above.parked or {}), "under": below}),) if above else ()
    after = replace(
        head,
        messages=max(head.messages, closed.after.messages),
        balance_at=row.number,
        parked=head.parked if above else below,
        closing=closed.after.closing,
    )
    return replace(
        closed,
        after=after,
        facts=(*closed.facts, *told),
        commands=(row, *rows),
        children=(*closed.children, *over.children),
    )


def _above(store: Store, ref: ThreadRef, head: Head, number: int) -> Command | None:
    """The parked run that lies directly on another one, None if that is the topmost."""
    at = head.parked
    while at and at != number:
        row = store.open(ref, head=False, commands=[at]).commands[at]
        at = row.parked["under"] if row.parked else 0
        if at == number:
            return row
    return None


def balance_at(store: Store, ref: ThreadRef, head: Head) -> tuple[ModelSpent, ...]:
    """What the thread had spent on models when its last run ended."""
    if not head.balance_at:
        return ()
    return store.open(ref, head=False, commands=[head.balance_at]).commands[head.balance_at].balance


def end_lost_run(store: Store, ref: ThreadRef, head: Head, ending: Ending, *, now: int) -> Draft:
    """Close what a dead or deaf attempt left open, then end its run. Only for a head whose lease is ours to break."""
    command = store.open(ref, head=False, commands=[head.run]).commands[head.run]
    closed = close_open(store, ref, head, model=command.model, now=now)
    if not head.run_started_at:
        row, messages, _ = endings.withdraw_run(ref, head, command, reason=ending.reason, now=now)
        command = replace(row, status=RunStatus.QUEUED, reason=None, ended_at=0)
        closed = replace(closed, messages=messages, after=replace(closed.after, messages=head.messages + len(messages)))
    state = CommandState.DONE if head.run_started_at else CommandState.WITHDRAWN
    draft = then(closed, lambda at: end_run(store, ref, at, command, ending, now=now, placed=closed.messages))
    rows = tuple(replace(c, state=state) if c.number == command.number else c for c in draft.commands)
    return replace(draft, commands=rows)


def close_open(store: Store, ref: ThreadRef, head: Head, *, model: str | None, now: int) -> Draft:
    """Close the streamed answer and the open calls of the run in flight, as read from the rows."""
    draft = Draft(after=head)
    if head.open_message:
        answer = _told(store, ref, head)
        row = lost_call(head, model=model, message_id=answer.message_id, at=now)
        closed = close_answer(ref, head, answer, now=now)
        draft = replace(closed, after=replace(closed.after, model_calls=head.model_calls + 1), logs=(row,))
    if head.open_calls:
        draft = then(draft, lambda at: close_calls(store, ref, at, now))
    return draft


def close_answer(ref: ThreadRef, head: Head, answer: OpenAnswer, *, now: int) -> Draft:
    """The answer stays as far as it was told, marked incomplete. The caller counts its model call."""
    message = Message(
        place=head.messages + 1,
        id=answer.message_id,
        run=head.run,
        role=Role.ASSISTANT,
        content=({"type": "text", "text": answer.text},) if answer.text else (),
        metadata={},
        created_at=now,
        incomplete=True,
        side=head.side,
    )
    after = replace(head, messages=message.place, open_message=0)
    return Draft(after=after, facts=(_completed(ref, head, message, now),), messages=(message,))


def lost_call(head: Head, *, model: str | None, message_id: str | None, at: int) -> LogRow:
    """The row of a model call whose attempt died: what it used is not known."""
    body = entries.llm_body(
        model=model or "",
        usage=wire.usage_body(Tokens()),
        cost_usd=None,
        duration_ms=None,
        finish_reason=None,
        error="The attempt was lost before the answer was whole.",
        request={},
        response={},
    )
    return LogRow(key=llm_key(head, at), kind="llm", at=at, run=head.run, message_id=message_id, body=body)


def llm_key(head: Head, at: int) -> str:
    """The key of the row of the next model call that this head counts: each has one number in the thread."""
    return entries.key(at, f"m{head.model_calls + 1}")


def close_calls(store: Store, ref: ThreadRef, head: Head, now: int) -> Draft:
    """Every call of the last answer that has no result is aborted, what it asked people is resolved, and the results
    stand in one message right after their calls.
    """
    step, calls = open_calls(store, ref, head)
    asked_by = _asked_by(store, ref, calls)
    resolved = people.resolve_all(head, asked_by, Decision(verdict=Verdict.CANCELLED), now)
    resolved = then(resolved, lambda at: _let_go(store, ref, at, calls, now))
    ended = {call.id: call for call in resolved.calls}
    facts = list(resolved.facts)
    for call in calls:
        if call.outcome is None and call.id not in ended:
            ended[call.id] = replace(call, outcome=Outcome.ABORTED, result=people.ABORTED, ended_at=now)
            facts.append(completed_call(head, ended[call.id], now))
    results = [ended.get(call.id, call) for call in calls]
    closed = replace(resolved, facts=tuple(facts), calls=tuple(ended.values()))
    return then(closed, lambda at: tell_results(ref, at, results, step=step, now=now))


def _let_go(store: Store, ref: ThreadRef, head: Head, calls: list[Call], now: int) -> Draft:
    """Children of the calls that are still open are told as cancelled, and the sweep ends them: those that a call waits
    for, and those that it had begun to make, whose threads may not even be there.
    """
    names = [
        family.reference(call.run, call.step, position)
        for position, call in enumerate(calls, start=1)
        if call.outcome is None and call.started_at
    ]
    rows = store.open(ref, head=False, children=names).children if names and head.children else {}
    given_up = [family.given_up(head, row, now) for row in rows.values() if row.status == RUNNING]
    if not given_up:
        return Draft(after=head)
    return Draft(
        after=replace(head, closing=True),
        facts=tuple(fact for _, fact in given_up),
        children=tuple(row for row, _ in given_up),
    )


def _asked_by(store: Store, ref: ThreadRef, calls: list[Call]) -> list[tuple[Inquiry, Call]]:
    """What is asked of people, with the calls that wait for it."""
    waiting = [call for call in calls if call.outcome is None and people.is_inquiry(call.waits)]
    asked = store.open(ref, head=False, inquiries=[call.waits for call in waiting]).inquiries if waiting else {}
    return [(asked[call.waits], call) for call in waiting]


def tell_results(ref: ThreadRef, head: Head, calls: list[Call], *, step: int, now: int) -> Draft:
    """The role=tool message of a model step, in the order in which the calls were asked, in the place kept for it."""
    message = Message(
        place=head.open_calls + 1,
        id=ref.results(head.run, step),
        run=head.run,
        role=Role.TOOL,
        content=_fitting([result_part(call) for call in calls]),
        metadata={},
        created_at=now,
        side=head.side,
    )
    after = replace(head, open_calls=0)
    return Draft(after=after, facts=(_completed(ref, head, message, now),), messages=(message,))


def completed_call(head: Head, call: Call, now: int) -> Fact:
    """`tool.completed` of a call that has an outcome."""
    data = {
        "call_id": call.id,
        "name": call.name,
        "outcome": call.outcome,
        "result": call.result,
        "duration_ms": duration_ms(call),
    }
    return Fact(type="tool.completed", data=data, at=now, run=head.run, attempt=head.run_attempt)


def duration_ms(call: Call) -> int:
    """How long a call took; 0 if it never started."""
    return max(0, (call.ended_at - call.started_at) // 1000) if call.started_at else 0


def result_part(call: Call) -> dict[str, Any]:
    """A call's result as a part of its tool message."""
    return {"type": "tool_result", "call_id": call.id, "outcome": call.outcome, "content": call.result}


def _fitting(parts: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The results with the largest cut, so that together they fit the message: small ones stay whole."""
    sizes, left, most = sorted(values.size(part["content"]) for part in parts), RESULTS_BYTES, RESULTS_BYTES
    for number, size in enumerate(sizes):
        most = left // (len(sizes) - number)
        if size > most:
            return tuple({**part, "content": values.cut_value(part["content"], most)[0]} for part in parts)
        left -= size
    return tuple(parts)


def _completed(ref: ThreadRef, head: Head, message: Message, now: int) -> Fact:
    body = wire.message_body(ref, message)
    return Fact(type="message.completed", data={"message": body}, at=now, run=head.run, attempt=head.run_attempt)


def _told(store: Store, ref: ThreadRef, head: Head) -> OpenAnswer:
    """The streamed answer as its events tell it."""
    text, after, message_id = [], head.open_message - 1, ref.answer(head.run, head.run_steps + 1)
    while after < head.seq:
        events = store.events(ref, after=after, limit=256, max_bytes=RESPONSE_BYTES)
        if not events:
            break
        text += [e.data["text"] for e in events if e.type == "message.delta" and e.data["message_id"] == message_id]
        after = events[-1].seq
    return OpenAnswer(message_id=message_id, text="".join(text))


def open_calls(store: Store, ref: ThreadRef, head: Head) -> tuple[int, list[Call]]:
    """Model step and calls of the last answer, in the order asked."""
    answer = store.open(ref, head=False, messages=[head.open_calls]).messages[head.open_calls]
    ids = [part["call_id"] for part in answer.content if part["type"] == "tool_call"]
    rows = store.open(ref, head=False, calls=ids).calls
    return head.run_steps, [rows[call_id] for call_id in ids]


def _finished_calls(store: Store, ref: ThreadRef, head: Head, placed: tuple[Message, ...]) -> tuple[str, ...]:
    if not head.run_calls:
        return ()
    rows = store.messages(ref, after=head.run_first - 1, before=head.messages + 1, limit=NAMED_CALLS, descending=True)
    done = [
        part["call_id"]
        for row in (*reversed(placed), *rows)
        if row.role is Role.TOOL
        for part in row.content
        if part["outcome"] in (Outcome.OK, Outcome.ERROR)
    ]
    return tuple(done[:NAMED_CALLS])
