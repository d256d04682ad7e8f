"""Commands as they stand in the table: those of a range, the joins that wait among them, the runs of the queue. Light:
the front door reads them too.
"""

from collections.abc import Iterable
from typing import Any

from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Command, CommandState, Head
from chalicelib.ports import Store


def oldest_join(store: Store, ref: ThreadRef, ranges: Iterable[tuple[int, int]]) -> Command | None:
    """The oldest pending join within these ranges of commands."""
    found = [join for low, high in ranges if (join := next(pending_joins(store, ref, low, high), None))]
    return min(found, key=lambda join: join.number, default=None)


def pending_joins(store: Store, ref: ThreadRef, low: int, high: int) -> Any:
    """Pending joins with low <= number <= high, in order."""
    return (c for c in commands_between(store, ref, low, high) if c.is_pending_join)


def second_queued(store: Store, ref: ThreadRef, head: Head) -> int:
    """Number of the run behind the first of the queue, 0 if there is none."""
    return next_queued(store, ref, head, after=head.first_queued) if head.queued > 1 else 0


def next_queued(store: Store, ref: ThreadRef, head: Head, *, after: int) -> int:
    """Number of the first queued run behind a number, 0 if there is none."""
    rows = commands_between(store, ref, after + 1, head.commands)
    return next((c.number for c in rows if c.is_run and c.state is CommandState.QUEUED), 0)


def commands_between(store: Store, ref: ThreadRef, low: int, high: int) -> Any:
    """All commands with low <= number <= high, page by page."""
    after = low - 1
    while after < high:
        rows = store.commands(ref, after=after, before=high + 1, limit=100)
        yield from rows
        if not rows:
            return
        after = rows[-1].number
