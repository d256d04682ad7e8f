"""The log against the rows: whatever is accepted, started, injected, ended or withdrawn, the fold is what is stored."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain import costs, endings, queueing, wire
from chalicelib.domain.commands import Delivery
from chalicelib.domain.endings import Ending
from chalicelib.domain.events import Event, Fact
from chalicelib.domain.fold import Fold, Folded, fold
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import About, Command, CommandState, Head, Message, ModelSpent, Role, RunStatus, Tokens
from chalicelib.domain.queueing import Ask, Draft

REF = ThreadRef("org_1", "a" * 20)
ABOUT = About(title="t", tags=("x",), arguments={"a": 1}, user=None)
SPENT = Tokens(input=3, output=2, cost_micro_usd=7)


class Stored:
    """A thread as its rows, written by the decisions of `domain.queueing`; the clock is the number of the write."""

    def __init__(self) -> None:
        self.head = Head(rev=1, agent="assistant", created_at=1, active_at=1, since=1)
        self.commands: dict[int, Command] = {}
        self.messages: list[Message] = []
        self.events: list[dict[str, Any]] = []
        self.now = 1
        told = {"agent": "assistant", "arguments": {"a": 1}, "title": "t", "tags": ["x"]}
        self.write(Draft(after=self.head, facts=(Fact(type="thread.created", data=told, at=1),)))

    def write(self, draft: Draft) -> None:
        """Store a decision."""
        self.head = draft.after
        self.commands |= {command.number: command for command in draft.commands}
        for message in draft.messages:
            assert message.place == len(self.messages) + 1
            self.messages.append(message)
        for fact in draft.facts:
            seq = len(self.events) + 1
            event = Event(seq=seq, type=fact.type, data=fact.data, at=fact.at, run=fact.run, attempt=fact.attempt)
            self.events.append(wire.event_body(REF, event))
        self.now += 1

    def waiting(self) -> list[Command]:
        """Queued runs and pending joins, the run in flight apart."""
        rows = (self.commands[number] for number in sorted(self.commands))
        return [row for row in rows if row.state is CommandState.QUEUED and row.number != self.head.run]

    def joins(self) -> list[Command]:
        """Pending joins that the run in flight may take in: bound to it, or free."""
        bound = self.commands[self.head.run].joins
        return [
            row
            for row in self.waiting()
            if row.is_pending_join
            and (row.number >= self.head.free_from or any(low <= row.number <= high for low, high in bound))
        ]

    def say(self, delivery: Delivery) -> None:
        """A user's message."""
        content = ({"type": "text", "text": f"m{self.now}"},)
        ask = Ask(content=content, metadata={"k": self.now}, delivery=delivery, nonce="n")
        self.write(queueing.accept(REF, self.head, ask, self.now))

    def start(self) -> None:
        """An attempt takes the run in flight and starts it."""
        if not self.head.run or self.head.run_started_at:
            return
        self.head = replace(self.head, run_attempt=1)
        row = self.commands[self.head.run]
        self.write(queueing.start(REF, self.head, row, now=self.now, model="offline:echo", version="7"))

    def inject(self) -> None:
        """The run in flight takes in some joins."""
        if self.head.run_started_at and (joins := tuple(self.joins()[:2])):
            free = sum(1 for join in joins if join.number >= self.head.free_from)
            self.write(queueing.inject(REF, self.head, joins, free=free, now=self.now))

    def answer(self) -> None:
        """A model step."""
        if not self.head.run_started_at:
            return
        run, step = self.head.run, self.head.run_steps + 1
        message = Message(
            place=self.head.messages + 1,
            id=REF.answer(run, step),
            run=run,
            role=Role.ASSISTANT,
            content=({"type": "text", "text": "yes"},),
            metadata={},
            created_at=self.now,
        )
        spent = {**wire.usage_body(SPENT), "model": "m", "cost_usd": wire.cost_usd(SPENT)}
        after = replace(
            self.head,
            messages=message.place,
            run_steps=step,
            run_usage=self.head.run_usage.plus(SPENT),
            model_calls=self.head.model_calls + 1,
        )
        facts = (
            Fact(type="message.completed", data={"message": wire.message_body(REF, message)}, at=self.now, run=run),
            Fact(type="usage.updated", data=spent, at=self.now, run=run, attempt=1),
        )
        self.write(Draft(after=after, facts=facts, messages=(message,)))

    def end(self, status: RunStatus) -> None:
        """The run in flight ends and leaves its joins behind."""
        if not self.head.run_started_at:
            return
        reasons = {RunStatus.COMPLETED: "max_steps", RunStatus.FAILED: "model_error"}
        ending = Ending(status=status, reason=reasons.get(status, "aborted_by_user"), label="yes")
        runs = [row.number for row in self.waiting() if row.is_run]
        self.write(
            endings.end(
                REF,
                self.head,
                self.commands[self.head.run],
                ending,
                promoted=next(iter(self.joins()), None),
                first_queued=runs[1] if len(runs) > 1 else 0,
                now=self.now,
                balance=self.balance,
            )
        )

    @property
    def balance(self) -> tuple[ModelSpent, ...]:
        """What stands on the row of the run that ended last."""
        return self.commands[self.head.balance_at].balance if self.head.balance_at else ()

    def cancel_queued(self) -> None:
        """The last run of the queue is cancelled before it starts."""
        runs = [row for row in self.waiting() if row.is_run]
        if runs:
            ranges = runs[-1].joins
            joins = [row for row in self.waiting() if row.is_pending_join]
            bound = [join for join in joins if any(low <= join.number <= high for low, high in ranges)]
            first = runs[0].number if len(runs) > 1 else 0
            self.write(
                endings.end_queued(
                    REF,
                    self.head,
                    runs[-1],
                    reason="aborted_by_user",
                    promoted=next(iter(bound), None),
                    first_queued=first,
                    now=self.now,
                )
            )

    def withdraw(self) -> None:
        """All that waits is taken back."""
        rows = tuple(self.waiting())
        if rows:
            self.write(endings.withdraw_all(REF, self.head, rows, reason="aborted_by_user", now=self.now))


STEPS: dict[str, Callable[[Stored], None]] = {
    "join": lambda thread: thread.say(Delivery.JOIN),
    "enqueue": lambda thread: thread.say(Delivery.ENQUEUE),
    "start": Stored.start,
    "inject": Stored.inject,
    "answer": Stored.answer,
    "complete": lambda thread: thread.end(RunStatus.COMPLETED),
    "fail": lambda thread: thread.end(RunStatus.FAILED),
    "cancel": lambda thread: thread.end(RunStatus.CANCELLED),
    "cancel queued": Stored.cancel_queued,
    "withdraw": Stored.withdraw,
}
steps = st.lists(st.sampled_from([*STEPS, "join", "enqueue", "start", "answer", "join"]), min_size=10, max_size=40)


def assert_equal(folded: Folded, thread: Stored) -> None:
    """The fold says what the rows say, in the bodies that clients get."""
    placed = [wire.message_body(REF, message) for message in thread.messages]
    unplaced = [row for _, row in sorted(thread.commands.items()) if row.content is not None and not row.place]
    shown = wire.thread_body(REF, thread.head, ABOUT)
    assert folded.messages == placed + [wire.pending_body(REF, row) for row in unplaced]
    assert folded.pending == [REF.user_message(row.number) for row in unplaced if row.is_pending_join]
    assert (folded.status, folded.queue) == (shown["status"], shown["queue"])
    assert {name: folded.thread[name] for name in ("agent", "title", "tags", "arguments")} == {
        name: shown[name] for name in ("agent", "title", "tags", "arguments")
    }
    stored = [wire.run_body(REF, row, thread.head) for row in thread.commands.values() if row.is_run]
    same = ("status", "usage", "cost_usd", "command_id", "attempts")
    assert {run["id"]: [run[name] for name in same] for run in stored} == {
        number: [run[name] for name in same] for number, run in folded.runs.items()
    }
    model = thread.commands[thread.head.run].model if thread.head.run else None
    spent = costs.so_far(thread.balance, thread.head, model)
    assert sum(line.input for line in spent) == folded.usage["input_tokens"]
    assert sum(line.output for line in spent) == folded.usage["output_tokens"]
    assert sum(line.cost_micro_usd for line in spent) / 1_000_000 == folded.cost_usd
    assert sum(line.requests for line in spent) == sum(event["type"] == "usage.updated" for event in thread.events)
    assert {run["id"]: run.get("reason") for run in stored} == {n: run["reason"] for n, run in folded.runs.items()}


@settings(max_examples=200, deadline=None)
@given(steps)
def test_folding_the_log_gives_the_stored_messages_runs_status_and_queue_after_every_write(names: list[str]) -> None:
    thread, paged = Stored(), Fold()
    for name in names:
        STEPS[name](thread)
        paged.feed(thread.events)
        assert_equal(paged.folded(), thread)
    assert fold(thread.events) == paged.feed(thread.events).folded()
