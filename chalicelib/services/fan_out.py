"""Pushes stored rows to the subscribers of their threads. The stream says only that there is something to look for.

It must not know Lambda events or key layouts. It guarantees that what is pushed was read from the table, that a cursor
moves only after its rows were sent, and that one subscriber (gone, slow, refused) neither stops the others nor the
batch. Two runs for one thread at once may send a row twice; each sends from a cursor on, in order, so none can leave a
hole or swap rows.

Costs of a thread: one query for its subscribers, one read of events. Of a subscriber: one post a frame, one write of
its cursor.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from chalicelib.domain.errors import RetryLater
from chalicelib.domain.frames import Frame, live_frames
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import RESPONSE_BYTES
from chalicelib.domain.wire import event_body
from chalicelib.ports import Clock, Directory, SocketGone, Sockets, Store, Subscriber
from chalicelib.services.credentials import Credentials

#: (pk, sk) of a row -> thread and last number, if the row is an event page.
PageOf = Callable[[str, str], tuple[ThreadRef, int] | None]

WORKERS = 32  # posts at a time of one process: each may take its whole second
_ROWS = 1_000  # of one read
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
    ) -> None:
        self._store = store
        self._directory = directory
        self._sockets = sockets
        self._clock = clock
        self._credentials = credentials
        self._page_of = page_of
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="fan-out")

    def run(self, keys: Iterable[tuple[str, str]]) -> None:
        """Push what the rows of these keys (pk, sk) announce. A second call with them finds nothing left to push.

        Raises RetryLater when the table cannot be read or a cursor not be moved; a post never raises.
        """
        failures: list[BaseException] = []
        works = [self._work(ref, until, failures) for ref, until in self._touched(keys).items()]
        while works := [work for work in works if work.open]:
            jobs = [job for work in works for job in self._serve_page(work, failures)]
            wait(jobs)
            failures += [error for job in jobs if (error := job.exception())]
        if failures:
            raise failures[0]

    def _touched(self, keys: Iterable[tuple[str, str]]) -> Mapping[ThreadRef, int]:
        found: dict[ThreadRef, int] = {}
        for pk, sk in keys:
            if page := self._page_of(pk, sk):
                ref, last = page
                found[ref] = max(last, found.get(ref, 0))
        return found

    def _work(self, ref: ThreadRef, until: int, failures: list[BaseException]) -> _Work:
        now = self._clock.now()
        work = _Work(ref=ref, until=until)
        try:
            rows = [row for row in self._directory.subscribers(ref) if row.catching_until <= now]
            work.readers += [_Reader(row=row, cursor=row.cursor) for row in rows]
        except RetryLater as error:
            failures.append(error)
        return work

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
