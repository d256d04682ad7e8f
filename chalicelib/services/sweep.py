"""The sweep: whatever is due is looked at and woken, settled, or put off. It makes every promise of "later" come true.

Due is a time on the head, set when work is accepted and cleared only by work being done. The index that finds it may be
stale, so each head is read again and claimed by a condition: two sweeps at once wake a thread once.
"""

import logging
from dataclasses import dataclass

from chalicelib.domain import effects
from chalicelib.domain.endings import Ending, cancel_reason
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Head, RunStatus
from chalicelib.domain.queueing import AWAITING_CHILDREN, CANCEL_GRACE, WAKE_GRACE, StaleHead
from chalicelib.engine import ending
from chalicelib.engine.log import commit_of
from chalicelib.ports import DUE_SHARDS, Committed, Store
from chalicelib.services.appending import Appender
from chalicelib.services.delete import Bury
from chalicelib.services.family import Family
from chalicelib.services.people import People

log = logging.getLogger(__name__)

#: Threads of one shard that one sweep looks at; more wait for the next.
THREADS_A_SHARD = 100
#: A thread that stalls is woken at growing distances, at most this far apart (microseconds).
LONGEST_BACKOFF = 60_000_000


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Looks at due threads."""

    store: Store
    appender: Appender
    people: People
    family: Family
    bury: Bury

    def run(self) -> int:
        """Look at everything that is due; answers how many threads were. A second run finds less, and wakes none
        twice.
        """
        now = self.appender.clock.now()
        looked = 0
        for shard in range(DUE_SHARDS):
            for due in self.store.due(shard, until=now, limit=THREADS_A_SHARD):
                if due.effect:
                    self._wake_effect(due.ref, due.effect)
                else:
                    self._look(due.ref)
                looked += 1
        return looked

    def _wake_effect(self, ref: ThreadRef, name: str) -> None:
        """An effect may take long, so it runs where turns run: name a wake-up for it, and send it."""
        now = self.appender.clock.now()
        claimed = self.store.claim_effect(ref, name, now=now, due_at=now + effects.WAKE_GRACE)
        if claimed is not None:
            self.appender.wake_effect(ref, claimed)

    def _look(self, ref: ThreadRef) -> None:
        now = self.appender.clock.now()
        head = self.store.open(ref).head
        if head is None:
            return
        if head.deleted_at:
            self._take_away(ref, head, now)
            return
        if head.closing:
            self.family.close(ref)
        if not head.due_at or head.due_at > now:
            self._wake_for_inbox(ref, head)
        elif not head.run:
            self.store.claim(ref, rev=head.rev, due_at=0, wake=False, epoch=False)
        elif head.waiting:
            self.people.expire(ref, head)
        elif head.cancel and (not head.leased(now) or head.cancel_at + CANCEL_GRACE <= now):
            self._settle(ref, head, now)
        elif head.leased(now):
            self.store.claim(ref, rev=head.rev, due_at=_end_of_patience(head), wake=False, epoch=False)
        else:
            self._wake(ref, head, now)

    def _take_away(self, ref: ThreadRef, head: Head, now: int) -> None:
        if head.due_at and head.due_at <= now:
            self.bury.run(ref, head)

    def _wake_for_inbox(self, ref: ThreadRef, head: Head) -> None:
        """Something in the inbox was due. Whoever works on the thread hears it; nobody else does without a wake-up, in
        a new epoch, since the one that was sent may lie with a runner that died.
        """
        resting = not head.run or head.waiting == AWAITING_CHILDREN
        if not resting or not self.store.inbox(ref, limit=1):
            return
        claimed = self.store.claim(ref, rev=head.rev, due_at=head.due_at, wake=True, epoch=True)
        if claimed is not None:
            self.appender.wake(ref, None, claimed)

    def _wake(self, ref: ThreadRef, head: Head, now: int) -> None:
        """Nobody works on the run: name a new wake-up and send it, in a new epoch. A runner that died holds the old
        group until its message is visible again, and it may have died before it took a lease that would tell of it.
        """
        backoff = min(LONGEST_BACKOFF, WAKE_GRACE * 2 ** min(head.stalls, 6))
        claimed = self.store.claim(ref, rev=head.rev, due_at=now + backoff, wake=True, epoch=True)
        if claimed is not None:
            log.info("woken", extra={"action": "woken", "thread_id": ref.id, "run_id": ref.run(head.run)})
            self.appender.wake(ref, None, claimed)

    def _settle(self, ref: ThreadRef, head: Head, now: int) -> None:
        """A cancelled run whose attempt is gone or does not listen: its lease is broken and the run ends here."""
        how = Ending(status=RunStatus.CANCELLED, reason=cancel_reason(head))
        try:
            draft = ending.end_lost_run(self.store, ref, head, how, now=now)
        except StaleHead:
            return  # still due: the next sweep looks again
        commit = commit_of(ref, head, draft, now=now, write=self.appender.ids.token())
        result = self.appender.log.commit(commit)
        if isinstance(result, Committed):
            self.appender.wake(ref, head, result.head)


def _end_of_patience(head: Head) -> int:
    """When to look again at a run whose attempt seems alive."""
    return min(head.lease_until, head.cancel_at + CANCEL_GRACE) if head.cancel else head.lease_until
