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
from chalicelib.ports import Upward

Action = Mapping[str, Any]

TERMINATED = "terminated"
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
    own = keys.report(parent, told.key)
    return told.kind is not ReportKind.LABEL and bool(table.get([own]))  # sent before, and its answer lost


def _told(table: str, parent: ThreadRef, told: Report) -> list[Action]:
    row, item = keys.child(parent, told.reference), rows.report_row(parent, told)
    where = keys.report(parent, told.key)
    if told.kind is ReportKind.NOTE:
        return [
            {"ConditionCheck": check(table, row, EXISTS, Test("muted", "absent"))},
            {"Put": put(table, where, item, NEW)},
        ]
    if told.kind is ReportKind.LABEL:
        label = {"label": {"S": told.outcome}}
        return [{"Update": update(table, row, EXISTS, put=label)}, {"Put": put(table, where, item)}]
    still = Test("status", "<>", {"S": TERMINATED}) if told.outcome == TERMINATED else OPEN
    closed = update(table, row, EXISTS, Test("muted", "absent"), still, put={"status": {"S": told.outcome}})
    return [{"Update": closed}, {"Put": put(table, where, item, NEW)}]
