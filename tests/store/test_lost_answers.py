"""An answer that gets lost changes nothing: what was written is recognised, and never written twice."""

import pytest

from chalicelib.adapters.store import TableStore
from chalicelib.adapters.table import Table
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Head
from chalicelib.ports import Commit
from tests.store.faults import lost, sent_twice
from tests.store.kit import NOW, SECOND, change, create, done, fact, moved, remembered, running

UNTIL = NOW + 60 * SECOND


def _texts(store: TableStore, ref: ThreadRef) -> list[str]:
    return [event.data["text"] for event in store.events(ref, after=0, limit=100, max_bytes=100_000)]


@pytest.mark.parametrize("fault", [sent_twice, lost])
def test_a_commit_whose_answer_is_lost_happens_once(
    any_store: TableStore, any_table: Table, ref: ThreadRef, fault: type
) -> None:
    head = create(any_store, ref)
    struck = fault(any_table.client, "TransactWriteItems")

    after = done(any_store.commit(change(ref, head, facts=(fact("second"),))))

    assert struck.struck == 1
    assert after == any_store.open(ref).head
    assert _texts(any_store, ref) == ["hello", "second"]


def test_a_commit_is_recognised_although_another_writer_has_moved_the_head_since(
    any_store: TableStore, any_table: Table, ref: ThreadRef
) -> None:
    head = create(any_store, ref)
    mine = change(ref, head, facts=(fact("mine"),))

    def other_writer() -> None:
        standing = any_store.open(ref).head
        done(any_store.commit(change(ref, standing, facts=(fact("other"),))))

    struck = lost(any_table.client, "TransactWriteItems", meanwhile=other_writer)
    after = done(any_store.commit(mine))

    assert struck.struck == 1
    assert (after.rev, after.seq, after.write) == (head.rev + 1, head.seq + 1, mine.write)
    assert _texts(any_store, ref) == ["hello", "mine", "other"]


def test_a_new_thread_is_recognised_after_others_have_written_to_it(
    any_store: TableStore, any_table: Table, ref: ThreadRef
) -> None:
    def other_writer() -> None:
        done(any_store.commit(change(ref, any_store.open(ref).head, facts=(fact("other"),))))

    struck = lost(any_table.client, "TransactWriteItems", meanwhile=other_writer)
    head = create(any_store, ref)

    assert (struck.struck, head.rev) == (1, 1)
    assert _texts(any_store, ref) == ["hello", "other"]


def test_a_commit_without_events_is_recognised_by_the_head(
    any_store: TableStore, any_table: Table, ref: ThreadRef
) -> None:
    head = create(any_store, ref)
    struck = lost(any_table.client, "TransactWriteItems")

    after = done(any_store.commit(change(ref, head)))

    assert (struck.struck, after) == (1, any_store.open(ref).head)


def test_the_same_commit_sent_again_later_answers_the_same(any_store: TableStore, ref: ThreadRef) -> None:
    head = create(any_store, ref)
    mine = change(ref, head, facts=(fact("mine"),))
    after = done(any_store.commit(mine))
    done(any_store.commit(change(ref, after, facts=(fact("other"),))))

    assert done(any_store.commit(mine)) == after
    assert _texts(any_store, ref) == ["hello", "mine", "other"]


def test_the_page_of_another_writer_is_not_taken_for_ones_own(any_store: TableStore, ref: ThreadRef) -> None:
    head = create(any_store, ref)
    other = done(any_store.commit(change(ref, head, facts=(fact("other"),))))

    assert moved(any_store.commit(change(ref, head, facts=(fact("mine"),)))).head == other
    assert _texts(any_store, ref) == ["hello", "other"]


@pytest.mark.parametrize("fault", [sent_twice, lost])
def test_a_lease_whose_answer_is_lost_is_the_callers_and_counts_once(
    any_store: TableStore, any_table: Table, ref: ThreadRef, fault: type
) -> None:
    before = running(any_store, ref)
    struck = fault(any_table.client, "UpdateItem")

    head, mine = any_store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=False)

    assert (struck.struck, mine) == (1, True)
    assert head == any_store.open(ref).head
    assert head
    assert (head.run_attempt, head.rev) == (before.run_attempt + 1, before.rev + 1)


@pytest.mark.parametrize("fault", [sent_twice, lost])
def test_a_takeover_whose_answer_is_lost_raises_the_epoch_once(
    any_store: TableStore, any_table: Table, ref: ThreadRef, fault: type
) -> None:
    running(any_store, ref)
    any_store.take(ref, now=NOW, until=NOW + 1, nonce="dead", takeover=False)
    struck = fault(any_table.client, "UpdateItem")

    head, mine = any_store.take(ref, now=NOW + 2, until=UNTIL, nonce="one", takeover=True)

    assert (struck.struck, mine) == (1, True)
    assert head
    assert (head.epoch, head.run_attempt, head.lease_nonce) == (1, 2, "one")


@pytest.mark.parametrize("fault", [sent_twice, lost])
def test_a_renewal_whose_answer_is_lost_holds(
    any_store: TableStore, any_table: Table, ref: ThreadRef, fault: type
) -> None:
    running(any_store, ref)
    any_store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=False)
    struck = fault(any_table.client, "UpdateItem")

    head = any_store.renew(ref, run=1, attempt=1, until=UNTIL + 5)

    assert struck.struck == 1
    assert head
    assert (head.lease_until, head.due_at, head.rev) == (UNTIL + 5, UNTIL + 5, 3)
    assert head == any_store.open(ref).head


@pytest.mark.parametrize("fault", [sent_twice, lost])
def test_a_remembered_key_whose_answer_is_lost_stands(
    any_store: TableStore, any_table: Table, ref: ThreadRef, fault: type
) -> None:
    row = remembered(f"key-{ref.token}")
    struck = fault(any_table.client, "PutItem")

    assert any_store.remember(ref.org, row, NOW) == row
    assert struck.struck == 1


@pytest.mark.parametrize("fault", [sent_twice, lost])
def test_a_claim_whose_answer_is_lost_raises_the_wake_number_at_most_once(
    any_store: TableStore, any_table: Table, ref: ThreadRef, fault: type
) -> None:
    before = running(any_store, ref)
    struck = fault(any_table.client, "UpdateItem")

    any_store.claim(ref, rev=before.rev, due_at=UNTIL, wake=True, epoch=False)

    standing: Head | None = any_store.open(ref).head
    assert struck.struck == 1
    assert standing
    assert (standing.wake, standing.due_at, standing.rev) == (before.wake + 1, UNTIL, before.rev + 1)


def test_a_process_that_dies_before_the_answer_leaves_the_whole_commit(
    any_store: TableStore, any_table: Table, ref: ThreadRef
) -> None:
    head = create(any_store, ref)
    mine: Commit = change(ref, head, facts=(fact("mine"),), remember=remembered(f"key-{ref.token}"))

    def die() -> None:
        raise SystemExit

    lost(any_table.client, "TransactWriteItems", meanwhile=die)
    with pytest.raises(SystemExit):
        any_store.commit(mine)

    opened = any_store.open(ref, key=f"key-{ref.token}", now=NOW)
    assert (opened.head and opened.head.write, opened.remembered) == (mine.write, mine.remember)
    assert done(any_store.commit(mine)) == opened.head
