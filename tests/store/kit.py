"""Records to write and a clock that tests move: what the tests of the adapters are written with."""

from dataclasses import replace
from typing import Any

from chalicelib.adapters import keys
from chalicelib.adapters.store import TableStore
from chalicelib.adapters.system import SystemIds
from chalicelib.adapters.table import Table
from chalicelib.domain.events import Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Command, Head, Message, Role
from chalicelib.ports import Commit, Committed, Moved, Remembered

NOW = 1_780_000_000_000_000
SECOND = 1_000_000


class MovedClock:
    """A clock that stands still until somebody sleeps."""

    def __init__(self) -> None:
        self.elapsed = 0.0

    def now(self) -> int:
        return NOW + int(self.elapsed * SECOND)

    def monotonic(self) -> float:
        return self.elapsed

    def sleep(self, seconds: float) -> None:
        self.elapsed += seconds


class FullPauses(SystemIds):
    """Random tokens, but no jitter: a pause is as long as it can be."""

    def uniform(self) -> float:
        return 1.0


def make_table(table: Table) -> None:
    """Create the table, if it is not there yet."""
    if table.name not in table.client.list_tables()["TableNames"]:
        table.client.create_table(TableName=table.name, BillingMode="PAY_PER_REQUEST", **keys.SCHEMA)


def thread(org: str = "org_a") -> ThreadRef:
    """A thread that no other test knows."""
    return ThreadRef(org, SystemIds().token())


def new_head(**fields: Any) -> Head:
    """The head of a new thread."""
    return Head(**{"rev": 0, "agent": "assistant", "created_at": NOW, "active_at": NOW, "since": NOW, **fields})


def fact(text: str = "hello", *, kind: str = "message.delta", at: int = NOW, run: int = 0, attempt: int = 0) -> Fact:
    """Something that has happened."""
    return Fact(type=kind, data={"message_id": "msg_x", "text": text}, at=at, run=run, attempt=attempt)


def user_message(place: int, text: str = "hello") -> Message:
    """A message of a user in its place."""
    return Message(
        place=place,
        id=f"msg_{place}",
        run=1,
        role=Role.USER,
        content=({"type": "text", "text": text},),
        metadata={},
        created_at=NOW,
    )


def command(number: int) -> Command:
    """A command."""
    return Command(number=number, created_at=NOW, nonce=f"nonce-{number}")


def remembered(key: str = "key", **fields: Any) -> Remembered:
    """An idempotency row that lives for a day."""
    day = 86_400 * SECOND
    given = {"fingerprint": "f" * 64, "token": "t" * 20, "command": 1, "nonce": "n", "expires_at": NOW + day, **fields}
    return Remembered(key=key, **given)


def change(ref: ThreadRef, before: Head | None, after: Head | None = None, **fields: Any) -> Commit:
    """A commit; without `after` the head changes in nothing but its numbers."""
    standing = before or new_head()
    return Commit(
        **{"ref": ref, "before": before, "after": after or standing, "now": NOW, "write": SystemIds().token(), **fields}
    )


def done(outcome: Committed | Moved) -> Head:
    """The head that a commit wrote; a test that expects it fails otherwise."""
    assert isinstance(outcome, Committed), outcome
    return outcome.head


def moved(outcome: Committed | Moved) -> Moved:
    """What stood in a commit's way; a test that expects it fails otherwise."""
    assert isinstance(outcome, Moved), outcome
    return outcome


def create(store: TableStore, ref: ThreadRef, head: Head | None = None, **fields: Any) -> Head:
    """A new thread, with one event unless asked otherwise."""
    return done(store.commit(change(ref, None, head or new_head(), **{"facts": (fact(),), **fields})))


def running(store: TableStore, ref: ThreadRef, **fields: Any) -> Head:
    """A new thread with a run in flight that nobody works on yet."""
    return create(store, ref, new_head(**{"run": 1, "commands": 1, "due_at": NOW, **fields}))


def changed(head: Head, **fields: Any) -> Head:
    """The head with other fields."""
    return replace(head, **fields)
