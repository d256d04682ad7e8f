"""Pushes stored rows to the subscribers of their threads. The stream says only that there is something to look for.

It must not know Lambda events or key layouts. It guarantees that what is pushed was read from the table, that a cursor
moves only after its rows were sent, and that one subscriber (gone, slow, refused) neither stops the others nor the
batch. Two runs for one thread at once may send a row twice; each sends from a cursor on, in order, so none can leave a
hole or swap rows.

Rows of a thread's log go to those who asked for them, as they come, and without a cursor: who was away lists them. They
wait for nobody, so a row may come before or after the events of its moment, and twice if a batch comes again.

Costs of a thread: one query for its subscribers, one read of events; one of log rows if somebody wants them. Of a
subscriber: one post a frame, one write of its cursor.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from chalicelib.domain.entries import row_body
from chalicelib.domain.errors import NotFound, RetryLater
from chalicelib.domain.frames import Frame, error_frame, live_frames, log_frame
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import RESPONSE_BYTES
from chalicelib.domain.wire import event_body
from chalicelib.ports import Clock, Directory, SocketGone, Sockets, Store, Subscriber
from chalicelib.services.credentials import Credentials

#: (pk, sk) of a row -> thread and last number, if the row is an event page.
PageOf = Callable[[str, str], tuple[ThreadRef, int] | None]
#: (pk, sk) of a row -> thread and key, if it is a row of a thread's log.
LogOf = Callable[[str, str], tuple[ThreadRef, str] | None]
#: (pk, sk) of a row -> thread, if it is a head.
HeadOf = Callable[[str, str], ThreadRef | None]

WORKERS = 32  # posts at a time of one process: each may take its whole second
_ROWS = 1_000  # of one read
_LOG_ROWS = 32  # of one read: a row may have some 300 KB
# A gateway that is busy says so at once: a refusal that came fast is worth these tries (seconds before each). One that
# took its whole second is not: the subscriber is left, and served from its cursor by the next batch.
_TRIES = (0.05, 0.2)
_FAST_SECONDS = 0.5

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class _Reader:
    """A subscriber in this batch. `left`: gone, not reached or without rights, so no more is sent to it now."""

    row: Subscriber
    cursor: int
    left: bool = False


@dataclass(kw_only=True)
class _Work:
    """A thread of this batch: its readers get what is stored up to the number `until` at least."""

    ref: ThreadRef
    until: int
    readers: list[_Reader] = field(default_factory=list)

    @property
    def open(self) -> list[_Reader]:
        """Readers that still miss something."""
        return [reader for reader in self.readers if not reader.left and reader.cursor < self.until]


class FanOut:
    """Serves a batch of the table's stream."""

    def __init__(
        self,
        *,
        store: Store,
        directory: Directory,
        sockets: Sockets,
        clock: Clock,
        credentials: Credentials,
        page_of: PageOf,
        log_of: LogOf,
        head_of: HeadOf,
    ) -> None:
        self._store = store
        self._directory = directory
        self._sockets = sockets
        self._clock = clock
        self._credentials = credentials
        self._page_of = page_of
        self._log_of = log_of
        self._head_of = head_of
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="fan-out")

    def run(self, keys: Iterable[tuple[str, str]]) -> None:
        """Push what the rows of these keys (pk, sk) announce. A second call with them finds nothing left to push.

        Raises RetryLater when the table cannot be read or a cursor not be moved; a post never raises.
        """
        failures: list[BaseException] = []
        written = list(keys)
        self._part(written, failures)
        pages, logged = self._touched(written), self._logged(written)
        listeners = {ref: self._listeners(ref, failures) for ref in dict.fromkeys((*pages, *logged))}
        telling = [job for ref, wanted in logged.items() for job in self._tell(ref, wanted, listeners[ref], failures)]
        works = [self._work(ref, until, listeners[ref]) for ref, until in pages.items()]
        while works := [work for work in works if work.open]:
            jobs = [job for work in works for job in self._serve_page(work, failures)]
            wait(jobs)
            failures += [error for job in jobs if (error := job.exception())]
        wait(telling)
        failures += [error for job in telling if (error := job.exception())]
        if failures:
            raise failures[0]

    def _part(self, keys: Iterable[tuple[str, str]], failures: list[BaseException]) -> None:
        """Tell the subscribers of threads that were deleted so, and forget their subscriptions: nothing more comes."""
        for ref in dict.fromkeys(ref for pk, sk in keys if (ref := self._head_of(pk, sk))):
            try:
                head = self._store.open(ref).head
                if head is None or head.deleted_at:
                    wait([self._pool.submit(self._dismiss, ref, row) for row in self._directory.subscribers(ref)])
            except RetryLater as error:
                failures.append(error)

    def _dismiss(self, ref: ThreadRef, row: Subscriber) -> None:
        self._directory.unsubscribe(ref, row.connection)
        try:
            self._post(row.connection, error_frame(NotFound(f"The thread {ref.id} has been deleted.")))
        except SocketGone:
            self._directory.disconnect(row.connection)
        except RetryLater as refusal:
            log.warning("connection %s was not told of a deletion: %s", row.connection, refusal)

    def _touched(self, keys: Iterable[tuple[str, str]]) -> Mapping[ThreadRef, int]:
        found: dict[ThreadRef, int] = {}
        for pk, sk in keys:
            if page := self._page_of(pk, sk):
                ref, last = page
                found[ref] = max(last, found.get(ref, 0))
        return found

    def _logged(self, keys: Iterable[tuple[str, str]]) -> Mapping[ThreadRef, Sequence[str]]:
        found: dict[ThreadRef, dict[str, None]] = {}
        for pk, sk in keys:
            if row := self._log_of(pk, sk):
                ref, key = row
                found.setdefault(ref, {})[key] = None
        return {ref: tuple(wanted) for ref, wanted in found.items()}

    def _listeners(self, ref: ThreadRef, failures: list[BaseException]) -> Sequence[Subscriber]:
        """Who listens now: those that are still catching up get what comes meanwhile at the end of that."""
        now = self._clock.now()
        try:
            return [row for row in self._directory.subscribers(ref) if row.catching_until <= now]
        except RetryLater as error:
            failures.append(error)
            return ()

    def _work(self, ref: ThreadRef, until: int, listeners: Sequence[Subscriber]) -> _Work:
        return _Work(ref=ref, until=until, readers=[_Reader(row=row, cursor=row.cursor) for row in listeners])

    def _tell(
        self, ref: ThreadRef, wanted: Sequence[str], listeners: Sequence[Subscriber], failures: list[BaseException]
    ) -> list[Future[None]]:
        """Send rows of the log to those who asked for them; nothing is read if nobody did."""
        readers = [_Reader(row=row, cursor=row.cursor) for row in listeners if row.logs]
        if not readers:
            return []
        frames: list[bytes] = []
        try:
            for first in range(0, len(wanted), _LOG_ROWS):
                rows = self._store.log_rows(ref, wanted[first : first + _LOG_ROWS])
                frames += [log_frame(row_body(ref, row)) for row in rows]
        except RetryLater as error:
            failures.append(error)
        return [self._pool.submit(self._show, reader, frames) for reader in readers]

    def _show(self, reader: _Reader, frames: Sequence[bytes]) -> None:
        if not self._credentials.still_valid(reader.row.key_sha256):
            return self._forget(reader, "its credential has ended")
        try:
            for frame in frames:
                self._post(reader.row.connection, frame)
        except SocketGone:
            self._forget(reader, "it is gone")
        except RetryLater as refusal:
            log.warning("connection %s misses rows of the log: %s", reader.row.connection, refusal)

    def _serve_page(self, work: _Work, failures: list[BaseException]) -> list[Future[None]]:
        """Read on from the smallest cursor, and send each reader what it has not seen of that."""
        readers = work.open
        after = min(reader.cursor for reader in readers)
        try:
            events = self._store.events(work.ref, after=after, limit=_ROWS, max_bytes=RESPONSE_BYTES)
        except RetryLater as error:
            failures.append(error)
            events = []
        if not events:  # not read, or a page before it is not there yet: then that page's own record will come
            work.readers.clear()
            return []
        rows = [event_body(work.ref, event) for event in events]
        ahead = [reader for reader in readers if reader.cursor < rows[-1]["delivery_seq"]]
        frames = {cursor: tuple(live_frames(rows[cursor - after :])) for cursor in {r.cursor for r in ahead}}
        return [self._pool.submit(self._serve, reader, frames[reader.cursor]) for reader in ahead]

    def _serve(self, reader: _Reader, frames: Sequence[Frame]) -> None:
        """Send, and then move the cursor over what was sent."""
        reader.left = True  # until all has gone well
        if not self._credentials.still_valid(reader.row.key_sha256):
            return self._forget(reader, "its credential has ended")
        sent, reached = reader.cursor, True
        try:
            for frame in frames:
                self._post(reader.row.connection, frame.data)
                sent = frame.covers
        except SocketGone:
            return self._forget(reader, "it is gone")
        except RetryLater as refusal:
            log.warning("connection %s is left for now: %s", reader.row.connection, refusal)
            reached = False
        moved = sent > reader.cursor and self._directory.move_cursor(reader.row, sent)
        reader.cursor = sent
        reader.left = not (reached and moved)  # not moved: it has unsubscribed meanwhile

    def _post(self, connection: str, data: bytes) -> None:
        for pause in _TRIES:
            began = self._clock.monotonic()
            try:
                return self._sockets.post(connection, data)
            except RetryLater:
                if self._clock.monotonic() - began > _FAST_SECONDS:
                    raise
            self._clock.sleep(pause)
        return self._sockets.post(connection, data)

    def _forget(self, reader: _Reader, why: str) -> None:
        log.info("connection %s is forgotten: %s", reader.row.connection, why)
        self._directory.disconnect(reader.row.connection)
