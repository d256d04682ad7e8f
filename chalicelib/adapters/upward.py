"""What a child does to the registry and the inbox of its parent, as parts of the child's own transaction or alone.

A child never touches the head or the log of its parent. It guarantees that a row of the registry is closed once,
whoever closes it, and that what was told stands in the inbox exactly if the row was closed by the teller.
"""

from collections.abc import Mapping
from typing import Any

from chalicelib.adapters import keys, rows
from chalicelib.adapters.logs import transact
from chalicelib.adapters.table import Table
from chalicelib.adapters.writes import EXISTS, NEW, Test, check, put, update
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import RUNNING, Report, ReportKind
from chalicelib.ports import Remembered, Upward

Action = Mapping[str, Any]

TERMINATED = "terminated"
#: Notes are remembered as long as idempotency keys (services.appending).
KEPT_MICROS = 48 * 3600 * 1_000_000
OPEN = Test("status", "=", {"S": RUNNING})


def actions(table: str, org: str, upward: Upward) -> list[Action]:
    """Parts of a child's transaction."""
    parent = ThreadRef(org, upward.parent)
    row = keys.child(parent, upward.reference)
    if upward.act == "check":
        return [{"ConditionCheck": check(table, row, OPEN)}]
    if upward.act == "reopen":
        wanted = (EXISTS, Test("muted", "absent"), Test("status", "<>", {"S": TERMINATED}))
        return [{"Update": update(table, row, *wanted, put={"status": {"S": RUNNING}})}]
    assert upward.report is not None, "a report is what is told"
    return _told(table, parent, upward.report)


def report(table: Table, parent: ThreadRef, told: Report) -> bool:
    """See `Store.report`."""
    refusals = transact(table, _told(table.name, parent, told))
    if refusals is None:
        return True
    known = [keys.report(parent, told.key), keys.idempotency(parent.org, _name(parent, told))]
    return told.kind is not ReportKind.LABEL and bool(table.get(known))  # told before


def _told(table: str, parent: ThreadRef, told: Report) -> list[Action]:
    row, item = keys.child(parent, told.reference), rows.report_row(parent, told)
    where = keys.report(parent, told.key)
    if told.kind is ReportKind.NOTE:
        here = check(table, row, EXISTS, Test("muted", "absent"))
        return [{"ConditionCheck": here}, {"Put": put(table, where, item, NEW)}, {"Put": _once(table, parent, told)}]
    if told.kind is ReportKind.LABEL:
        label = {"label": {"S": told.outcome}}
        return [{"Update": update(table, row, EXISTS, put=label)}, {"Put": put(table, where, item)}]
    still = Test("status", "<>", {"S": TERMINATED}) if told.outcome == TERMINATED else OPEN
    closed = update(table, row, EXISTS, Test("muted", "absent"), still, put={"status": {"S": told.outcome}})
    return [{"Update": closed}, {"Put": put(table, where, item, NEW)}]


def _once(table: str, parent: ThreadRef, told: Report) -> dict[str, Any]:
    """Remembers a note beyond its stay in the inbox: the code that told it may run again."""
    row = Remembered(
        key=_name(parent, told),
        fingerprint="",
        token=parent.token,
        command=0,
        nonce=told.key,
        expires_at=told.at + KEPT_MICROS,
    )
    return put(table, keys.idempotency(parent.org, row.key), rows.remembered_row(row), NEW)


def _name(parent: ThreadRef, told: Report) -> str:
    """No client can send such a key: it has a space."""
    return f"note {parent.token} {told.key}"
