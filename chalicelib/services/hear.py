"""What children report to a thread that is not at work: it is told, and a run starts or goes on if one of them speaks
to the parent.

A thread whose run is in flight hears its children in its own turn. Here the head decides as everywhere: a write on it
tells what was in the inbox and names the run, so of two that hear at once one finds the inbox empty.
"""

from dataclasses import dataclass

from chalicelib.domain import children as family
from chalicelib.domain import queueing
from chalicelib.domain.commands import Delivery
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Head
from chalicelib.domain.queueing import Ask, Draft, then
from chalicelib.engine.attachments import Bag
from chalicelib.engine.files import added
from chalicelib.engine.log import commit_of
from chalicelib.engine.registry import reports
from chalicelib.ports import Committed, FileObjects, Store
from chalicelib.services.appending import Appender


@dataclass(frozen=True, kw_only=True)
class Hear:
    """Empties inboxes."""

    store: Store
    objects: FileObjects
    appender: Appender

    def run(self, ref: ThreadRef, head: Head) -> bool:
        """Hear what is there; True if a run may be taken up now. A second call finds nothing."""
        standing: Head | None = head
        for _ in self.appender.tries():
            if standing is None or not _listens(standing):
                return False
            draft = self._decide(ref, standing)
            if draft is None:
                return False
            commit = commit_of(ref, standing, draft, now=self.appender.clock.now(), write=self.appender.ids.token())
            result = self.appender.log.commit(commit)
            if isinstance(result, Committed) and result.head.run:
                return True
            standing = result.head  # heard in silence, or moved: there may be more
        raise AssertionError("tries end with RetryLater")

    def _decide(self, ref: ThreadRef, head: Head) -> Draft | None:
        heard = reports(self.store, ref)
        if not heard:
            return None
        now = self.appender.clock.now()
        if head.waiting:
            return queueing.resume(head, tuple(report.reference for report, _ in heard), now)
        nonce = self.appender.ids.token()
        ended = bool(head.terminated_at)
        told, brought = Bag(store=self.store, objects=self.objects).bring_home(ref, heard, now)
        draft = then(added(head, brought), lambda at: family.hear(ref, at, told, nonce=nonce, now=now, silently=ended))
        if ended or not family.wakes(heard):
            return draft
        go_on = Ask(content=None, metadata={}, delivery=Delivery.ENQUEUE, nonce=nonce)
        return then(draft, lambda at: queueing.accept(ref, at, go_on, now))


def _listens(head: Head) -> bool:
    """A thread at rest hears its children, and so does a run that waits for them."""
    if head.deleted_at:
        return False
    return not head.run or head.waiting == queueing.AWAITING_CHILDREN
