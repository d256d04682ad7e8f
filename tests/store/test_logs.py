"""Rows of a log and durable values: once however often they are sent, behind the head's mark, found by their days."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chalicelib.adapters import keys, logs, rows
from chalicelib.adapters.store import TableStore
from chalicelib.adapters.table import Table
from chalicelib.domain import entries
from chalicelib.domain.entries import LogRow
from chalicelib.domain.errors import RetryLater
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Value
from chalicelib.ports import Logged
from tests.store.faults import Counter, cancelled, lost, sent_twice, withdraw_all
from tests.store.kit import NOW, SECOND, change, changed, create, done, fact, moved, remembered, thread

DAY = 86_400 * SECOND
FIRST, LAST = entries.key(NOW - DAY, ""), entries.key(NOW + 400 * DAY, "")
SENT_AGAIN = [sent_twice, lost]


def row(name: str = "a", at: int = NOW, cost: Any = None, **fields: Any) -> LogRow:
    body = entries.app_body({"name": name, "cost": cost, **fields})
    return LogRow(key=entries.key(at, name), kind="app", at=at, message_id="msg_1", body=body)


def listed(store: TableStore, ref: ThreadRef, *, descending: bool = False, limit: int = 100) -> list[LogRow]:
    """The whole log, page by page."""
    found: list[LogRow] = []
    after, before = FIRST, LAST
    while True:
        page = store.logs(ref, after=after, before=before, limit=limit, descending=descending)
        found += page.rows
        if page.reached is None:
            return found
        after, before = (after, page.reached) if descending else (page.reached, before)


def put(store: TableStore, ref: ThreadRef, new: LogRow, **how: Any) -> Logged:
    return store.log(ref, new, **{"remember": None, "now": NOW, **how})


# -- rows


@pytest.mark.parametrize("fault", SENT_AGAIN)
def test_a_row_whose_answer_is_lost_stands_once_and_costs_once(
    any_store: TableStore, any_table: Table, ref: ThreadRef, fault: type
) -> None:
    create(any_store, ref)
    struck = fault(any_table.client, "TransactWriteItems")
    assert put(any_store, ref, row(cost=0.0004), remember=remembered(ref.token)).stored
    assert struck.struck == 1
    assert listed(any_store, ref) == [row(cost=0.0004)]
    assert any_store.open(ref, spent=True).app_cost == 4 * entries.PICO // 10_000


def test_the_same_row_again_changes_nothing(store: TableStore, ref: ThreadRef) -> None:
    create(store, ref)
    assert [put(store, ref, row(cost=0.1)).stored for _ in range(3)] == [True] * 3
    assert store.open(ref, spent=True).app_cost == entries.PICO // 10


def test_costs_of_rows_add_up_exactly(store: TableStore, ref: ThreadRef) -> None:
    create(store, ref)
    for n in range(10):
        put(store, ref, row(f"r{n}", cost=0.1))
    put(store, ref, row("large", cost=entries.MOST_USD))
    put(store, ref, row("small", cost=1e-12))
    assert store.open(ref, spent=True).app_cost == entries.PICO * (1 + entries.MOST_USD) + 1


def test_no_row_comes_to_a_thread_that_is_not_there_or_is_deleted(store: TableStore, ref: ThreadRef) -> None:
    assert put(store, ref, row(cost=1.0)) == Logged(stored=False)
    head = create(store, ref)
    done(store.commit(change(ref, head, changed(head, deleted_at=NOW))))
    assert put(store, ref, row(cost=1.0), remember=remembered(ref.token)) == Logged(stored=False)
    assert listed(store, ref) == []
    assert store.open(ref, spent=True).app_cost == 0


def test_a_key_that_is_taken_lets_no_row_through(store: TableStore, ref: ThreadRef) -> None:
    create(store, ref)
    first = remembered(ref.token, nonce="first")
    assert put(store, ref, row("a", cost=1), remember=first).stored
    second = put(store, ref, row("b", cost=1), remember=remembered(ref.token, nonce="second"))
    assert second == Logged(stored=False, remembered=first)
    assert [one.body["model"] for one in listed(store, ref)] == ["a"]
    assert store.open(ref, spent=True).app_cost == entries.PICO


def test_a_row_of_another_org_with_the_same_token_is_another_row(store: TableStore, ref: ThreadRef) -> None:
    other = ThreadRef("org_b", ref.token)
    create(store, ref)
    create(store, other)
    put(store, ref, row("mine"))
    assert listed(store, other) == []
    assert store.log_rows(other, [row("mine").key]) == []


def test_a_row_outside_does_not_move_the_head(store: TableStore, ref: ThreadRef) -> None:
    head = create(store, ref)
    put(store, ref, row(cost=1))
    assert store.open(ref).head == head


def test_a_row_that_meets_a_write_of_the_turn_is_sent_again(store: TableStore, table: Table, ref: ThreadRef) -> None:
    create(store, ref)
    struck = cancelled(table.client, "TransactionConflict", "None", "None", times=3)
    assert put(store, ref, row(cost=0.1)).stored
    assert struck.struck == 3
    assert store.open(ref, spent=True).app_cost == entries.PICO // 10


def test_a_table_that_stays_busy_ends_in_retry_later_and_nothing_is_stored(
    store: TableStore, table: Table, ref: ThreadRef
) -> None:
    create(store, ref)
    cancelled(table.client, "TransactionConflict", "None", "None", times=1_000)
    with pytest.raises(RetryLater):
        put(store, ref, row(cost=0.1))
    withdraw_all()
    assert listed(store, ref) == []


def test_a_row_is_one_call(store: TableStore, table: Table, ref: ThreadRef) -> None:
    create(store, ref)
    counted = Counter(table.client)
    put(store, ref, row(cost=1), remember=remembered(ref.token))
    assert len(counted.bodies) == 1


# -- rows in commits


@pytest.mark.parametrize("fault", SENT_AGAIN)
def test_rows_of_a_commit_stand_once_and_cost_once(
    any_store: TableStore, any_table: Table, ref: ThreadRef, fault: type
) -> None:
    head = create(any_store, ref)
    struck = fault(any_table.client, "TransactWriteItems")
    done(any_store.commit(change(ref, head, logs=(row("a", cost=0.1), row("b", cost=0.2), row("c")))))
    assert struck.struck == 1
    assert [one.body["model"] for one in listed(any_store, ref)] == ["a", "b", "c"]
    assert any_store.open(ref, spent=True).app_cost == 3 * entries.PICO // 10


def test_a_commit_of_rows_alone_is_recognised_although_another_writer_has_moved_the_head_since(
    any_store: TableStore, any_table: Table, ref: ThreadRef
) -> None:
    head = create(any_store, ref)

    def other_writer() -> None:
        done(any_store.commit(change(ref, any_store.open(ref).head, facts=(fact("other"),))))

    struck = lost(any_table.client, "TransactWriteItems", meanwhile=other_writer)
    after = done(any_store.commit(change(ref, head, logs=(row("a", cost=0.1),))))
    assert (struck.struck, after.rev) == (1, head.rev + 1)
    assert any_store.open(ref, spent=True).app_cost == entries.PICO // 10


def test_a_commit_that_was_too_late_leaves_no_row(any_store: TableStore, ref: ThreadRef) -> None:
    head = create(any_store, ref)
    done(any_store.commit(change(ref, head, facts=(fact("other"),))))
    late = change(ref, head, logs=(row("late", cost=1),), values=(Value(name="n", value=1, updated_at=NOW),))
    moved(any_store.commit(late))
    assert listed(any_store, ref) == []
    opened = any_store.open(ref, values=["n"], spent=True)
    assert (opened.app_cost, opened.values) == (0, {})


# -- lists


@pytest.fixture
def scattered(store: TableStore, ref: ThreadRef) -> list[LogRow]:
    """A log over many days, some of them silent for long, some with several rows of one instant."""
    head = create(store, ref)
    days = [0, 0, 1, 1, 1, 2, 5, 44, 45, 46, 130, 131, 260, 399]
    made = [row(f"r{n:02d}", NOW + day * DAY + (n % 3) * SECOND) for n, day in enumerate(days)]
    done(store.commit(change(ref, head, logs=tuple(made))))
    return sorted(made, key=lambda one: one.key)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_bring_every_row_once_in_order(
    store: TableStore, ref: ThreadRef, scattered: list[LogRow], limit: int
) -> None:
    assert listed(store, ref, limit=limit) == scattered
    assert listed(store, ref, limit=limit, descending=True) == scattered[::-1]


def test_a_page_looks_at_a_bounded_number_of_days(
    store: TableStore, table: Table, ref: ThreadRef, scattered: list[LogRow]
) -> None:
    counted = Counter(table.client, "Query")
    page = store.logs(ref, after=entries.key(NOW, ""), before=LAST, limit=100)
    assert len(counted.bodies) == logs.DAYS_A_CALL
    assert page.reached is not None
    assert [one.key for one in page.rows] == [one.key for one in scattered if one.key < page.reached]


def test_bounds_are_left_out(store: TableStore, ref: ThreadRef, scattered: list[LogRow]) -> None:
    first, last = scattered[0].key, scattered[5].key
    assert store.logs(ref, after=first, before=last, limit=100).rows == scattered[1:5]


def test_rows_by_key_come_in_order_and_what_is_not_there_is_left_out(
    store: TableStore, ref: ThreadRef, scattered: list[LogRow]
) -> None:
    wanted = [scattered[9].key, entries.key(5, "no"), scattered[2].key]
    assert store.log_rows(ref, wanted) == [scattered[2], scattered[9]]


def test_large_rows_come_in_pages_of_the_table(store: TableStore, ref: ThreadRef) -> None:
    create(store, ref)
    noise = "".join(chr(0x4E00 + n * 7_919 % 20_000) for n in range(21_000))
    made = [row(f"r{n}", NOW + n, request=noise, response=noise) for n in range(12)]
    for one in made:
        put(store, ref, one)
    assert listed(store, ref) == made
    assert listed(store, ref, limit=5, descending=True) == made[::-1]


# -- keys and columns


TEXTS = st.text(max_size=30)


@given(TEXTS, TEXTS, st.integers(0, 10**16), st.text("abc.-_", min_size=1, max_size=20))
def test_the_key_of_a_row_names_its_thread_and_itself(org: str, token: str, at: int, name: str) -> None:
    ref = ThreadRef(org, token)
    made = keys.log(ref, entries.key(at, name))
    assert keys.log_at(*made) == (ref, entries.key(at, name))
    assert keys.thread_of(made.pk) == ref
    assert keys.page_at(*made) is None
    assert keys.log_at(*keys.event_page(ref, at % 1000 + 1)) is None


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
BODIES = st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers() | FLOATS | TEXTS)


@given(st.builds(LogRow, key=st.just("k"), kind=TEXTS, at=st.integers(1), run=st.integers(0), body=BODIES))
def test_a_row_comes_back(made: LogRow) -> None:
    assert rows.log_of({"sk": {"S": "k"}, **rows.log_row(made)}) == made


# -- durable values


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON)
def test_a_value_comes_back_in_value_and_type(store: TableStore, ref: ThreadRef, value: Any) -> None:
    if store.open(ref).head is None:
        create(store, ref)
    assert store.put_value(ref, Value(name="v", value=value, updated_at=NOW))
    back = store.open(ref, values=["v"]).values["v"].value
    assert repr(back) == repr(value)


@pytest.mark.parametrize("fault", SENT_AGAIN)
def test_a_value_whose_answer_is_lost_is_that_value(
    any_store: TableStore, any_table: Table, ref: ThreadRef, fault: type
) -> None:
    create(any_store, ref)
    any_store.put_value(ref, Value(name="v", value=1, updated_at=NOW))
    struck = fault(any_table.client, "TransactWriteItems")
    assert any_store.put_value(ref, Value(name="v", value=[2], updated_at=NOW + 1))
    assert struck.struck == 1
    assert any_store.open(ref, values=["v"]).values["v"] == Value(name="v", value=[2], updated_at=NOW + 1)


def test_values_have_names_of_their_own_and_go_one_by_one(store: TableStore, ref: ThreadRef) -> None:
    create(store, ref)
    for name in ("a", "a.b", "a:b", "A"):
        store.put_value(ref, Value(name=name, value=name, updated_at=NOW))
    assert store.remove_value(ref, "a")
    assert not store.remove_value(ref, "a")
    found = store.open(ref, values=["a", "a.b", "a:b", "A"]).values
    assert {name: row.value for name, row in found.items()} == {"a.b": "a.b", "a:b": "a:b", "A": "A"}


def test_no_value_comes_to_a_thread_that_is_not_there_or_is_deleted(store: TableStore, ref: ThreadRef) -> None:
    value = Value(name="v", value=1, updated_at=NOW)
    assert not store.put_value(ref, value)
    head = create(store, ref)
    assert store.put_value(ref, value)
    done(store.commit(change(ref, head, changed(head, deleted_at=NOW))))
    assert not store.put_value(ref, value)
    assert not store.remove_value(ref, "v")


def test_a_value_of_another_org_with_the_same_token_is_another_value(store: TableStore) -> None:
    ref = thread("org_a")
    other = ThreadRef("org_b", ref.token)
    create(store, ref)
    create(store, other)
    store.put_value(ref, Value(name="v", value=1, updated_at=NOW))
    assert store.open(other, values=["v"]).values == {}
    assert not store.remove_value(other, "v")
