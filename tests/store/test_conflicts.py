"""What passes is waited out with the same request; what cannot pass is told at once."""

from dataclasses import replace

import pytest
from botocore.exceptions import ClientError

from chalicelib.adapters.store import TableStore
from chalicelib.adapters.table import PATIENCE, Table
from chalicelib.domain.errors import RetryLater
from chalicelib.domain.ids import ThreadRef
from tests.store.faults import Counter, answered, cancelled, keep_back_one, lost
from tests.store.kit import NOW, MovedClock, change, create, done, fact, moved, remembered, running

ALWAYS = 10**6


@pytest.mark.parametrize("reason", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"])
def test_a_cancelled_transaction_goes_out_again_with_the_same_token_and_payload(
    store: TableStore, table: Table, ref: ThreadRef, reason: str
) -> None:
    head = create(store, ref)
    struck = cancelled(table.client, "None", reason, times=4)
    sent = Counter(table.client, "TransactWriteItems")

    after = done(store.commit(change(ref, head, facts=(fact(),))))

    assert struck.struck == 4
    assert sent.bodies == [sent.bodies[0]] * 5
    assert after == store.open(ref).head


def test_another_payload_goes_out_under_another_token(store: TableStore, table: Table, ref: ThreadRef) -> None:
    head = create(store, ref)
    sent = Counter(table.client, "TransactWriteItems")
    mine = change(ref, head, facts=(fact("mine"),), remember=remembered(f"key-{ref.token}"))
    store.remember(ref.org, remembered(f"key-{ref.token}"), NOW)

    assert moved(store.commit(mine)).head == head
    done(store.commit(replace(mine, remember=None)))

    assert len({body["ClientRequestToken"] for body in sent.bodies}) == 2


def test_pauses_between_tries_grow_and_are_bounded(
    store: TableStore, table: Table, ref: ThreadRef, clock: MovedClock
) -> None:
    head = create(store, ref)
    cancelled(table.client, "TransactionConflict", times=3)

    store.commit(change(ref, head, facts=(fact(),)))

    assert clock.elapsed == pytest.approx(0.02 + 0.04 + 0.08)


@pytest.mark.parametrize(
    ("code", "status"),
    [("TransactionInProgressException", 400), ("ThrottlingException", 400), ("InternalServerError", 500), ("X", 503)],
)
def test_a_busy_service_is_waited_out(store: TableStore, table: Table, ref: ThreadRef, code: str, status: int) -> None:
    head = create(store, ref)
    struck = answered(table.client, "TransactWriteItems", code, status=status, times=4)

    assert done(store.commit(change(ref, head, facts=(fact(),)))) == store.open(ref).head
    assert struck.struck == 4


def test_patience_ends_in_retry_later(store: TableStore, table: Table, ref: ThreadRef, clock: MovedClock) -> None:
    head = create(store, ref)
    cancelled(table.client, "TransactionConflict", times=ALWAYS)

    with pytest.raises(RetryLater) as refusal:
        store.commit(change(ref, head, facts=(fact(),)))

    assert refusal.value.retry_after_seconds
    assert PATIENCE <= clock.elapsed < PATIENCE + 1
    assert store.open(ref).head == head


def test_answers_that_never_come_end_in_retry_later_and_the_commit_may_have_happened(
    store: TableStore, table: Table, ref: ThreadRef
) -> None:
    head = create(store, ref)
    lost(table.client, "TransactWriteItems", times=ALWAYS)

    with pytest.raises(RetryLater):
        store.commit(change(ref, head, facts=(fact("once"),)))

    assert [event.data["text"] for event in store.events(ref, after=1, limit=9, max_bytes=999)] == ["once"]


def test_a_wrong_request_is_told_at_once(store: TableStore, table: Table, ref: ThreadRef, clock: MovedClock) -> None:
    head = create(store, ref)
    answered(table.client, "TransactWriteItems", "ValidationException", times=ALWAYS)

    with pytest.raises(ClientError):
        store.commit(change(ref, head, facts=(fact(),)))

    assert clock.elapsed == 0


def test_a_moved_head_is_told_although_another_row_is_in_conflict(
    store: TableStore, table: Table, ref: ThreadRef, clock: MovedClock
) -> None:
    old = create(store, ref)
    new = done(store.commit(change(ref, old, facts=(fact("other"),))))
    cancelled(table.client, "ConditionalCheckFailed", "TransactionConflict")

    assert moved(store.commit(change(ref, old, facts=(fact(),)))).head == new
    assert clock.elapsed == 0


def test_ones_own_page_counts_before_a_moved_head(store: TableStore, table: Table, ref: ThreadRef) -> None:
    mine = change(ref, create(store, ref), facts=(fact("mine"),))
    after = done(store.commit(mine))
    done(store.commit(change(ref, after, facts=(fact("other"),))))
    cancelled(table.client, "ConditionalCheckFailed", "None")

    assert done(store.commit(mine)) == after


def test_a_conflict_after_ones_own_lost_write_is_settled_by_the_repeat(
    store: TableStore, table: Table, ref: ThreadRef
) -> None:
    mine = change(ref, create(store, ref), facts=(fact("mine"),))
    first = lost(table.client, "TransactWriteItems", meanwhile=lambda: cancelled(table.client, "TransactionConflict"))

    after = done(store.commit(mine))

    assert (first.struck, after) == (1, store.open(ref).head)


@pytest.mark.parametrize("code", ["TransactionConflictException", "ProvisionedThroughputExceededException"])
def test_single_writes_wait_too(store: TableStore, table: Table, ref: ThreadRef, code: str) -> None:
    running(store, ref)
    struck = answered(table.client, "UpdateItem", code, times=4)

    _, mine = store.take(ref, now=NOW, until=NOW + 9, nonce="one", takeover=False)

    assert (struck.struck, mine) == (4, True)


@pytest.mark.parametrize("operation", ["BatchGetItem", "Query"])
def test_reads_wait_too(store: TableStore, table: Table, ref: ThreadRef, operation: str) -> None:
    head = create(store, ref)
    struck = answered(table.client, operation, "ThrottlingException", times=4)

    assert store.open(ref).head == head
    assert len(store.events(ref, after=0, limit=1, max_bytes=9)) == 1
    assert struck.struck == 4


def test_reads_end_in_retry_later(store: TableStore, table: Table, ref: ThreadRef) -> None:
    answered(table.client, "BatchGetItem", "ThrottlingException", times=ALWAYS)

    with pytest.raises(RetryLater):
        store.open(ref)


def test_rows_that_a_batch_read_kept_back_are_read_again(store: TableStore, table: Table, ref: ThreadRef) -> None:
    row = remembered(f"key-{ref.token}")
    head = create(store, ref, remember=row)
    struck = keep_back_one(table.client, table.name)

    opened = store.open(ref, key=row.key, now=NOW)

    assert struck.struck == 1
    assert (opened.head, opened.remembered) == (head, row)
