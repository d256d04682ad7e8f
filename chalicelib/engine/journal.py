"""The pen of an attempt: every write of a run goes through here, one after the other, under the lease's fencing token.

A write is a decision on the head (`decide`). If the head has moved, the journal looks why: the token is no longer ours
(LeaseLost: stop, write nothing more), somebody wants the run to end (CancelSeen), or others have appended (decide again
on what stands). It never decides again before the fate of the last write is known; the store sees to that.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain.errors import LeaseLost
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Head, Message
from chalicelib.domain.queueing import Draft, StaleHead, then
from chalicelib.engine.log import Log, commit_of
from chalicelib.engine.notes import ALONE, BESIDE, Notes, Room, Taken
from chalicelib.ports import Clock, Committed

Decide = Callable[[Head], Draft]


class CancelSeen(BaseException):
    """The run was asked to end. A BaseException so that nothing between here and the turn swallows it."""


@dataclass(frozen=True)
class CallIdsTaken(Exception):
    """Call ids that the thread has used before (I6)."""

    ids: frozenset[str]


class Journal:
    """Writes of one attempt. `head` is the head as this attempt last saw it."""

    def __init__(self, *, log: Log, clock: Clock, ref: ThreadRef, head: Head) -> None:
        self.ref = ref
        self.head = head
        self.run = head.run
        self.attempt = head.run_attempt
        self._nonce = head.lease_nonce
        self._log = log
        self._clock = clock
        self._writes = 0
        self._opening: Decide | None = None
        self._placed: list[Message] = []
        self.notes = Notes(clock=clock)
        self.others_wrote = False
        """True once the head has moved by somebody else's write: what is known of the thread may be old."""

    def open_with(self, decide: Decide) -> None:
        """What the first write of this attempt begins with, whatever else it says."""
        self._opening = decide

    @property
    def unopened(self) -> bool:
        """True while the attempt's opening has not been written."""
        return self._opening is not None

    def take_placed(self) -> list[Message]:
        """Messages that this attempt has placed since it was last asked."""
        placed, self._placed = self._placed, []
        return placed

    def put_away(self, value: Any) -> dict[str, Any]:
        """Store a JSON value as an object; only a later write makes it visible. A second call changes nothing."""
        return self._log.put_away(self.ref, value)

    def see(self, head: Head | None, *, own: int = 0) -> None:
        """Take note of the head as somebody read it, `own` writes after the last one seen. Raises LeaseLost,
        CancelSeen.
        """
        if head is None or (head.run, head.run_attempt, head.lease_nonce) != (self.run, self.attempt, self._nonce):
            raise LeaseLost
        if head.rev != self.head.rev + own:
            self.others_wrote = True
        self.head = head
        if head.cancel:
            raise CancelSeen

    def write(self, decide: Decide, *, progress: bool = False, ending: bool = False) -> Head:
        """Make a decision true; answers the head that it left. Notes that wait are stored with it, or before it if they
        are too many.

        `progress`: a new stored fact (the run is not stalling). `ending`: goes on in spite of a cancel.
        Raises LeaseLost, CancelSeen, CallIdsTaken, RetryLater.
        """
        left = len(self.notes.waiting)  # what tools note meanwhile must not hold this up for ever
        while left > 0 and self.notes.is_much:
            before = self.notes.settled
            self._write(lambda head: Draft(after=head), ALONE, progress=False, ending=ending)
            left -= self.notes.settled - before
        return self._write(decide, BESIDE, progress=progress, ending=ending)

    def _write(self, decide: Decide, room: Room, *, progress: bool, ending: bool) -> Head:
        self._writes += 1
        while True:
            if self.head.cancel and not ending:
                raise CancelSeen
            before, now = self.head, self._clock.now()
            notes = self.notes.take(room)
            try:
                draft = self._draft(before, notes, decide)
            except StaleHead:
                self._look_again(before, ending)
                continue
            after = replace(draft.after, stalls=0) if progress else draft.after
            name = f"{self.run}.{self.attempt}.{self._writes}"
            noted = notes.along(replace(draft, after=after), self.notes.calls)
            commit = commit_of(self.ref, before, noted, now=now, write=name)
            result = self._log.commit(commit)
            if isinstance(result, Committed):
                self.head, self._opening = result.head, None
                self.notes.settle(notes)
                self._placed += draft.messages
                return result.head
            if result.taken:
                raise CallIdsTaken(result.taken)
            self._see_moved(result.head, ending)

    def _look_again(self, before: Head, ending: bool) -> None:
        """What was read beside the head did not fit it: there must be a newer head."""
        head = self._log.store.open(self.ref).head
        if head is not None and head.rev == before.rev:
            raise RuntimeError(f"the rows of {self.ref.id} contradict its head at rev {head.rev}")
        self._see_moved(head, ending)

    def _draft(self, head: Head, notes: Taken, decide: Decide) -> Draft:
        def noted(at: Head) -> Draft:
            return then(notes.first(self.ref, at, self.attempt), decide)

        if self._opening is None:
            return noted(head)
        return then(self._opening(head), noted)

    def _see_moved(self, head: Head | None, ending: bool) -> None:
        try:
            self.see(head)
        except CancelSeen:
            if not ending:
                raise
