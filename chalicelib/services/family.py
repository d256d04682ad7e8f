"""The end of a thread reaches its queue and its children: all of a terminated thread, and the children that a cancelled
call waited for.

It is done after the write that ended the parent, top-down and again until it is whole: first the row of the registry is
closed, so that the child can neither be made nor report any more, then the child is terminated, which closes its own
children in the same way. A second pass finds less to do, and the last one clears the mark on the head.
"""

from dataclasses import dataclass

from chalicelib.domain.errors import NotFound
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import RUNNING, Child, ChildKind, Head, Report, replace
from chalicelib.domain.queueing import Draft
from chalicelib.engine.log import commit_of
from chalicelib.engine.registry import registry
from chalicelib.ports import Committed, Store
from chalicelib.services.appending import Appender, the_house
from chalicelib.services.cancel import Cancel

TERMINATED = "terminated"


@dataclass(frozen=True, kw_only=True)
class Family:
    """Ends children with their parents."""

    store: Store
    appender: Appender
    cancel: Cancel

    def close(self, ref: ThreadRef) -> None:
        """End what is queued, and the children that have to be ended. Raises RetryLater: the sweep comes again."""
        head = self.store.open(ref).head
        if head is None or not head.closing:
            return
        try:
            head = self.cancel.take_back(ref, head)
        except NotFound:
            return
        if head is None:
            return
        for child in registry(self.store, ref):
            if child.kind is ChildKind.THREAD and _has_to_end(head, child):
                self._end(ref, child)
        self._is_closed(ref, head)

    def _end(self, ref: ThreadRef, child: Child) -> None:
        if child.status == RUNNING:
            now = self.appender.clock.now()
            told = Report(key=f"{child.reference}.closed", reference=child.reference, outcome=TERMINATED, at=now)
            if self.store.report(ref, told):
                self.appender.log.wake_for(ref, told.key)
        below = ThreadRef(ref.org, child.token)
        try:
            self.cancel.terminate(the_house(ref.org), below.id, None)
        except NotFound:
            return  # it was never made, or is deleted
        self.close(below)

    def _is_closed(self, ref: ThreadRef, head: Head) -> None:
        """Clear the mark, unless the head has moved: then there may be more."""
        now = self.appender.clock.now()
        draft = Draft(after=replace(head, closing=False))
        commit = commit_of(ref, head, draft, now=now, write=self.appender.ids.token())
        result = self.appender.log.commit(commit)
        if not isinstance(result, Committed):
            return  # still due: the next sweep looks again


def _has_to_end(head: Head, child: Child) -> bool:
    """All of a terminated thread; else those that the parent has let go."""
    return bool(head.terminated_at) or child.muted
