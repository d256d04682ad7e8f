"""The queue decides: what is accepted is placed once, runs go in accepted order, the head counts what is in rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain import endings, queueing
from chalicelib.domain.commands import Delivery
from chalicelib.domain.endings import Ending
from chalicelib.domain.events import TERMINAL, Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import CONTENT_BYTES, QUEUED_COMMANDS, TRANSACTION_BYTES
from chalicelib.domain.model import Command, CommandState, Head, Message, RunStatus, State, Tokens
from chalicelib.domain.queueing import Ask, Draft, StaleHead

REF = ThreadRef("org_1", "a" * 20)
NEW = Head(rev=1, agent="assistant", created_at=1, active_at=1, since=1)
JOIN, ENQUEUE = Delivery.JOIN, Delivery.ENQUEUE
REASONS = {
    RunStatus.COMPLETED: "max_steps",
    RunStatus.FAILED: "model_error",
    RunStatus.CANCELLED: "aborted_by_user",
}
moderate = settings(max_examples=200, deadline=None)  # a slow machine is no failure


@dataclass
class Thread:
    """A thread as its rows. Every decision is written at once; the clock is the number of the write."""

    head: Head = NEW
    rows: dict[int, Command] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    now: int = 1

    def write(self, draft: Draft) -> Draft:
        """Store a decision."""
        self.head = draft.after
        self.rows |= {row.number: row for row in draft.commands}
        self.messages += draft.messages
        self.facts += draft.facts
        self.now += 1
        return draft

    def accept(self, delivery: Delivery = JOIN, words: str | None = "hi", **more: Any) -> Draft:
        """A message, or with no words a continue."""
        content = ({"type": "text", "text": words},) if words is not None else None
        ask = Ask(content=content, metadata={"k": 1}, delivery=delivery, nonce="n", **more)
        return self.write(queueing.accept(REF, self.head, ask, self.now))

    def start(self) -> Draft:
        """An attempt takes the run in flight and starts it."""
        self.head = replace(self.head, run_attempt=1)
        self.started.append(self.head.run)
        row = self.rows[self.head.run]
        return self.write(queueing.start(REF, self.head, row, now=self.now, model="offline:echo", version="7"))

    def inject(self, most: int = 20) -> Draft:
        """The run in flight takes in its oldest joins."""
        joins = self.joins()[:most]
        free = sum(1 for join in joins if join.number >= self.head.free_from)
        return self.write(queueing.inject(REF, self.head, tuple(joins), free=free, now=self.now))

    def end(self, status: RunStatus = RunStatus.COMPLETED, **more: Any) -> Draft:
        """The run in flight ends and leaves its joins behind."""
        queue = [row.number for row in self.queue()]
        return self.write(
            endings.end(
                REF,
                self.head,
                self.rows[self.head.run],
                Ending(status=status, reason=REASONS[status], **more),
                promoted=next(iter(self.joins()), None),
                first_queued=queue[1] if len(queue) > 1 else 0,
                now=self.now,
            )
        )

    def withdraw(self) -> Draft:
        """All that waits is taken back."""
        rows = sorted([*self.queue(), *self.pending()], key=lambda row: row.number)
        return self.write(endings.withdraw_all(REF, self.head, tuple(rows), reason="aborted_by_user", now=self.now))

    def cancel_queued(self, number: int) -> Draft:
        """A run behind the run in flight is taken back."""
        row = self.rows[number]
        bound = [join for join in self.pending() if any(low <= join.number <= high for low, high in row.joins)]
        others = [other.number for other in self.queue() if other.number != number]
        return self.write(
            endings.end_queued(
                REF,
                self.head,
                row,
                reason="aborted_by_user",
                promoted=next(iter(bound), None),
                first_queued=others[0] if others else 0,
                now=self.now,
            )
        )

    def queue(self) -> list[Command]:
        """Runs behind the run in flight, in accepted order."""
        return [r for r in self._queued() if r.is_run and r.number != self.head.run]

    def pending(self) -> list[Command]:
        """Joins that no run has taken in."""
        return [row for row in self._queued() if row.is_pending_join]

    def joins(self) -> list[Command]:
        """Pending joins of the run in flight: bound to it, or free."""
        bound = self.rows[self.head.run].joins
        return [
            row
            for row in self.pending()
            if row.number >= self.head.free_from or any(low <= row.number <= high for low, high in bound)
        ]

    def _queued(self) -> list[Command]:
        return [row for _, row in sorted(self.rows.items()) if row.state is CommandState.QUEUED]


def talk(*steps: str) -> Thread:
    """A thread after these steps."""
    thread = Thread()
    for step in steps:
        STEPS[step](thread)
    return thread


def types(draft: Draft) -> list[str]:
    """What a decision tells."""
    return [fact.type for fact in draft.facts]


def told(draft: Draft, kind: str) -> Any:
    """Data of the one fact of this type."""
    (fact,) = [fact for fact in draft.facts if fact.type == kind]
    return fact.data


def numbers(rows: Sequence[Command]) -> list[int]:
    return [row.number for row in rows]


def said(thread: Thread) -> list[int]:
    """The commands whose messages stand in the conversation, in its order."""
    return [int(message.id.rpartition("_c")[2]) for message in thread.messages]


def end_if_started(status: RunStatus) -> Callable[[Thread], object]:
    return lambda thread: thread.end(status) if thread.head.run_started_at else None


STEPS: dict[str, Callable[[Thread], object]] = {
    "join": lambda thread: thread.accept(JOIN),
    "enqueue": lambda thread: thread.accept(ENQUEUE),
    "continue": lambda thread: thread.accept(ENQUEUE, None),
    "start": lambda thread: thread.start() if thread.head.run and not thread.head.run_started_at else None,
    "inject": lambda thread: thread.inject(2) if thread.head.run_started_at and thread.joins() else None,
    "complete": end_if_started(RunStatus.COMPLETED),
    "fail": end_if_started(RunStatus.FAILED),
    "cancel": end_if_started(RunStatus.CANCELLED),
    "cancel queued": lambda thread: thread.cancel_queued(thread.queue()[-1].number) if thread.queue() else None,
    "cancel next": lambda thread: thread.cancel_queued(thread.queue()[0].number) if thread.queue() else None,
    "withdraw": lambda thread: thread.withdraw() if thread.queue() or thread.pending() else None,
}


# ---------------------------------------------------------------- accept


def test_the_first_message_starts_the_thread_and_waits_for_its_run_to_place_it() -> None:
    thread = Thread()
    draft = thread.accept(JOIN)
    assert types(draft) == ["message.completed", "run.queued", "thread.status"]
    assert (thread.head.state, thread.head.run, thread.head.queued, thread.head.pending) == (State.RUNNING, 1, 0, 0)
    assert thread.rows[1].is_run
    assert (thread.rows[1].state, thread.rows[1].place, thread.messages) == (CommandState.QUEUED, 0, [])
    assert told(draft, "run.queued") == {"command_id": REF.command(1), "delivery": "join"}


def test_accepting_a_run_into_a_resting_thread_asks_for_a_wake_up_and_forgets_the_run_before() -> None:
    thread = talk("join", "start")
    thread.head = replace(thread.head, run_steps=3, run_usage=Tokens(input=5), run_calls=2, cancel=9, lease_until=99)
    thread.end()
    wake = thread.head.wake
    thread.accept()
    head = thread.head
    assert (head.run, head.wake, head.due_at) == (2, wake + 1, thread.now - 1 + queueing.WAKE_GRACE)
    assert (head.run_attempt, head.run_started_at, head.run_steps, head.run_calls) == (0, 0, 0, 0)
    assert (head.run_usage, head.cancel, head.lease_until) == (Tokens(), 0, 0)


@pytest.mark.parametrize("delivery", [JOIN, ENQUEUE])
def test_a_thread_at_rest_starts_a_run_whatever_the_delivery_and_keeps_its_last_reason(delivery: Delivery) -> None:
    thread = talk("join", "start", "fail")
    assert (thread.head.state, thread.head.reason) == (State.FAILED, "model_error")
    draft = thread.accept(delivery)
    assert told(draft, "thread.status") == {"state": "running", "since": thread.now - 1, "reason": "model_error"}
    assert (thread.head.run, thread.head.queued, thread.head.pending) == (2, 0, 0)


def test_a_join_of_a_busy_thread_is_pending_and_tells_only_that() -> None:
    thread = talk("join")
    draft = thread.accept(JOIN)
    assert types(draft) == ["message.queued"]
    assert told(draft, "message.queued")["message"]["metadata"] == {"k": 1, "queued": True}
    assert "run_id" not in told(draft, "message.queued")["message"]
    assert (thread.rows[2].run, thread.rows[2].is_pending_join) == (0, True)
    assert (thread.head.pending, thread.head.free_pending, thread.head.first_pending) == (1, 1, 2)
    assert (thread.head.run, thread.head.last_run) == (1, 1)


def test_an_enqueue_of_a_busy_thread_is_a_run_behind_the_others_and_tells_no_status() -> None:
    thread = talk("join")
    draft = thread.accept(ENQUEUE)
    assert types(draft) == ["message.completed", "run.queued"]
    assert told(draft, "message.completed")["message"]["run_id"] == REF.run(2)
    thread.accept(ENQUEUE)
    assert (thread.head.run, thread.head.queued, thread.head.first_queued, thread.head.last_run) == (1, 2, 2, 3)


def test_a_continue_has_no_message_and_names_its_parent() -> None:
    thread = talk("join", "start", "complete")
    draft = thread.accept(ENQUEUE, None, parent=1, model="offline:demo", key="k")
    assert types(draft) == ["run.queued", "thread.status"]
    assert told(draft, "run.queued")["parent_run_id"] == REF.run(1)
    assert (thread.rows[2].model, thread.rows[2].key, thread.rows[2].parent) == ("offline:demo", "k", 1)


def test_activity_always_moves_on_even_if_the_clock_does_not() -> None:
    thread = Thread(head=replace(NEW, active_at=50))
    thread.accept()
    assert thread.head.active_at == 51
    thread.now = 1000
    thread.accept()
    assert thread.head.active_at == 1000


# ---------------------------------------------------------------- start and inject


def test_a_message_takes_its_place_when_its_run_starts_and_leaves_the_command() -> None:
    thread = talk("join")
    draft = thread.start()
    assert types(draft) == ["run.started"]
    assert told(draft, "run.started") == {"agent": "assistant", "model": "offline:echo", "version": "7"}
    (message,) = thread.messages
    assert (message.place, message.run, message.id) == (1, 1, REF.user_message(1))
    row = thread.rows[1]
    assert (row.state, row.place, row.content, row.model, row.version) == ("started", 1, None, "offline:echo", "7")
    assert (thread.head.messages, thread.head.run_first) == (1, 1)


def test_a_continue_starts_without_placing_anything() -> None:
    thread = talk("join", "start", "complete", "continue")
    assert thread.start().messages == ()
    assert (thread.head.messages, thread.head.run_first, thread.rows[2].place) == (1, 2, 0)


def test_a_queued_message_stands_behind_all_that_the_run_before_it_said() -> None:
    thread = talk("join", "enqueue", "start", "join", "inject", "complete", "start")
    assert said(thread) == [1, 3, 2]
    assert [message.place for message in thread.messages] == [1, 2, 3]
    assert [message.run for message in thread.messages] == [1, 1, 2]


def test_injected_joins_belong_to_the_run_that_takes_them_in_oldest_first() -> None:
    thread = talk("join", "start", "join", "enqueue", "join", "join")
    thread.head = replace(thread.head, stalls=3)
    draft = thread.inject(2)
    assert [fact.data["message"]["id"] for fact in draft.facts] == [REF.user_message(2), REF.user_message(4)]
    assert {(fact.type, fact.run, fact.attempt) for fact in draft.facts} == {("message.completed", 1, 1)}
    assert all("queued" not in fact.data["message"]["metadata"] for fact in draft.facts)
    assert [(row.run, row.state, row.place, row.content) for row in draft.commands] == [
        (1, CommandState.JOINED, 2, None),
        (1, CommandState.JOINED, 3, None),
    ]
    head = thread.head
    assert (head.pending, head.free_pending, head.free_from, head.stalls) == (1, 1, 5, 0)
    thread.inject()
    assert (thread.head.pending, thread.head.free_pending, thread.head.first_pending) == (0, 0, 0)
    assert said(thread) == [1, 2, 4, 5]


def test_a_join_that_arrives_after_an_injection_is_the_next_one_taken_in() -> None:
    thread = talk("join", "start", "join", "inject", "join", "inject")
    assert said(thread) == [1, 2, 3]
    assert thread.rows[3].run == 1


# ---------------------------------------------------------------- the end of a run


def test_the_last_run_brings_the_thread_to_rest() -> None:
    thread = talk("join", "start")
    draft = thread.end(label="hello")
    assert types(draft) == ["step.recorded", "run.completed", "thread.status"]
    assert told(draft, "step.recorded")["step"] == {"n": 1, "kind": "done", "label": "hello", "at": thread.now - 1}
    assert told(draft, "thread.status") == {"state": "idle", "since": thread.now - 1, "reason": "max_steps"}
    head = thread.head
    assert (head.state, head.run, head.due_at, head.lease_until) == (State.IDLE, 0, 0, 0)


@pytest.mark.parametrize(
    ("status", "state", "data"),
    [
        (RunStatus.COMPLETED, State.IDLE, {"reason": "max_steps"}),
        (RunStatus.FAILED, State.FAILED, {"reason": "model_error", "error": {"type": "x"}}),
        (RunStatus.CANCELLED, State.IDLE, {"reason": "aborted_by_user", "finished_calls": ["c1"]}),
    ],
)
def test_each_end_has_one_terminal_event_and_its_own_state_of_the_thread(
    status: RunStatus, state: State, data: dict[str, Any]
) -> None:
    thread = talk("join", "start")
    draft = thread.end(status, error={"type": "x"}, finished_calls=("c1",))
    usage = {"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0}
    assert told(draft, f"run.{status}") == {**data, "usage": usage, "cost_usd": 0.0}
    assert [kind for kind in types(draft) if kind.startswith("run.")] == [f"run.{status}"]
    assert types(draft).count("step.recorded") == (status is RunStatus.COMPLETED)
    assert (thread.head.state, thread.head.reason) == (state, data["reason"])


def test_the_row_of_an_ended_run_keeps_what_the_head_knew_of_it() -> None:
    thread = talk("join", "start", "join", "inject")
    usage = Tokens(input=7, output=2, cost_micro_usd=9)
    thread.head = replace(thread.head, run_attempt=3, run_steps=2, run_usage=usage, cancel=8)
    at = thread.now
    thread.end(RunStatus.CANCELLED)
    row = thread.rows[1]
    assert (row.state, row.status, row.reason) == (CommandState.DONE, RunStatus.CANCELLED, "aborted_by_user")
    assert (row.attempts, row.steps, row.usage, row.cancelled_by) == (3, 2, usage, 8)
    assert (row.first, row.last, row.started_at, row.ended_at) == (1, 2, 2, at)


@pytest.mark.parametrize("status", REASONS)
def test_the_next_run_is_named_in_the_write_that_ends_the_one_before_with_no_blip_of_rest(status: RunStatus) -> None:
    thread = talk("join", "start", "enqueue", "enqueue", "enqueue")
    wake, at = thread.head.wake, thread.now
    draft = thread.end(status)
    assert "thread.status" not in types(draft)
    head = thread.head
    assert (head.state, head.run, head.run_started_at, head.run_attempt) == (State.RUNNING, 2, 0, 0)
    assert (head.wake, head.due_at) == (wake + 1, at + queueing.WAKE_GRACE)
    assert (head.queued, head.first_queued) == (2, 3)


def test_a_run_leaves_its_oldest_join_behind_as_a_run_of_its_own_and_the_others_join_that() -> None:
    thread = talk("join", "start", "join", "join", "join")
    draft = thread.end(RunStatus.FAILED)
    assert types(draft) == ["run.failed", "message.completed", "run.queued"]
    body = told(draft, "message.completed")["message"]
    assert (body["id"], body["run_id"], body["metadata"]) == (REF.user_message(2), REF.run(2), {"k": 1})
    assert (thread.head.run, thread.head.last_run, thread.head.pending, thread.head.queued) == (2, 2, 2, 0)
    assert thread.rows[2].is_run
    assert numbers(thread.joins()) == [3, 4]
    thread.start()
    thread.inject()
    assert said(thread) == [1, 2, 3, 4]
    assert {message.run for message in thread.messages[1:]} == {2}


def test_a_promoted_join_goes_to_its_accepted_place_among_the_runs() -> None:
    before = talk("join", "start", "join", "enqueue", "fail")
    behind = talk("join", "start", "enqueue", "join", "fail")
    between = talk("join", "start", "enqueue", "join", "enqueue", "fail")
    assert (before.head.run, before.head.first_queued, before.head.queued) == (2, 3, 1)
    assert (behind.head.run, behind.head.first_queued, behind.head.queued) == (2, 3, 1)
    assert (between.head.run, between.head.first_queued, between.head.queued) == (2, 3, 2)
    assert (before.head.last_run, behind.head.last_run, between.head.last_run) == (3, 3, 4)
    between.start()
    between.end()
    assert (between.head.run, between.head.first_queued) == (3, 4)


def test_joins_behind_a_promoted_one_are_not_taken_in_by_a_run_that_goes_before_it() -> None:
    thread = talk("join", "start", "enqueue", "join", "join", "fail", "start", "join")
    assert (thread.head.run, thread.head.free_pending, thread.head.pending) == (2, 1, 2)
    assert numbers(thread.joins()) == [5]
    thread.inject()
    thread.end()
    thread.start()
    thread.inject()
    assert said(thread) == [1, 2, 5, 3, 4]
    assert [message.run for message in thread.messages] == [1, 2, 2, 3, 3]


def test_a_promoted_run_that_ends_early_passes_its_joins_on_with_those_that_came_since() -> None:
    thread = talk("join", "start", "join", "join", "join", "fail", "start", "join", "fail")
    assert (thread.head.run, thread.head.free_pending, thread.head.pending) == (3, 0, 2)
    assert numbers(thread.joins()) == [4, 5]
    for step in ("start", "inject", "complete"):
        STEPS[step](thread)
    assert said(thread) == [1, 2, 3, 4, 5]
    assert (thread.head.state, thread.head.pending) == (State.IDLE, 0)


def test_a_join_after_the_end_starts_a_run_and_one_before_it_is_promoted() -> None:
    after = talk("join", "start", "complete", "join")
    before = talk("join", "start", "join", "complete")
    assert (after.head.run, after.head.pending) == (before.head.run, before.head.pending) == (2, 0)
    assert after.rows[2].is_run
    assert before.rows[2].is_run


def test_an_end_whose_rows_do_not_show_the_second_of_two_queued_runs_is_stale() -> None:
    thread = talk("join", "start", "enqueue", "enqueue")
    ending = Ending(status=RunStatus.COMPLETED, reason="max_steps")
    with pytest.raises(StaleHead):
        endings.end(REF, thread.head, thread.rows[1], ending, promoted=None, first_queued=0, now=9)


# ---------------------------------------------------------------- taking back


def test_a_queued_run_that_ends_before_it_started_leaves_its_message_in_the_conversation() -> None:
    thread = talk("join", "start", "enqueue", "enqueue")
    thread.now = 9
    draft = thread.cancel_queued(2)
    assert types(draft) == ["run.cancelled"]
    assert told(draft, "run.cancelled")["finished_calls"] == []
    row = thread.rows[2]
    assert (row.state, row.status, row.place, row.content) == (CommandState.WITHDRAWN, RunStatus.CANCELLED, 2, None)
    assert (row.reason, row.started_at, row.ended_at) == ("aborted_by_user", 0, 9)
    assert said(thread) == [1, 2]
    assert (thread.head.run, thread.head.state) == (1, State.RUNNING)
    assert (thread.head.queued, thread.head.first_queued, thread.head.messages) == (1, 3, 2)


def test_the_joins_bound_to_a_queued_run_outlive_it_as_a_run_of_the_oldest() -> None:
    thread = talk("join", "start", "enqueue", "join", "join", "fail")
    assert (thread.head.run, numbers(thread.queue()), thread.rows[3].joins) == (2, [3], ((4, 4),))
    draft = thread.cancel_queued(3)
    assert types(draft) == ["run.cancelled", "message.completed", "run.queued"]
    assert (numbers(thread.queue()), thread.head.queued, thread.head.first_queued, thread.head.pending) == (
        [4],
        1,
        4,
        0,
    )
    for step in ("start", "complete", "start", "complete"):
        STEPS[step](thread)
    assert (said(thread), thread.head.state) == ([1, 3, 2, 4], State.IDLE)


def test_joins_of_the_run_in_flight_stay_with_it_when_a_queued_run_is_taken_back() -> None:
    thread = talk("join", "start", "enqueue", "join", "join", "fail", "start", "join")
    thread.cancel_queued(3)
    assert (numbers(thread.joins()), thread.head.free_pending, thread.rows[4].joins) == ([5], 1, ())


def test_taking_back_a_queued_continue_places_nothing() -> None:
    thread = talk("join", "start", "continue")
    draft = thread.cancel_queued(2)
    assert (draft.messages, draft.after.messages, draft.after.queued) == ((), 1, 0)


def test_taking_all_back_places_what_was_said_in_order_and_leaves_the_run_in_flight_alone() -> None:
    thread = talk("join", "start", "join", "enqueue", "continue", "join")
    draft = thread.withdraw()
    assert types(draft) == ["message.completed", "run.cancelled", "run.cancelled", "message.completed"]
    assert said(thread) == [1, 2, 3, 5]
    assert [message.place for message in thread.messages] == [1, 2, 3, 4]
    assert [message.run for message in thread.messages] == [1, 0, 3, 0]
    assert {row.state for row in draft.commands} == {CommandState.WITHDRAWN}
    head = thread.head
    assert (head.queued, head.first_queued, head.pending, head.free_pending, head.first_pending) == (0, 0, 0, 0, 0)
    assert (head.run, head.messages, head.state) == (1, 4, State.RUNNING)


def test_taking_back_the_newest_alone_leaves_the_older_in_their_order() -> None:
    thread = talk("join", "start", "join", "enqueue", "enqueue", "join")
    newest = (thread.rows[4], thread.rows[5])
    thread.write(endings.withdraw_all(REF, thread.head, newest, reason="aborted_by_user", now=9))
    head = thread.head
    assert (head.queued, head.first_queued, head.pending, head.free_pending, head.first_pending) == (1, 3, 1, 1, 2)
    thread.end()
    assert (thread.head.run, thread.head.first_queued) == (2, 3)


def test_a_cancel_is_due_soon_and_never_later_than_what_was_due_before() -> None:
    head = talk("join", "start").head
    asked = endings.ask_cancel(replace(head, due_at=0), 7, 100)
    assert (asked.cancel, asked.cancel_at, asked.due_at) == (7, 100, 100 + queueing.CANCEL_GRACE)
    assert endings.ask_cancel(replace(head, due_at=150), 7, 100).due_at == 150
    assert endings.ask_cancel(replace(head, due_at=10**12), 7, 100).due_at == 100 + queueing.CANCEL_GRACE


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize(("queued", "pending", "full"), [(999, 0, False), (0, 999, False), (600, 400, True)])
def test_a_thread_is_full_when_runs_and_joins_together_reach_the_limit(queued: int, pending: int, full: bool) -> None:
    assert QUEUED_COMMANDS == 1000
    assert queueing.is_full(replace(NEW, queued=queued, pending=pending)) is full


def command(number: int, size: int) -> Command:
    """A command with a message of about this many bytes."""
    return Command(number=number, created_at=1, nonce="n", content=({"type": "text", "text": "x" * size},))


def test_one_write_places_at_most_so_many_messages() -> None:
    assert queueing.placeable([command(n, 10) for n in range(50)], 20) == 20
    assert queueing.placeable([command(n, 10) for n in range(5)], 20) == 5
    assert queueing.placeable([], 20) == 0


def test_one_write_places_no_more_than_fits_a_transaction_with_its_events() -> None:
    largest = [command(n, CONTENT_BYTES - 100) for n in range(20)]
    count = queueing.placeable(largest, 20)
    assert 1 < count < 20
    assert 2 * count * CONTENT_BYTES <= TRANSACTION_BYTES


def test_the_first_message_is_placed_however_large_it_is() -> None:
    assert queueing.placeable([command(1, 2 * queueing.PLACED_BYTES), command(2, 1)], 20) == 1


def test_joins_left_behind_by_the_thousand_are_bound_by_few_ranges() -> None:
    thread = talk("join", "start")
    for _ in range(QUEUED_COMMANDS):
        thread.accept()
    draft = thread.end(RunStatus.FAILED)
    assert len(draft.commands) == 2
    assert thread.rows[2].joins == ((3, QUEUED_COMMANDS + 1),)


# ---------------------------------------------------------------- whatever happens


def assert_counted(thread: Thread) -> None:
    """The numbers on the head are those of the rows."""
    head, queue, pending = thread.head, numbers(thread.queue()), numbers(thread.pending())
    free = [number for number in pending if number >= head.free_from]
    assert (head.commands, head.messages) == (len(thread.rows), len(thread.messages))
    assert (head.queued, head.first_queued) == (len(queue), min(queue, default=0))
    assert (head.pending, head.free_pending) == (len(pending), len(free))
    assert 0 < head.first_pending <= min(pending) if pending else head.first_pending == 0
    assert (head.state is State.RUNNING) == bool(head.run)
    assert head.run or not (queue or pending)
    assert [message.place for message in thread.messages] == list(range(1, head.messages + 1))
    alive = [thread.rows[number] for number in (head.run, *queue) if number]
    for number in set(pending) - set(free):
        assert sum(low <= number <= high for row in alive for low, high in row.joins) == 1


def assert_said_once(thread: Thread) -> None:
    """Each message that was accepted stands once in the conversation or waits, whole, in its command."""
    waiting = [number for number, row in thread.rows.items() if row.content is not None]
    with_message = [number for number, row in thread.rows.items() if row.place or row.content is not None]
    assert sorted([*said(thread), *waiting]) == sorted(with_message)
    for message, number in zip(thread.messages, said(thread), strict=True):
        assert thread.rows[number].place == message.place


walks = st.lists(st.sampled_from([*STEPS, "join", "join", "enqueue", "start", "start"]), min_size=5, max_size=40)


@moderate
@given(walks)
def test_after_every_write_the_head_counts_what_is_in_rows_and_every_message_is_kept(steps: list[str]) -> None:
    thread = Thread()
    for step in steps:
        STEPS[step](thread)
        assert_counted(thread)
        assert_said_once(thread)


@moderate
@given(walks)
def test_every_message_is_placed_exactly_once_and_runs_start_in_accepted_order(steps: list[str]) -> None:
    thread, messages = Thread(), set()
    for step in steps:
        commands = thread.head.commands
        STEPS[step](thread)
        if thread.head.commands > commands and step != "continue":
            messages.add(thread.head.commands)
    while thread.head.run:
        for step in ("start", "inject", "complete"):
            STEPS[step](thread)
        assert_counted(thread)
    assert sorted(said(thread)) == sorted(messages)
    assert thread.started == sorted(set(thread.started))
    assert [row.number for row in thread.rows.values() if row.state is CommandState.DONE] == thread.started
    assert {row.state for row in thread.rows.values()} <= {
        CommandState.DONE,
        CommandState.JOINED,
        CommandState.WITHDRAWN,
    }


@moderate
@given(walks)
def test_every_run_has_one_end_and_nothing_of_it_follows(steps: list[str]) -> None:
    thread = talk(*steps, *["start", "inject", "complete"] * len(steps))
    runs = {row.number for row in thread.rows.values() if row.is_run}
    for run in runs:
        own = [fact.type for fact in thread.facts if fact.run == run]
        ends = [kind for kind in own if kind in TERMINAL]
        assert ends == own[-1:]
