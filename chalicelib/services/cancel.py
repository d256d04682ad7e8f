"""Ending work: `run.cancel` of one run, `stop` and `terminate` of a thread. A cancel is a durable fact about one run
(spec section 7).

A run that some attempt may be working on is asked to end: after the 202 it ends `cancelled`, because its terminal
write is
conditional on no cancel. A run without a live lease is settled by the cancel's own transaction. Asking twice changes
nothing.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from chalicelib.domain import endings, queueing, wire
from chalicelib.domain.commands import Answer, Idempotency, Principal
from chalicelib.domain.endings import Ending
from chalicelib.domain.errors import KeyReused, NotFound
from chalicelib.domain.ids import ThreadRef, numbered
from chalicelib.domain.model import Command, CommandState, Head, RunStatus
from chalicelib.domain.queueing import Draft, StaleHead, then
from chalicelib.engine.log import commit_of
from chalicelib.engine.waiting import commands_between, next_queued, oldest_join
from chalicelib.ports import Moved, Remembered, Store
from chalicelib.services.appending import Appender, alive, kept_key, known

#: Commands that one write of `stop?all=true` takes back: row and message each, in a transaction of at most 90 actions.
WITHDRAWN_A_WRITE = 30


class _Plan(NamedTuple):
    """What a cancel comes to on this head: nothing to write (`draft` None), or a draft and the code to answer."""

    status: int
    run: int
    command: int = 0
    draft: Draft | None = None


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """Cancels runs and stops threads."""

    store: Store
    appender: Appender

    def cancel_run(self, p: Principal, run_id: str, idem: Idempotency | None) -> Answer:
        """202 {command, run} when the run is asked to end; 200 if it was queued, settled, or asked before."""
        found = numbered(p.org, "run", run_id)
        if found is None:
            raise NotFound
        ref, number = found
        return self._end(ref, idem, number=number, everything=False)

    def stop(self, p: Principal, thread_id: str, everything: bool, idem: Idempotency | None) -> Answer:
        """Cancel the run in flight; `everything` takes back what is queued and pending too. 202, or 200 if nothing
        ran.
        """
        return self._end(known(p.org, thread_id), idem, number=0, everything=everything)

    def terminate(self, p: Principal, thread_id: str, idem: Idempotency | None) -> Answer:
        """The thread takes no more work: what is in flight is cancelled, what is queued and pending taken back; the
        sweep does what a crash leaves of that. 200 {thread, command, run}, also for one that was terminated before.
        """
        ref = known(p.org, thread_id)
        ended = self._end(ref, idem, number=0, everything=True, terminate=True)
        opened = self.store.open(ref, about=True)
        assert opened.about is not None, "a thread is created with its about row"
        head = self.take_back(ref, opened.head)
        thread = wire.thread_body(ref, alive(head), opened.about)
        return replace(ended, status=200, body={"thread": thread, **ended.body})

    def take_back(self, ref: ThreadRef, head: Head | None) -> Head | None:
        """Take back what is still queued and pending of a terminated thread; answers the head that is left. Raises
        NotFound if it has been deleted meanwhile.
        """
        if head is None or not head.terminated_at or not (head.queued or head.pending):
            return head
        self._withdraw(ref, head, to_the_last=True)
        self._end(ref, None, number=0, everything=True, terminate=True)  # a run of them may have been named meanwhile
        return self.store.open(ref).head

    def _end(
        self, ref: ThreadRef, idem: Idempotency | None, *, number: int, everything: bool, terminate: bool = False
    ) -> Answer:
        nonce = self.appender.ids.token()
        for _ in self.appender.tries():
            now = self.appender.clock.now()
            opened = self.store.open(ref, commands=[number] if number else [], key=idem.key if idem else None, now=now)
            head = alive(opened.head)
            if number and (number not in opened.commands or not opened.commands[number].is_run):
                raise NotFound
            if idem is not None and opened.remembered is not None:
                return self._replay(ref, head, opened.remembered, idem)
            if everything and not terminate:
                head = alive(self._withdraw(ref, head, to_the_last=False))
            key = idem.key if idem else None
            try:
                taken_back = self._taken_back(ref, head, now, everything=everything, terminate=terminate)
                plan = self._plan(ref, taken_back, number or head.run, key=key, nonce=nonce, now=now)
            except StaleHead:
                continue
            after = self._write(ref, head, plan, idem, nonce, now)
            if after is not None:
                return self._answer(ref, after, plan)
        raise AssertionError("tries end with RetryLater")

    def _taken_back(self, ref: ThreadRef, head: Head, now: int, *, everything: bool, terminate: bool) -> Draft:
        """What is queued and pending is withdrawn, and the thread terminated, as asked."""
        begun = endings.terminate(head, now) if terminate and not head.terminated_at else Draft(after=head)
        if not everything:
            return begun
        taken_back = then(begun, lambda at: self._withdrawal(ref, at, self._waiting(ref, at), now))
        return replace(taken_back, after=endings.left_over(taken_back.after))

    def _plan(self, ref: ThreadRef, taken_back: Draft, number: int, *, key: str | None, nonce: str, now: int) -> _Plan:
        """What becomes of run `number` (0: none) behind what is taken back already."""
        head = taken_back.after
        changed = taken_back if taken_back.commands or taken_back.facts else None
        if not number:
            return _Plan(status=200, run=0, draft=changed)
        run = self.store.open(ref, head=False, commands=[number]).commands[number]
        if run.status.ended:
            return _Plan(status=200, run=number, command=run.cancelled_by, draft=changed)
        if head.run == number and head.cancel:
            return _Plan(status=200, run=number, command=head.cancel, draft=changed)
        from chalicelib.engine import ending  # most cancels end nothing by themselves

        asked = _asked(head, run, key, nonce, now)
        noted = replace(taken_back, after=replace(head, commands=asked.number), commands=(*taken_back.commands, asked))
        if run.parked is not None:
            row, how = replace(run, cancelled_by=asked.number), _by_request(head)
            settled = then(noted, lambda at: ending.end_parked(self.store, ref, at, row, how, now=now))
            return _Plan(status=200, run=number, command=asked.number, draft=settled)
        if head.run != number:
            row = replace(run, cancelled_by=asked.number)
            settled = then(noted, lambda at: self._end_queued(ref, at, row, now))
            return _Plan(status=200, run=number, command=asked.number, draft=settled)
        if head.leased(now):
            asking = then(noted, lambda at: Draft(after=endings.ask_cancel(at, asked.number, now)))
            return _Plan(status=202, run=number, command=asked.number, draft=asking)
        how = _by_request(head)
        named = replace(noted, after=replace(noted.after, cancel=asked.number))
        lost = then(named, lambda at: ending.end_lost_run(self.store, ref, at, how, now=now))
        status = 202 if head.run_started_at and not head.waiting else 200
        return _Plan(status=status, run=number, command=asked.number, draft=lost)

    def _end_queued(self, ref: ThreadRef, head: Head, run: Command, now: int) -> Draft:
        first = head.first_queued
        if first == run.number:
            first = next_queued(self.store, ref, head, after=run.number) if head.queued > 1 else 0
        left = oldest_join(self.store, ref, run.joins)
        return endings.end_queued(
            ref, head, run, reason=endings.cancel_reason(head), promoted=left, first_queued=first, now=now
        )

    def _withdrawal(self, ref: ThreadRef, head: Head, waiting: list[Command], now: int) -> Draft:
        """As much of what waits as one write takes back: the newest, so that what is left keeps its first."""
        newest = waiting[-queueing.placeable(reversed(waiting), WITHDRAWN_A_WRITE) :] if waiting else []
        return endings.withdraw_all(ref, head, tuple(newest), reason=endings.cancel_reason(head), now=now)

    def _waiting(self, ref: ThreadRef, head: Head) -> list[Command]:
        """Queued runs and pending joins, oldest first; never the run in flight."""
        low = min((n for n in (head.first_queued, head.first_pending) if n), default=0)
        if not low:
            return []
        return [
            row
            for row in commands_between(self.store, ref, low, head.commands)
            if row.state is CommandState.QUEUED and row.kind == "run.create" and row.number != head.run
        ]

    def _withdraw(self, ref: ThreadRef, head: Head | None, *, to_the_last: bool) -> Head | None:
        """A queue is shortened from its end, so that nothing of it starts: `to_the_last` command, or until one write
        takes back what is left.
        """
        while head is not None and not head.deleted_at and (waiting := self._waiting(ref, head)):
            if not to_the_last and queueing.placeable(waiting, WITHDRAWN_A_WRITE) == len(waiting):
                break
            now = self.appender.clock.now()
            draft = self._withdrawal(ref, head, waiting, now)
            commit = commit_of(ref, head, draft, now=now, write=self.appender.ids.token())
            head = self.appender.log.commit(commit).head
        return head

    def _write(
        self, ref: ThreadRef, head: Head, plan: _Plan, idem: Idempotency | None, nonce: str, now: int
    ) -> Head | None:
        """Make the plan true and keep the key; None when somebody was faster."""
        keep = kept_key(ref, idem, nonce=nonce, now=now, command=plan.command) if idem else None
        if plan.draft is None:
            if keep is not None and self.store.remember(ref.org, keep, now).nonce != nonce:
                return None
            return head
        commit = commit_of(ref, head, plan.draft, now=now, write=nonce, remember=keep)
        result = self.appender.log.commit(commit)
        if isinstance(result, Moved):
            return None
        self.appender.wake(ref, head, result.head)
        return result.head

    def _replay(self, ref: ThreadRef, head: Head, seen: Remembered, idem: Idempotency) -> Answer:
        if seen.fingerprint != idem.fingerprint or seen.token != ref.token:
            raise KeyReused
        run = self._command(ref, seen.command).run if seen.command else 0
        answer = self._answer(ref, head, _Plan(status=200, run=run, command=seen.command))
        return replace(answer, replayed=True)

    def _answer(self, ref: ThreadRef, head: Head, plan: _Plan) -> Answer:
        body: dict[str, Any] = {"command": None, "run": None}
        if plan.command:
            body["command"] = wire.command_body(ref, self._command(ref, plan.command), head)
        if plan.run:
            body["run"] = wire.run_body(ref, self._command(ref, plan.run), head)
        return Answer(status=plan.status, body=body)

    def _command(self, ref: ThreadRef, number: int) -> Command:
        return self.store.open(ref, head=False, commands=[number]).commands[number]


def _by_request(head: Head) -> Ending:
    return Ending(status=RunStatus.CANCELLED, reason=endings.cancel_reason(head))


def _asked(head: Head, run: Command, key: str | None, nonce: str, now: int) -> Command:
    """The run.cancel command."""
    return Command(
        number=head.commands + 1,
        kind="run.cancel",
        state=CommandState.STARTED,
        delivery="",
        created_at=now,
        nonce=nonce,
        key=key,
        run=run.number,
    )
