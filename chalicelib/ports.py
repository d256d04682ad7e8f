"""What services and engine need from outside, as Protocols: one page, no SDK, no implementation.

Adapters implement these; only `bootstrap` knows which. Every method may be called twice with the same arguments:
each docstring says what the second call does.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from chalicelib.domain.entries import LogRow
from chalicelib.domain.events import Event, Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import About, Call, Child, Command, Effect, File, Head, Inquiry, Message, Report, Value

# JSON-safe values: what passed the border of `domain.values`. `Any` because mypy has no useful recursive JSON type.
JSON = Any


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it; `parameters` is the JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, JSON]


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """One model call. Messages are bodies of spec section 3 with pairing repaired and no empty text part."""

    model: str
    system: str
    messages: tuple[Mapping[str, JSON], ...]
    tools: tuple[ToolSpec, ...]
    tool_choice: str
    parallel_tool_calls: bool
    options: Mapping[str, JSON]
    deadline_seconds: float
    call_index: int
    arguments: Mapping[str, JSON]


@dataclass(frozen=True, kw_only=True)
class Text:
    """A piece of the answer; bytes are raw UTF-8 that may be cut inside a character."""

    text: str | bytes


@dataclass(frozen=True, kw_only=True)
class Reasoning:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, kw_only=True)
class CallStart:
    """The model begins to ask for a tool; `ref` names the call inside this answer."""

    ref: str
    call_id: str | None
    name: str


@dataclass(frozen=True, kw_only=True)
class CallArgs:
    """A piece of the JSON text of a call's arguments."""

    ref: str
    part: str


@dataclass(frozen=True, kw_only=True)
class Usage:
    """A reading of tokens: an increment, or a running total of this answer that replaces what came before."""

    mode: Literal["increment", "total"]
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Stop:
    """The provider's finish reason. An answer without one is a truncation."""

    reason: Literal["end", "tool_calls", "length"]


Chunk = Text | Reasoning | CallStart | CallArgs | Usage | Stop


class Cancel(Protocol):
    """Tells a model or a tool that its work is no longer wanted."""

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds`; True as soon as the work is no longer wanted."""


class Model(Protocol):
    """A language model behind any provider. Runs on a worker thread; asking twice bills twice."""

    def stream(self, request: ModelRequest, cancel: Cancel) -> Iterator[Chunk]:
        """Yield the answer as it comes. Raises ModelError. Ends without `Stop` when the stream was cut."""


class Models(Protocol):
    """Resolves `provider:name`."""

    def resolve(self, name: str) -> Model:
        """The model of that name. Raises ModelError for an unknown provider."""


class Clock(Protocol):
    """Time from outside. Wall time is for rows and leases, monotonic time for spans inside a process."""

    def now(self) -> int:
        """Microseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""


class Ids(Protocol):
    """Randomness from outside."""

    def token(self) -> str:
        """100 random bits as 20 characters of a-z and 2-7."""

    def uniform(self) -> float:
        """A number in [0, 1), for jitter."""


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
class Ticket:
    """A one-time websocket ticket; `sha256` names it, the ticket itself is never stored."""

    sha256: str
    org: str
    key_sha256: str
    key_id: str
    level: str
    user: str | None
    expires_at: int


@dataclass(frozen=True, kw_only=True)
class Connection:
    """An open websocket and the credential behind it."""

    id: str
    org: str
    key_sha256: str
    opened_at: int


@dataclass(frozen=True, kw_only=True)
class Subscriber:
    """A connection's subscription to a thread. `cursor`: last event posted; `catching_until`: a replay is in the
    works.
    """

    connection: str
    token: str
    org: str
    cursor: int
    catching_until: int
    key_sha256: str
    logs: bool = False


class Directory(Protocol):
    """Who may come in and who listens: keys, tickets, connections, subscribers. The lookup rows without an org in the
    key.
    """

    def key(self, sha256: str) -> KeyRow | None:
        """The API key of that hash."""

    def put_key(self, row: KeyRow) -> None:
        """Store a key; a second put of the same hash changes nothing."""

    def put_ticket(self, ticket: Ticket) -> None:
        """Store a ticket."""

    def burn_ticket(self, sha256: str) -> Ticket | None:
        """Take a ticket out of the table: of two callers one gets it. The caller checks its expiry."""

    def connect(self, connection: Connection) -> None:
        """Remember a connection (rows expire by TTL a day later)."""

    def connection(self, connection_id: str) -> Connection | None:
        """An open connection."""

    def disconnect(self, connection_id: str) -> None:
        """Forget a connection and all its subscriptions; twice changes nothing."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Put a subscription in place of an earlier one of the same connection to the same thread."""

    def unsubscribe(self, ref: ThreadRef, connection_id: str) -> None:
        """Remove a subscription; twice changes nothing."""

    def subscribers(self, ref: ThreadRef) -> list[Subscriber]:
        """All subscriptions of a thread."""

    def move_cursor(self, subscriber: Subscriber, cursor: int, *, live: bool = False) -> bool:
        """Raise the cursor (it never falls) if the subscription still exists; `live` ends its catching up. False: it
        is gone.
        """


class Queue(Protocol):
    """Wake-ups. A wake-up carries ids, never the work; a repeat inside the deduplication window is swallowed."""

    def wake(self, ref: ThreadRef, *, epoch: int, number: int) -> None:
        """Say that a thread may have work. The same number again is swallowed. Raises RetryLater when it could not be
        sent.
        """

    def wake_inbox(self, ref: ThreadRef, report: str) -> None:
        """Say that a report is in a thread's inbox; the same report again is swallowed. Raises RetryLater."""

    def wake_effect(self, ref: ThreadRef, effect_id: str, *, number: int) -> None:
        """Say that an effect may be due, by its public id. The same number again is swallowed. Raises RetryLater."""


class Blobs(Protocol):
    """Objects too large for a row: named by their content, visible only through a fenced row."""

    def put(self, ref: ThreadRef, sha256: str, data: bytes, content_type: str) -> None:
        """Store; a second put of the same content changes nothing."""

    def get(self, ref: ThreadRef, sha256: str) -> tuple[bytes, str] | None:
        """The bytes and their content type, or None."""

    def address(self, ref: ThreadRef, sha256: str) -> str:
        """Where anybody can fetch the object for some minutes. Whether it exists shows only there."""


@dataclass(frozen=True, kw_only=True)
class Uploaded:
    """An object that a client has sent to an upload's address: its size, and what tells it from a later one there."""

    bytes: int
    etag: str


class FileObjects(Protocol):
    """The bytes of files, apart from `Blobs`: named by thread and hash, so that a name never gets other bytes.

    Only the row of a file makes its object visible. What a client uploads stands under a name of its own until `keep`.
    """

    def put(self, ref: ThreadRef, sha256: str, data: bytes) -> None:
        """Store; a second put of the same bytes changes nothing. Raises RetryLater."""

    def copy(self, source: ThreadRef, target: ThreadRef, sha256: str) -> None:
        """Put the bytes of one thread's object under the same name of another thread; twice changes nothing. Raises
        RetryLater, and KeyError if there is no such object.
        """

    def read(self, ref: ThreadRef, sha256: str) -> Iterator[bytes]:
        """The bytes in pieces: one request. Raises RetryLater, and KeyError if there is no such object."""

    def address(self, ref: ThreadRef, sha256: str, headers: Mapping[str, str]) -> str:
        """Where anybody can fetch the object for some minutes, answered with these headers (`Content-Type`,
        `Content-Disposition`). Made without a request.
        """

    def upload_address(
        self, ref: ThreadRef, upload: str, *, size: int, content_type: str, sha256: str | None, seconds: int
    ) -> tuple[str, Mapping[str, str]]:
        """Where anybody can PUT the object of an upload for some seconds, and with which headers: no other size, type
        or (if one is given) content is taken. Made without a request.
        """

    def uploaded(self, ref: ThreadRef, upload: str) -> Uploaded | None:
        """What stands under an upload's name now."""

    def read_upload(self, ref: ThreadRef, upload: str, etag: str) -> Iterator[bytes]:
        """Its bytes in pieces. Raises RetryLater, and KeyError if another object stands there by now."""

    def keep(self, ref: ThreadRef, upload: str, etag: str, sha256: str) -> None:
        """Copy an upload to the name of its content; twice changes nothing. Raises as `read_upload`."""


class Purge(Protocol):
    """Takes away what is left of a deleted thread. Every part can be asked for again: what is gone is not there."""

    def rows(self, ref: ThreadRef, family: str, block: int | None = None) -> None:
        """All rows of a family (`domain.purging`), or of one of its blocks. Raises RetryLater."""

    def beside(self, ref: ThreadRef) -> None:
        """The rows that stand beside the head."""

    def objects(self, ref: ThreadRef) -> None:
        """All objects of the thread. Raises RetryLater."""


class SocketGone(Exception):
    """The connection no longer exists (410)."""


class Sockets(Protocol):
    """Push to websocket connections."""

    def post(self, connection: str, frame: bytes) -> None:
        """Send one frame. Raises SocketGone when the connection is gone, RetryLater on any other failure."""
