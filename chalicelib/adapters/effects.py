"""Rows of effects: scheduled, claimed, tried, settled, each as its own conditional write.

They change nothing that a turn decides by, so they do not move the head. It must not know when an effect is tried again
or given up; it keeps what it is told under the condition that nobody was faster. An effect that is due is in the index
of what is due, next to the heads. Expired rows are read as absent (TTL is slow).
"""

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

from pynamodb.expressions.operand import Path

from chalicelib.adapters import keys, logs, rows
from chalicelib.adapters.codec import Item, Value
from chalicelib.adapters.table import Refused, Table
from chalicelib.adapters.writes import EXISTS, NEW, Test, check, number, put, update
from chalicelib.domain.entries import LogRow
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Effect, EffectState

SORT = Path("sk")
SCHEDULED = Test("state", "absent")
"""A scheduled effect has its state by default, and so no attribute."""
PARKED = Test("state", "=", {"S": EffectState.PARKED})


def change(table: str, ref: ThreadRef, effect: Effect) -> dict[str, Any]:
    """An effect as a part of a commit, whose condition protects it."""
    row = rows.effect_row(ref, effect)
    return update(table, keys.effect(ref, effect.id), put=row, remove=_absent(row))


def schedule(table: Table, ref: ThreadRef, effect: Effect) -> bool:
    """See `Store.schedule`."""
    open_thread = check(table.name, keys.head(ref), EXISTS, Test("de", "absent"), Test("te", "absent"))
    new = put(table.name, keys.effect(ref, effect.id), rows.effect_row(ref, effect), NEW)
    refusals = logs.transact(table, [{"ConditionCheck": open_thread}, {"Put": new}])
    return refusals is None or set(refusals) == {1}


def page(table: Table, ref: ThreadRef, *, after: str, limit: int) -> list[Effect]:
    """See `Store.effects`."""
    condition = SORT > after if after else None
    found = table.query(keys.effects(ref), condition, limit=limit)
    return [rows.effect_of(item) for item in islice(found, limit)]


def claim(table: Table, ref: ThreadRef, name: str, *, now: int, due_at: int) -> Effect | None:
    """See `Store.claim_effect`. After a lost answer it says None although it has happened; the due time brings it
    back.
    """
    due = (EXISTS, SCHEDULED, Test("due_at", "<=", number(now)))
    try:
        return _move(table, ref, name, *due, put={"due_at": number(due_at)}, add={"wakes": 1})
    except Refused:
        return None


def take(table: Table, ref: ThreadRef, name: str, *, now: int, until: int, nonce: str) -> Effect | None:
    """See `Store.take_effect`."""
    ready = (EXISTS, SCHEDULED, Test("at", "<=", number(now)))
    mine: Mapping[str, Value] = {"until": number(until), "due_at": number(until), "nonce": {"S": nonce}}
    for silent in (Test("until", "absent"), Test("until", "<=", number(now))):
        try:
            return _move(table, ref, name, *ready, silent, put=mine, add={"tries": 1})
        except Refused as refused:
            if refused.item and refused.item.get("nonce") == {"S": nonce}:
                return rows.effect_of(refused.item)
    return None


def settle(table: Table, ref: ThreadRef, taken: Effect, after: Effect, row: LogRow) -> bool:
    """See `Store.settle_effect`."""
    changed = rows.effect_row(ref, after)
    mine = (SCHEDULED, Test("nonce", "=", {"S": taken.nonce}), Test("tries", "=", number(taken.tries)))
    settled = update(table.name, keys.effect(ref, taken.id), *mine, put=changed, remove=_absent(changed))
    refusals = logs.transact(table, [{"Update": settled}, *logs.actions(table.name, ref, [row])])
    return refusals is None or logs.is_there(table, ref, row)


def remove(table: Table, ref: ThreadRef, name: str, *, expires_at: int) -> bool:
    """See `Store.remove_effect`. Sent again after a lost answer it may say False although it has happened."""
    gone: Mapping[str, Value] = {
        "state": {"S": EffectState.REMOVED},
        "gone_at": number(expires_at),
        "expires_at": number(-(-expires_at // rows.SECOND)),
    }
    for state in (SCHEDULED, PARKED):
        try:
            _move(table, ref, name, EXISTS, state, put=gone, remove=("due_at", "due_pk", "until"))
        except Refused:
            continue
        return True
    return False


def _move(
    table: Table,
    ref: ThreadRef,
    name: str,
    *fence: Test,
    put: Mapping[str, Value],
    remove: Collection[str] = (),
    add: Mapping[str, int] | None = None,
) -> Effect:
    """One conditional update of an effect. Raises Refused."""
    request = update(table.name, keys.effect(ref, name), *fence, put=put, remove=remove, add=add or {})
    answer = table.write("update_item", {**request, "ReturnValues": "ALL_NEW"})
    return rows.effect_of(answer["Attributes"])


def _absent(row: Item) -> list[str]:
    return [name for name in (*rows.absent(rows.EFFECT, row), "due_pk", "expires_at") if name not in row]
