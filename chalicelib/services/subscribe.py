"""Frames of clients: subscribe, unsubscribe, ping. A subscriber gets the status first, then the rows it has not seen.

It must not know Lambda events or how a row is stored. It guarantees that a subscription to nothing, to a foreign or to
a deleted thread leaves nothing behind, that between the last replayed row and the first pushed one there is no gap, and
that whatever a client sends costs it an `error` frame at most: the socket stays open.

    put the row (catching up) -> status -> replay -> flip to live -> read once more -> caught_up

The order is the proof: before the flip fan-out leaves this subscriber alone, and what was stored before the flip is
found by the read after it. So a row may be sent twice around the flip, and none can be missed.
"""

from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain.errors import NotFound, Refusal, RetryLater, Unauthorized
from chalicelib.domain.frames import (
    Follow,
    Leave,
    asked,
    caught_up_frame,
    error_frame,
    live_frames,
    pong_frame,
    status_frame,
)
from chalicelib.domain.ids import ThreadRef, thread_ref
from chalicelib.domain.limits import FRAME_BYTES, RESPONSE_BYTES
from chalicelib.domain.model import Head
from chalicelib.domain.wire import event_body, status_body
from chalicelib.ports import Clock, Connection, Directory, SocketGone, Sockets, Store, Subscriber
from chalicelib.services.credentials import Credentials

CATCHING_SECONDS = 30  # API Gateway ends a websocket integration after 29 s: by then this replay is over or dead
_ROWS = 1_000  # of one read: small rows must not make a page of 100,000 objects
_READ_BYTES = RESPONSE_BYTES // 4  # what a replay holds in memory at a time


@dataclass(kw_only=True)
class _Replay:
    """How far a replay has come. `known`: the snapshot that was sent is not older than this number."""

    ref: ThreadRef
    connection: str
    cursor: int
    known: int
    sent_bytes: int = 0

    @property
    def is_full(self) -> bool:
        """True once another frame could bring it above the limit."""
        return self.sent_bytes > RESPONSE_BYTES - FRAME_BYTES


class Subscribe:
    """What a client asks on its socket."""

    def __init__(
        self, *, store: Store, directory: Directory, sockets: Sockets, clock: Clock, credentials: Credentials
    ) -> None:
        self._store = store
        self._directory = directory
        self._sockets = sockets
        self._clock = clock
        self._credentials = credentials

    def message(self, connection_id: str, body: Any) -> None:
        """Do what a parsed frame asks for. A refusal is told on the socket; a second call does it again."""
        try:
            self._answer(connection_id, body)
        except SocketGone:
            self._directory.disconnect(connection_id)
        except Refusal as refusal:
            self.refuse(connection_id, refusal)

    def refuse(self, connection_id: str, refusal: Refusal) -> None:
        """Tell a client what was wrong with its frame, as far as it can be reached."""
        try:
            self._sockets.post(connection_id, error_frame(refusal))
        except SocketGone:
            self._directory.disconnect(connection_id)
        except RetryLater:
            return  # nobody to tell: the client asks again when no answer comes

    def disconnect(self, connection_id: str) -> None:
        """Forget a closed socket; twice changes nothing."""
        self._directory.disconnect(connection_id)

    def _answer(self, connection_id: str, body: Any) -> None:
        ask = asked(body)
        if isinstance(ask, Follow):
            self._follow(self._admitted(connection_id), ask)
        elif isinstance(ask, Leave):
            connection = self._admitted(connection_id)
            self._directory.unsubscribe(_thread(connection, ask.thread_id), connection.id)
        else:
            self._sockets.post(connection_id, pong_frame())

    def _admitted(self, connection_id: str) -> Connection:
        connection = self._directory.connection(connection_id)
        if connection is None:
            raise Unauthorized("This connection is not known; connect again with a new ticket.")
        if not self._credentials.still_valid(connection.key_sha256):
            self._directory.disconnect(connection_id)
            raise Unauthorized("The credential of this connection is no longer valid.")
        return connection

    def _follow(self, connection: Connection, ask: Follow) -> None:
        ref = _thread(connection, ask.thread_id)
        head = self._still_there(ref)
        row = self._row(ref, connection, ask, min(ask.after, head.seq))
        self._directory.subscribe(row)
        try:
            self._catch_up(ref, row, self._still_there(ref))
        except (RetryLater, NotFound):
            self._directory.unsubscribe(ref, connection.id)  # the client is told, and asks again
            raise

    def _still_there(self, ref: ThreadRef) -> Head:
        """The head as it stands. It is read before the row is put and again after: whoever deletes the thread after
        that finds the row, and tells its end.
        """
        head = self._store.open(ref).head
        if head is None or head.deleted_at:
            raise NotFound
        return head

    def _row(self, ref: ThreadRef, connection: Connection, ask: Follow, cursor: int) -> Subscriber:
        return Subscriber(
            connection=connection.id,
            token=ref.token,
            org=ref.org,
            cursor=cursor,
            catching_until=self._clock.now() + CATCHING_SECONDS * 1_000_000,
            key_sha256=connection.key_sha256,
            logs=ask.logs,
        )

    def _catch_up(self, ref: ThreadRef, row: Subscriber, head: Head) -> None:
        self._sockets.post(row.connection, status_frame(ref.id, status_body(head)))
        replay = _Replay(ref=ref, connection=row.connection, cursor=row.cursor, known=head.seq)
        self._send(replay, until=head.seq)
        if not replay.is_full:
            if not self._directory.move_cursor(row, replay.cursor, live=True):
                return  # it was ended meanwhile, by the client or by its end
            flipped = replay.cursor
            self._send(replay, until=None)
            if replay.cursor > flipped and not replay.is_full:
                self._directory.move_cursor(replace(row, catching_until=0), replay.cursor)
        if replay.is_full:
            self._directory.unsubscribe(ref, row.connection)
        self._sockets.post(row.connection, caught_up_frame(ref.id, replay.cursor, more=replay.is_full))

    def _send(self, replay: _Replay, *, until: int | None) -> None:
        """Send rows up to a number, or (None) all that are stored, until the replay is full.

        A head may count a page that a query does not find yet: then the rest comes after the flip, or by fan-out.
        """
        while (until is None or replay.cursor < until) and not replay.is_full:
            found = self._store.events(replay.ref, after=replay.cursor, limit=_ROWS, max_bytes=_READ_BYTES)
            if not found:
                return
            rows = [event_body(replay.ref, event) for event in found]
            for frame in live_frames(rows, known=replay.known):
                self._sockets.post(replay.connection, frame.data)
                replay.sent_bytes += len(frame.data)
                replay.cursor = frame.covers
                if frame.whole and replay.is_full:
                    return


def _thread(connection: Connection, thread_id: str) -> ThreadRef:
    ref = thread_ref(connection.org, thread_id)
    if ref is None:
        raise NotFound
    return ref
