"""Rows of a thread's log and durable values, as their own conditional transactions, and the walk over a log's days.

They change nothing that a turn decides by, so they do not move the head: a transaction only checks that it stands and
is not deleted. A write that was sent twice finds its own row: a row of a log is put if absent under a name that is used
once, so that its cost is added once; a value that is put twice is the same value.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any

from botocore.exceptions import ClientError
from pynamodb.expressions.operand import Path

from chalicelib.adapters import keys, rows
from chalicelib.adapters.codec import Item
from chalicelib.adapters.table import REFUSED, Table, code, reason_codes
from chalicelib.adapters.writes import EXISTS, NEW, Test, check, delete, put, update
from chalicelib.domain.entries import LogRow, instant
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Value
from chalicelib.ports import Logged, LogPage, Remembered

SORT = Path("sk")
#: Days that one call looks at: an empty one costs a query all the same, and a thread may be silent for years.
DAYS_A_CALL = 40
#: Rows that one query brings: a row may have some 300 KB, an answer of DynamoDB ends at 1 MB by itself.
ROWS_A_QUERY = 100

Action = Mapping[str, Any]


def actions(table: str, ref: ThreadRef, logged: Collection[LogRow]) -> list[Action]:
    """New rows of a log as parts of a transaction, with what they add to the sum of costs."""
    made: list[Action] = [{"Put": put(table, keys.log(ref, row.key), rows.log_row(row), NEW)} for row in logged]
    cost = sum(row.app_cost for row in logged)
    return [*made, {"Update": update(table, keys.spent(ref), add={rows.APP_COST: cost})}] if cost else made


def is_there(table: Table, ref: ThreadRef, row: LogRow) -> bool:
    """True if a row stands in the log."""
    return bool(table.get([keys.log(ref, row.key)]))


def write(table: Table, ref: ThreadRef, row: LogRow, remember: Action | None) -> Logged:
    """See `Store.log`."""
    wanted = [_thread(table, ref), *actions(table.name, ref, [row]), *([{"Put": remember}] if remember else [])]
    refusals = transact(table, wanted)
    if refusals is None or is_there(table, ref, row):
        return Logged(stored=True)
    holder = refusals.get(len(wanted) - 1) if remember else None
    return Logged(stored=False, remembered=_remembered(holder))


def put_value(table: Table, ref: ThreadRef, value: Value) -> bool:
    """See `Store.put_value`."""
    one = {"Put": put(table.name, keys.value(ref, value.name), rows.value_row(value))}
    return transact(table, [_thread(table, ref), one]) is None


def remove_value(table: Table, ref: ThreadRef, name: str) -> bool:
    """See `Store.remove_value`."""
    one = {"Delete": delete(table.name, keys.value(ref, name), EXISTS)}
    return transact(table, [_thread(table, ref), one]) is None


def by_keys(table: Table, ref: ThreadRef, wanted: Collection[str]) -> list[LogRow]:
    """See `Store.log_rows`."""
    found = table.get([keys.log(ref, key) for key in wanted])
    return sorted((rows.log_of(item) for item in found.values()), key=lambda row: row.key)


def page(table: Table, ref: ThreadRef, *, after: str, before: str, limit: int, descending: bool) -> LogPage:
    """See `Store.logs`."""
    low, high = keys.log_day(instant(after)), keys.log_day(instant(before))
    days = range(high, low - 1, -1) if descending else range(low, high + 1)
    found = (
        rows.log_of(item)
        for day in days[:DAYS_A_CALL]
        for item in _day(table, ref, day, after=after, before=before, limit=limit, descending=descending)
    )
    items = list(islice(found, limit))
    if len(items) == limit:
        return LogPage(rows=items, reached=items[-1].key)
    return LogPage(rows=items, reached=_border(days, descending) if len(days) > DAYS_A_CALL else None)


def _day(
    table: Table, ref: ThreadRef, day: int, *, after: str, before: str, limit: int, descending: bool
) -> Iterator[Item]:
    """Rows of a day. Keys are never equal to the bounds: `between` is right as long as the bounds are left out."""
    found = table.query(
        keys.logs(ref, day), SORT.between(after, before), limit=min(limit + 1, ROWS_A_QUERY), descending=descending
    )
    return (item for item in found if after < item["sk"]["S"] < before)


def _border(days: range, descending: bool) -> str:
    """A key between the last day that was looked at and the next: no row has it, since a name follows the instant."""
    last = days[DAYS_A_CALL - 1]
    return f"{(last if descending else last + 1) * keys.DAY:0{keys.INSTANT_DIGITS}d}"


def _thread(table: Table, ref: ThreadRef) -> Action:
    return {"ConditionCheck": check(table.name, keys.head(ref), EXISTS, Test("de", "absent"))}


def transact(table: Table, wanted: Collection[Action]) -> dict[int, Item | None] | None:
    """Send until the outcome is known: None if it was done, else the rows that refused, by the place of the action."""
    return table.patience.run(lambda: _attempt(table, wanted))


def _attempt(table: Table, wanted: Collection[Action]) -> dict[int, Item | None] | None:
    try:
        table.client.transact_write_items(TransactItems=list(wanted))
    except ClientError as error:
        if code(error) != "TransactionCanceledException" or REFUSED not in reason_codes(error):
            raise
        reasons = error.response.get("CancellationReasons", [])
        return {place: reason.get("Item") for place, reason in enumerate(reasons) if reason.get("Code") == REFUSED}
    return None


def _remembered(item: Item | None) -> Remembered | None:
    return rows.remembered_of(item) if item else None
