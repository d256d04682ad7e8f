"""What tools and hooks of an attempt note down until a write takes it along: entries for the thread's log, durable
values, events, messages for the context, effects.

Neither may be written by itself: a tool whose attempt has lost its lease must not leave anything (I3). So a note waits
here, and the attempt's next write carries it, behind the fencing token. If none comes within a second, the turn writes
for the notes alone. After a lost lease the attempt writes nothing more, and its notes are gone with it.

Notes but values are numbered within their call. What a call has stored is counted on the call's row in the same write,
so that a tool that runs again after a crash and notes the same again leaves each note once. A hook has no call: what it
notes is stored as often as it runs.

What a note tells or places comes first in its write, so that nothing of a run follows the run's end (I5).

Tools note on their own threads; the turn's thread alone takes and settles.
"""

import functools
import hashlib
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chalicelib.domain import effects, entries, values
from chalicelib.domain.entries import LogRow
from chalicelib.domain.errors import InvalidRequest, RetryLater, TooLarge
from chalicelib.domain.events import Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import KB, VALUE_BYTES, VALUE_NAME_CHARACTERS
from chalicelib.domain.model import Call, Effect, Head, Message, Role, Value
from chalicelib.domain.queueing import Draft, then
from chalicelib.engine import messages
from chalicelib.engine.environment import Environment
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
    """One of these; `number` counts all but values within their call."""

    call_id: str
    size: int
    made_at: float = 0.0
    """Monotonic."""
    number: int = 0
    row: LogRow | None = None
    value: Value | None = None
    event: Fact | None = None
    message: Message | None = None
    """Without its place."""
    effect: Effect | None = None
    count: Callable[[Head], Draft] | None = None
    """What something that is over has cost, on the head on which it is written."""

    def told(self, ref: ThreadRef, attempt: int, head: Head) -> Draft:
        """What the note tells, places or counts."""
        if self.event is not None:
            return Draft(after=head, facts=(replace(self.event, run=head.run, attempt=attempt),))
        if self.message is not None:
            message = replace(self.message, place=head.messages + 1)
            return messages.placed(ref, head, message, attempt=attempt)
        return self.count(head) if self.count is not None else Draft(after=head)


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Notes that a write carries."""

    notes: tuple[_Note, ...]

    def along(self, draft: Draft, calls: Mapping[str, Call]) -> Draft:
        """The draft with the notes. A call that goes on keeps count of its entries; one that ends never runs again."""
        if not self.notes:
            return draft
        named = {note.value.name: note.value for note in self.notes if note.value}
        planned = {note.effect.id: note.effect for note in self.notes if note.effect}
        counts, own = self.counts, {call.id for call in draft.calls}
        counted = tuple(
            replace(calls[call_id], logged=number)
            for call_id, number in counts.items()
            if call_id in calls and call_id not in own
        )
        going_on = tuple(
            replace(call, logged=counts[call.id]) if call.id in counts and call.outcome is None else call
            for call in draft.calls
        )
        return replace(
            draft,
            logs=draft.logs + tuple(note.row for note in self.notes if note.row),
            values=draft.values + tuple(named.values()),
            calls=going_on + counted,
            effects=draft.effects + tuple(planned.values()),
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many notes of each call are stored with these."""
        return {note.call_id: note.number for note in self.notes if note.number}

    def first(self, ref: ThreadRef, head: Head, attempt: int) -> Draft:
        """What these notes tell and place, before anything else that their write says."""
        draft = Draft(after=head)
        for note in self.notes:
            draft = then(draft, functools.partial(note.told, ref, attempt))
        return draft


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
            if (made.call_id and made.call_id not in self.calls) or self.bytes + made.size > WAITING_BYTES:
                return False
            self.written += 1
            self.bytes += made.size
            self.waiting.append(replace(made, made_at=self.clock.monotonic()))
            return True

    def count(self, count: Callable[[Head], Draft], size: int) -> None:
        """Keep what something has cost, whatever becomes of the call that it was for."""
        self.note(lambda written: _Note(call_id="", size=size, count=count))

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
            for call_id, number in taken.counts.items():
                if call_id in self.calls:
                    self.calls[call_id] = replace(self.calls[call_id], logged=number)
            self.settled += len(taken.notes)
            self.bytes = sum(note.size for note in self.waiting)

    def scheduled(self) -> dict[str, Effect]:
        """Effects that still wait to be scheduled or taken back, by name."""
        with self.lock:
            return {note.effect.id: note.effect for note in self.waiting if note.effect}

    def begin(self, call: Call) -> None:
        """A call runs, or its row has changed: its notes are taken from now on."""
        with self.lock:
            self.calls[call.id] = call

    def end(self, call_id: str) -> None:
        """A call has its result: what its thread still says is not heard."""
        with self.lock:
            self.calls.pop(call_id, None)


@dataclass(kw_only=True)
class Notebook:
    """Notes of one call of a tool, or of a hook (a call without an id). `tell` says that there is a note."""

    notes: Notes
    store: Store
    ref: ThreadRef
    run: int
    attempt: int
    call: Call
    tell: Callable[[Noted], None]
    environment: Environment = field(default_factory=Environment)
    newest: str | None = None
    """The message that rows hang on before the first step of the run."""
    logged: int = 0
    """Notes of this call so far, values left out."""
    entries: int = 0
    said: int = 0
    full: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def log(self, entry: Any) -> None:
        """Note an entry. Never raises, whatever the entry is."""
        hidden = self.environment.safe(entry) if self.environment.secrets else entry
        body = entries.app_body(hidden)
        with self.lock:
            if self.full:
                return
            if self.entries >= ENTRIES_A_CALL or not self._log(body):
                self.full = True
                self._log(entries.app_body(FULL))

    def tell_failure(self, body: Mapping[str, Any]) -> None:
        """Note a row of the runtime about a hook."""
        at = self.notes.clock.now()

        def note(written: int) -> _Note:
            key = entries.key(at, f"h{self.run}.{self.attempt}.{written:06d}")
            row = LogRow(key=key, kind="handler", at=at, run=self.run, message_id=self._anchor, body=body)
            return _Note(call_id="", size=values.size(body), row=row)

        self.notes.note(note)

    def emit(self, kind: str, data: Mapping[str, Any]) -> None:
        """Note an event. Raises ValueError if there is no room."""
        fact = Fact(type=kind, data=data, at=self.notes.clock.now())
        self._keep(lambda number, written: _Note(call_id="", size=values.size(data), event=fact))

    def place(
        self, role: Role, content: tuple[Mapping[str, Any], ...], metadata: Mapping[str, Any], silent: bool
    ) -> str:
        """Note a message for the context; answers its id. Raises ValueError if there is no room."""
        made: list[str] = []

        def note(number: int, written: int) -> _Note:
            made[:] = [self.ref.placed_in_run(self.run, int.from_bytes(self._mark(number, written)[:6], "big") or 1)]
            message = Message(
                place=0,
                id=made[0],
                run=self.run,
                role=role,
                content=content,
                metadata=metadata,
                created_at=self.notes.clock.now(),
                silent=silent,
            )
            return _Note(call_id="", size=2 * values.size([*content]), message=message)

        self._keep(note)
        return made[0]

    def schedule(self, effect: Effect) -> str:
        """Note an effect, without its id; answers that. Raises ValueError if there is no room."""
        made: list[str] = []

        def note(number: int, written: int) -> _Note:
            made[:] = [effects.name_of(self.ref.token, self._mark(number, written).hex())]
            named = replace(effect, id=made[0])
            return _Note(call_id="", size=values.size(dict(effect.arguments)), effect=named)

        self._keep(note)
        return made[0]

    def next_said(self) -> int:
        """The number of the next command of this call."""
        with self.lock:
            self.said += 1
            return self.said

    def counted(self, number: int, command: int) -> Call | None:
        """The call's row once it has queued its command of that number; None for a hook. On the turn's thread."""
        standing = self.notes.calls.get(self.call.id)
        if standing is None:
            return None
        counted = replace(standing, said=(*standing.said[: number - 1], command))
        self.notes.begin(counted)
        return counted

    def take_back(self, effect: Effect) -> None:
        """Note that an effect is not to run. Raises ValueError if there is no room."""
        self._keep(lambda number, written: _Note(call_id="", size=0, effect=effect))

    def _mark(self, number: int, written: int) -> bytes:
        """What names the thing of a note: the same when its call runs again."""
        own = f"{self.call.id}.{number}" if self.call.id else f"hook.{self.attempt}.{written}"
        return hashlib.sha256(f"{self.run}.{own}".encode()).digest()

    def _keep(self, make: Callable[[int, int], _Note]) -> None:
        """Number a note and keep it; one that was stored when the call ran before is there already."""
        with self.lock:
            number = self.logged + 1
            if number <= self.call.logged:
                make(number, 0)
            elif not self.notes.note(
                lambda written: replace(make(number, written), call_id=self.call.id, number=number)
            ):
                raise ValueError("this was not stored: too much waits to be stored, or the call is over")
            self.logged = number
        self.tell(Noted(call_id=self.call.id))

    def set(self, name: str, value: Any) -> None:
        """Note a value; later notes of the same name win. Raises ValueError for a name or a size that is no good."""
        try:
            checked = checked_value(name, self.environment.safe(value))
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

    @property
    def _anchor(self) -> str | None:
        """The message that rows hang on."""
        return self.ref.asking(self.call.id, self.run, self.call.step) if self.call.step else self.newest

    def _log(self, body: Mapping[str, Any]) -> bool:
        """Number an entry and keep it; one that was stored when the call ran before is there already."""
        number = self.logged + 1
        if number <= self.call.logged:
            self.logged = number
            self.entries += 1
            return True
        at = self.notes.clock.now()

        def note(written: int) -> _Note:
            key = entries.key(at, f"a{self.run}.{self.attempt}.{written:06d}")
            row = LogRow(key=key, kind="app", at=at, run=self.run, message_id=self._anchor, body=body)
            return _Note(call_id=self.call.id, size=values.size(body), number=number, row=row)

        if not self.notes.note(note):
            return False
        self.logged = number
        self.entries += 1
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
