"""The table as services and engine see it: API keys, and threads as they are read and written."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from chalicelib.domain.entries import LogRow
from chalicelib.domain.events import Event, Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import About, Call, Child, Command, Effect, File, Head, Inquiry, Message, Report, Value

DUE_SHARDS = 32


@dataclass(frozen=True, kw_only=True)
class KeyRow:
    """An API key as stored: only its hash, never the key. `revoked_at` 0: valid."""

    sha256: str
    key_id: str
    org: str
    name: str
    level: str
    prefix: str
    user: str | None
    created_at: int
    revoked_at: int = 0


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """What an idempotency key stands for. `command` 0: the request needed no command. Kept for `expires_at`
    (microseconds).
    """

    key: str
    fingerprint: str
    token: str
    command: int
    nonce: str
    expires_at: int


@dataclass(frozen=True, kw_only=True)
class Opened:
    """What one batch read of a thread found; what does not exist is absent."""

    head: Head | None = None
    about: About | None = None
    commands: Mapping[int, Command] = field(default_factory=dict)
    messages: Mapping[int, Message] = field(default_factory=dict)
    calls: Mapping[str, Call] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    inquiries: Mapping[str, Inquiry] = field(default_factory=dict)
    children: Mapping[str, Child] = field(default_factory=dict)
    effects: Mapping[str, Effect] = field(default_factory=dict)
    app_cost: int = 0
    remembered: Remembered | None = None


@dataclass(frozen=True, kw_only=True)
class Upward:
    """What a commit of a child does to its row in the registry of its parent, in the same transaction.

    `report`: closes the row and puts the report, if the row is open; else the commit happens without that. `check`:
    the commit happens only if the row is open. `reopen`: the row is open from now on, unless the parent has closed it.
    """

    parent: str
    reference: str
    act: Literal["report", "check", "reopen"]
    report: Report | None = None


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One conditional transaction on a thread.

    It happens only if the head still is `before` (its `rev`; None: the thread must not exist) and no call id of
    `new_calls` and no unexpired row of `remember.key` exists. `after.rev` is set by the store.
    """

    ref: ThreadRef
    before: Head | None
    after: Head
    facts: tuple[Fact, ...] = ()
    about: About | None = None
    commands: tuple[Command, ...] = ()
    messages: tuple[Message, ...] = ()
    new_calls: tuple[Call, ...] = ()
    calls: tuple[Call, ...] = ()
    files: tuple[File, ...] = ()
    gone_files: tuple[str, ...] = ()
    """Paths of the files that the commit removes."""
    logs: tuple[LogRow, ...] = ()
    """New rows of the log. Their costs are added to the thread's sum, once however often the commit is sent."""
    values: tuple[Value, ...] = ()
    inquiries: tuple[Inquiry, ...] = ()
    children: tuple[Child, ...] = ()
    heard: tuple[str, ...] = ()
    """Keys of the reports in the thread's inbox that the commit takes out."""
    upward: Upward | None = None
    effects: tuple[Effect, ...] = ()
    """Effects that are scheduled or taken back."""
    remember: Remembered | None = None
    now: int
    write: str
    """Identity of this write, unique for ever: kept in its event page, so that a lost answer can be told from a
    refusal.
    """


@dataclass(frozen=True, kw_only=True)
class Committed:
    """The transaction happened, now or when it was sent before."""

    head: Head


@dataclass(frozen=True, kw_only=True)
class Moved:
    """Nothing was written: somebody was faster. `head` is what stands now (None: the thread is gone).

    `remembered` is the row that holds the idempotency key, `taken` the call ids that exist already.
    """

    head: Head | None
    remembered: Remembered | None = None
    taken: frozenset[str] = frozenset()
    closed: bool = False
    """The row in the parent's registry did not let it happen."""


@dataclass(frozen=True, kw_only=True)
class Logged:
    """What became of a row for the log. `stored` False: there is no such thread, or `remembered` holds the key."""

    stored: bool
    remembered: Remembered | None = None


@dataclass(frozen=True, kw_only=True)
class LogPage:
    """Rows of a log in order. `reached`: the key up to which everything was looked at, None at the end."""

    rows: list[LogRow]
    reached: str | None


@dataclass(frozen=True, kw_only=True)
class Due:
    """Something whose time has come: a thread, or an effect of it if one is named."""

    ref: ThreadRef
    effect: str = ""


class Store(Protocol):
    """The table. Reads are strongly consistent unless they say that they go through an index."""

    def open(
        self,
        ref: ThreadRef,
        *,
        head: bool = True,
        about: bool = False,
        commands: Collection[int] = (),
        messages: Collection[int] = (),
        calls: Collection[str] = (),
        values: Collection[str] = (),
        inquiries: Collection[str] = (),
        children: Collection[str] = (),
        effects: Collection[str] = (),
        spent: bool = False,
        key: str | None = None,
        now: int = 0,
    ) -> Opened:
        """Rows of one thread, and the org's idempotency row of `key` if it has not expired at `now`: one batch read."""

    def commit(self, commit: Commit) -> Committed | Moved:
        """All or nothing. The same commit may be sent again: the second time it answers Committed and changes nothing.

        Raises RetryLater when the outcome stays unknown or in conflict after the store's own patience.
        """

    def remember(self, org: str, row: Remembered, now: int) -> Remembered:
        """Keep an idempotency key that needed no other write; answers the row that stands."""

    def take(self, ref: ThreadRef, *, now: int, until: int, nonce: str, takeover: bool) -> tuple[Head | None, bool]:
        """Take the lease of the run in flight, if there is one and no lease holds it: one conditional update.

        `takeover` also takes a lease that ended without release before `now`, and raises the epoch. The same nonce
        again answers the same lease. (head as it stands, whether the lease is the caller's).
        """

    def renew(self, ref: ThreadRef, *, run: int, attempt: int, until: int) -> Head | None:
        """Move the lease's end and the due time; None when the fencing token is no longer the caller's."""

    def claim(self, ref: ThreadRef, *, rev: int, due_at: int, wake: bool, epoch: bool) -> Head | None:
        """Move the due time (0: clear it) if the head has not changed; raise wake number and epoch as asked. None: it
        has.
        """

    def events(self, ref: ThreadRef, *, after: int, limit: int, max_bytes: int) -> list[Event]:
        """Events after a number, contiguous from after + 1, at most `limit` and about `max_bytes` of JSON (at least
        one).
        """

    def commands(
        self, ref: ThreadRef, *, after: int, before: int, limit: int, descending: bool = False
    ) -> list[Command]:
        """Commands with after < number < before."""

    def messages(
        self, ref: ThreadRef, *, after: int, before: int, limit: int, descending: bool = False
    ) -> list[Message]:
        """Placed messages with after < place < before, deleted ones included."""

    def files(self, ref: ThreadRef, *, low: str, high: str, limit: int, descending: bool = False) -> list[File]:
        """Files with low <= place <= high (`domain.paths`), in order: one query for up to 1 MB of rows."""

    def inquiries(self, ref: ThreadRef, *, after: str, limit: int) -> list[Inquiry]:
        """Questions and approvals after the one with that id ("": from the first), in the order of their calls."""

    def children(self, ref: ThreadRef, *, after: str = "", limit: int, descending: bool = False) -> list[Child]:
        """Rows of the registry in the order of their making, behind that reference ("": from the first)."""

    def inbox(self, ref: ThreadRef, *, limit: int) -> list[Report]:
        """Reports that have not been heard."""

    def report(self, parent: ThreadRef, report: Report) -> bool:
        """Put a report into a thread's inbox by itself: an outcome closes the row of the registry (False: it is closed
        already), a note is put once, a label takes the place of the one before. False too if there is no such row.
        """

    def log(self, ref: ThreadRef, row: LogRow, *, remember: Remembered | None, now: int) -> Logged:
        """Put a row into the log of a thread that exists: one conditional transaction, which adds its cost to the sum.

        The same row again changes nothing and answers the same. Raises RetryLater.
        """

    def log_rows(self, ref: ThreadRef, keys: Collection[str]) -> list[LogRow]:
        """Rows of the log by up to 100 keys, in the order of the keys; what does not exist is left out."""

    def logs(self, ref: ThreadRef, *, after: str, before: str, limit: int, descending: bool = False) -> LogPage:
        """Rows of the log with after < key < before, at most `limit`. It looks at a bounded number of days a call."""

    def put_value(self, ref: ThreadRef, value: Value) -> bool:
        """Put a durable value in place of an earlier one. False: there is no such thread."""

    def remove_value(self, ref: ThreadRef, name: str) -> bool:
        """Remove a durable value. False: there is none, or no such thread. Sent again after a lost answer it may say
        False although it has happened.
        """

    def newest_threads(self, org: str, *, before: str, limit: int) -> list[tuple[str, ThreadRef]]:
        """(position, thread) of an org's threads, newest activity first, after a position ("" = from the newest). By
        index.
        """

    def due(self, shard: int, *, until: int, limit: int) -> list[Due]:
        """What is due in one of the DUE_SHARDS shards, oldest first: threads and effects. By index."""

    def schedule(self, ref: ThreadRef, effect: Effect) -> bool:
        """Put an effect of a thread that is neither deleted nor terminated: one conditional transaction. The same name
        again changes nothing. False: there is no such thread, or it takes none.
        """

    def effects(self, ref: ThreadRef, *, after: str, limit: int) -> list[Effect]:
        """Effects of a thread in the order of their names, after one: one query. What is done is among them until it
        expires.
        """

    def claim_effect(self, ref: ThreadRef, name: str, *, now: int, due_at: int) -> Effect | None:
        """Put off an effect that is due at `now`, and name a new wake-up for it: one conditional update. None: it is
        not due, or somebody was faster.
        """

    def take_effect(self, ref: ThreadRef, name: str, *, now: int, until: int, nonce: str) -> Effect | None:
        """Begin a try that may last until an instant: one conditional update. None: the effect is not scheduled, its
        time has not come, or another try may be at work. The same nonce again answers the same try.
        """

    def settle_effect(self, ref: ThreadRef, taken: Effect, after: Effect, row: LogRow) -> bool:
        """What has become of a try, and its row in the log: one transaction. False: the try is no longer the newest, or
        the effect was taken back; then nothing changes. The same again answers the same.
        """

    def remove_effect(self, ref: ThreadRef, name: str, *, expires_at: int) -> bool:
        """Take back an effect that is scheduled or parked. False: there is none, or it is done or was taken back."""

    def about(self, refs: Collection[ThreadRef]) -> Mapping[ThreadRef, tuple[Head, About]]:
        """Head and about of up to 50 threads, in one batch read."""
