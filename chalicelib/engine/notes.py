"""What tools of an attempt note down: entries for the thread's log and durable values, until a write takes them along.

Neither may be written by itself: a tool whose attempt has lost its lease must not leave anything (I3). So a note waits
here, and the attempt's next write carries it, behind the fencing token. If none comes within a second, the turn writes
for the notes alone. After a lost lease the attempt writes nothing more, and its notes are gone with it.

Entries are numbered within their call. What a call has stored is counted on the call's row in the same write, so that a
tool that runs again after a crash and logs the same again leaves each entry once.

Tools note on their own threads; the turn's thread alone takes and settles.
"""

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chalicelib.domain import entries, values
from chalicelib.domain.entries import LogRow
from chalicelib.domain.errors import InvalidRequest, RetryLater, TooLarge
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import KB, VALUE_BYTES, VALUE_NAME_CHARACTERS
from chalicelib.domain.model import Call, Value
from chalicelib.domain.queueing import Draft
from chalicelib.ports import Clock, Store

#: A note waits this long for a write that comes anyway; it is visible within 5 s (spec section 9).
PATIENCE_SECONDS = 1.0
#: Entries of one call, and bytes of all that wait: what comes beyond is dropped, and one entry says so.
ENTRIES_A_CALL, WAITING_BYTES = 1_000, 8 * KB * KB
FULL = {"name": "log.full", "level": "warn", "message": "Further entries of this call were dropped."}

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{VALUE_NAME_CHARACTERS - 1}}}")


@dataclass(frozen=True, kw_only=True)
class Room:
    """What one write takes along: a transaction has 100 actions and 4 MB, and the write's own rows come first."""

    rows: int
    bytes: int


#: Beside a write that has rows of its own, and in one that was made for notes alone.
BESIDE, ALONE = Room(rows=20, bytes=64 * KB), Room(rows=60, bytes=1024 * KB)


@dataclass(frozen=True, kw_only=True)
class Noted:
    """A note has been made: the turn looks when it has to be written."""

    call_id: str


@dataclass(frozen=True, kw_only=True)
class _Note:
    """An entry (then `number` counts within its call) or a value."""

    call_id: str
    size: int
    made_at: float = 0.0
    """Monotonic."""
    number: int = 0
    row: LogRow | None = None
    value: Value | None = None


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Notes that a write carries."""

    notes: tuple[_Note, ...]

    def along(self, draft: Draft, calls: Mapping[str, Call]) -> Draft:
        """The draft with the notes. A call that goes on keeps count of its entries; one that ends never runs again."""
        if not self.notes:
            return draft
        named = {note.value.name: note.value for note in self.notes if note.value}
        counts = {note.call_id: note.number for note in self.notes if note.row}
        own = {call.id for call in draft.calls}
        counted = tuple(
            replace(calls[call_id], logged=number)
            for call_id, number in counts.items()
            if call_id in calls and call_id not in own
        )
        return replace(
            draft,
            logs=draft.logs + tuple(note.row for note in self.notes if note.row),
            values=draft.values + tuple(named.values()),
            calls=draft.calls + counted,
        )


@dataclass(kw_only=True)
class Notes:
    """The notes of one attempt."""

    clock: Clock
    waiting: list[_Note] = field(default_factory=list)
    calls: dict[str, Call] = field(default_factory=dict)
    """Calls that run, as they are stored."""
    written: int = 0
    """Rows that this attempt has made: with run and attempt the number names a row for ever."""
    bytes: int = 0
    settled: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, note: Callable[[int], _Note]) -> bool:
        """Keep a note, made with the number that names its row. False if there is no room or nobody takes it."""
        with self.lock:
            made = note(self.written + 1)
            if made.call_id not in self.calls or self.bytes + made.size > WAITING_BYTES:
                return False
            self.written += 1
            self.bytes += made.size
            self.waiting.append(replace(made, made_at=self.clock.monotonic()))
            return True

    def value(self, name: str) -> Value | None:
        """The newest value of that name that still waits."""
        with self.lock:
            return next((n.value for n in reversed(self.waiting) if n.value and n.value.name == name), None)

    @property
    def due_at(self) -> float | None:
        """When the notes that wait have to be written (monotonic); None if none wait."""
        with self.lock:
            return self.waiting[0].made_at + PATIENCE_SECONDS if self.waiting else None

    @property
    def is_much(self) -> bool:
        """True if the notes do not fit beside another write."""
        with self.lock:
            return len(self.waiting) > BESIDE.rows or self.bytes > BESIDE.bytes

    def take(self, room: Room) -> Taken:
        """The oldest notes, as many as there is room for. They wait on until they are settled."""
        with self.lock:
            fitting, size = 0, 0
            for note in self.waiting[: room.rows]:
                size += note.size
                if fitting and size > room.bytes:
                    break
                fitting += 1
            return Taken(notes=tuple(self.waiting[:fitting]))

    def settle(self, taken: Taken) -> None:
        """These notes are stored."""
        with self.lock:
            self.waiting = self.waiting[len(taken.notes) :]
            self.settled += len(taken.notes)
            self.bytes = sum(note.size for note in self.waiting)

    def begin(self, call: Call) -> None:
        """A call runs: its notes are taken from now on."""
        with self.lock:
            self.calls[call.id] = call

    def end(self, call_id: str) -> None:
        """A call has its result: what its thread still says is not heard."""
        with self.lock:
            self.calls.pop(call_id, None)


@dataclass(kw_only=True)
class Notebook:
    """Log and values for one call of a tool. `tell` says that there is a note."""

    notes: Notes
    store: Store
    ref: ThreadRef
    run: int
    attempt: int
    call: Call
    tell: Callable[[Noted], None]
    logged: int = 0
    full: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def log(self, entry: Any) -> None:
        """Note an entry. Never raises, whatever the entry is."""
        body = entries.app_body(entry)
        with self.lock:
            if self.full:
                return
            if self.logged >= ENTRIES_A_CALL or not self._log(body):
                self.full = True
                self._log(entries.app_body(FULL))

    def set(self, name: str, value: Any) -> None:
        """Note a value; later notes of the same name win. Raises ValueError for a name or a size that is no good."""
        try:
            checked = checked_value(name, values.safe(value))
        except (InvalidRequest, TooLarge) as error:
            raise ValueError(str(error)) from None
        row = Value(name=name, value=checked, updated_at=self.notes.clock.now())
        size = values.size(checked)
        if not self.notes.note(lambda number: _Note(call_id=self.call.id, size=size, value=row)):
            raise ValueError("the value was not stored: too much waits to be stored, or the call is over")
        self.tell(Noted(call_id=self.call.id))

    def get(self, name: str, default: Any) -> Any:
        """The value as this run has set it last, else as it is stored. Raises OSError if the store does not answer."""
        try:
            check_name(name)
        except InvalidRequest as error:
            raise ValueError(str(error)) from None
        waiting = self.notes.value(name)
        if waiting is not None:
            return waiting.value
        try:
            stored = self.store.open(self.ref, head=False, values=[name]).values.get(name)
        except RetryLater as error:
            raise OSError(str(error)) from error
        return default if stored is None else stored.value

    def _log(self, body: Mapping[str, Any]) -> bool:
        """Number an entry and keep it; one that was stored when the call ran before is there already."""
        number = self.logged + 1
        if number <= self.call.logged:
            self.logged = number
            return True
        at = self.notes.clock.now()

        def note(written: int) -> _Note:
            key = entries.key(at, f"a{self.run}.{self.attempt}.{written:06d}")
            message_id = self.ref.answer(self.run, self.call.step)
            row = LogRow(key=key, kind="app", at=at, run=self.run, message_id=message_id, body=body)
            return _Note(call_id=self.call.id, size=values.size(body), number=number, row=row)

        if not self.notes.note(note):
            return False
        self.logged = number
        self.tell(Noted(call_id=self.call.id))
        return True


def check_name(name: Any) -> None:
    """Raises InvalidRequest unless a durable value may have that name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        rule = f"1 to {VALUE_NAME_CHARACTERS} letters, digits and . _ : -, the first a letter or digit"
        raise InvalidRequest.at("name", f"must have {rule}")


def checked_value(name: Any, value: Any) -> Any:
    """A safe value that may be kept under that name. Raises InvalidRequest, TooLarge."""
    check_name(name)
    size = values.size(value)
    if size > VALUE_BYTES:
        raise TooLarge.at("value", f"has {size} bytes, the limit is {VALUE_BYTES}")
    return value
