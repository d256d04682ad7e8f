"""Deletion: a tombstone takes the place of the head, and what stood below it is taken away after that.

From the tombstone on the thread is unknown to every door but the one that tells its cost, and no late write brings
anything back: what conditions on the head finds another one, what conditions on the thread finds it deleted. The sweep
takes away rows and objects, and looks once more when nothing that was under way can still be alive. Deleted children
are found by the registry, which goes first.
"""

from dataclasses import dataclass

from chalicelib.domain import endings, purging
from chalicelib.domain.commands import Answer, Principal
from chalicelib.domain.entries import PICO
from chalicelib.domain.errors import NotFound, RetryLater
from chalicelib.domain.frames import error_frame
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import ChildKind, Head
from chalicelib.domain.queueing import Draft
from chalicelib.engine.log import commit_of
from chalicelib.engine.registry import registry
from chalicelib.ports import Committed, Directory, Purge, SocketGone, Sockets, Store
from chalicelib.services.appending import Appender, alive, known
from chalicelib.services.cost import Cost

#: One sweep spends this long on one thread; the next goes on where it stopped.
SECONDS_A_PASS = 5.0


@dataclass(frozen=True, kw_only=True)
class Delete:
    """Deletes threads."""

    store: Store
    appender: Appender
    cost: Cost

    def delete_thread(self, p: Principal, thread_id: str) -> Answer:
        """202 {deleted_at}: gone for everybody, and being taken away. Raises NotFound, also the second time."""
        ref = known(p.org, thread_id)
        return Answer(status=202, body={"deleted_at": self.bury(ref)})

    def bury(self, ref: ThreadRef) -> int:
        """Put the tombstone; answers its instant. Raises NotFound."""
        total = self._total(ref)
        standing = self.store.open(ref).head
        for _ in self.appender.tries():
            head, now = alive(standing), self.appender.clock.now()
            draft = endings.tombstone(head, total, now)
            result = self.appender.log.commit(commit_of(ref, head, draft, now=now, write=self.appender.ids.token()))
            if isinstance(result, Committed):
                return now
            standing = result.head
        raise AssertionError("tries end with RetryLater")

    def _total(self, ref: ThreadRef) -> int:
        return round(self.cost.of_tree(ref) * PICO)


@dataclass(frozen=True, kw_only=True)
class Bury:
    """Takes away what deleted threads have left. `sizes`: numbers in a block of each family; `day`: of the log."""

    store: Store
    purge: Purge
    directory: Directory
    sockets: Sockets
    appender: Appender
    delete: Delete
    sizes: dict[str, int]
    call_shards: int
    day: int

    def run(self, ref: ThreadRef, head: Head) -> None:
        """Take away what is there, for a bounded time. Raises RetryLater; the sweep comes again in any case."""
        now, until = self.appender.clock.now(), self.appender.clock.monotonic() + SECONDS_A_PASS
        self._dismiss(ref)
        for child in registry(self.store, ref):
            if child.kind is ChildKind.THREAD:
                self._with(ThreadRef(ref.org, child.token))
        for family in purging.WHOLE:
            self.purge.rows(ref, family)
        self.purge.beside(ref)
        for family, block in purging.blocks(head, self.sizes, self.call_shards, self.day, now):
            if self.appender.clock.monotonic() > until:
                return self._note(ref, head, purging.stopped_at(head, family, block, self.sizes))
            self.purge.rows(ref, family, block)
        self.purge.objects(ref)
        self._note(ref, head, purging.looked_through(head, now))

    def _dismiss(self, ref: ThreadRef) -> None:
        """Subscribers are told, once, and forgotten."""
        for reader in self.directory.subscribers(ref):
            self.directory.unsubscribe(ref, reader.connection)
            try:
                self.sockets.post(reader.connection, error_frame(NotFound("The thread was deleted.")))
            except (SocketGone, RetryLater):
                continue

    def _with(self, ref: ThreadRef) -> None:
        try:
            self.delete.bury(ref)
        except NotFound:
            return  # it was never made, or is deleted already

    def _note(self, ref: ThreadRef, head: Head, after: Head) -> None:
        """Keep how far it has come. Nobody else writes to a tombstone but another sweep, which does the same."""
        now = self.appender.clock.now()
        self.appender.log.commit(commit_of(ref, head, Draft(after=after), now=now, write=self.appender.ids.token()))
