"""The lease: one attempt holds it, its fencing token rises, and who lost it cannot renew it."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from chalicelib.adapters.store import TableStore
from chalicelib.domain.ids import ThreadRef
from tests.store.kit import NOW, SECOND, change, changed, create, done, fact, new_head, running

UNTIL = NOW + 60 * SECOND


def test_of_many_takers_one_gets_the_lease(store: TableStore, ref: ThreadRef) -> None:
    running(store, ref)

    with ThreadPoolExecutor(8) as pool:
        takes = [
            pool.submit(store.take, ref, now=NOW, until=UNTIL, nonce=f"n{number}", takeover=False)
            for number in range(8)
        ]
        answers = [take.result() for take in takes]

    assert [mine for _, mine in answers].count(True) == 1
    standing = store.open(ref).head
    assert {head for head, _ in answers} == {standing}
    assert standing
    assert (standing.run_attempt, standing.stalls, standing.lease_until) == (1, 1, UNTIL)


def test_a_taken_lease_leaves_the_due_time_to_the_sweep(store: TableStore, ref: ThreadRef) -> None:
    running(store, ref, due_at=NOW + 1)

    head, mine = store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=False)

    assert mine
    assert head
    assert head.due_at == NOW + 1


def test_there_is_no_lease_on_a_thread_without_a_run(store: TableStore, ref: ThreadRef) -> None:
    idle = create(store, ref)

    assert store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=False) == (idle, False)
    assert store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=True) == (idle, False)


def test_there_is_no_lease_on_a_deleted_thread(store: TableStore, ref: ThreadRef) -> None:
    deleted = running(store, ref, deleted_at=NOW)

    assert store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=False) == (deleted, False)


def test_there_is_no_lease_on_a_thread_that_does_not_exist(store: TableStore, ref: ThreadRef) -> None:
    assert store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=False) == (None, False)
    assert store.open(ref).head is None


def test_a_living_lease_is_not_taken_over(store: TableStore, ref: ThreadRef) -> None:
    running(store, ref)
    held, _ = store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=False)

    assert store.take(ref, now=UNTIL - 1, until=UNTIL + 9, nonce="two", takeover=True) == (held, False)


def test_an_ended_lease_is_taken_over_and_raises_the_epoch(store: TableStore, ref: ThreadRef) -> None:
    running(store, ref)
    store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=False)

    assert store.take(ref, now=UNTIL, until=UNTIL + 9, nonce="two", takeover=False)[1] is False
    head, mine = store.take(ref, now=UNTIL, until=UNTIL + 9, nonce="two", takeover=True)

    assert mine
    assert head
    assert (head.run_attempt, head.stalls, head.epoch, head.lease_nonce) == (2, 2, 1, "two")


def test_a_takeover_of_a_released_lease_is_a_plain_take(store: TableStore, ref: ThreadRef) -> None:
    running(store, ref)

    head, mine = store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=True)

    assert mine
    assert head
    assert (head.epoch, head.run_attempt) == (0, 1)


def test_a_lease_is_renewed_by_its_fencing_token(store: TableStore, ref: ThreadRef) -> None:
    running(store, ref)
    store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=False)

    head = store.renew(ref, run=1, attempt=1, until=UNTIL + 5)

    assert head == store.open(ref).head
    assert head
    assert (head.lease_until, head.due_at, head.rev) == (UNTIL + 5, UNTIL + 5, 3)


def test_a_lease_never_ends_earlier_by_a_late_renewal(store: TableStore, ref: ThreadRef) -> None:
    running(store, ref)
    held, _ = store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=False)

    assert store.renew(ref, run=1, attempt=1, until=UNTIL - 5) == held
    assert store.open(ref).head == held


@pytest.mark.parametrize(("run", "attempt"), [(1, 2), (2, 1), (1, 0)])
def test_another_fencing_token_renews_nothing(store: TableStore, ref: ThreadRef, run: int, attempt: int) -> None:
    running(store, ref)
    held, _ = store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=False)

    assert store.renew(ref, run=run, attempt=attempt, until=UNTIL + 5) is None
    assert store.open(ref).head == held


def test_a_released_lease_is_not_renewed(store: TableStore, ref: ThreadRef) -> None:
    running(store, ref)
    held, _ = store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=False)
    assert held
    released = changed(held, lease_until=0, lease_nonce="")
    done(store.commit(change(ref, held, released, facts=(fact(),))))

    assert store.renew(ref, run=1, attempt=1, until=UNTIL + 5) is None


def test_a_lease_moves_the_head_under_other_writers(store: TableStore, ref: ThreadRef) -> None:
    before = running(store, ref)
    held, _ = store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=False)

    outcome = store.commit(change(ref, before, facts=(fact(),)))

    assert outcome.head == held


def test_a_claim_moves_the_due_time_and_raises_what_was_asked(store: TableStore, ref: ThreadRef) -> None:
    before = running(store, ref)

    head = store.claim(ref, rev=before.rev, due_at=UNTIL, wake=True, epoch=True)

    assert head == changed(before, rev=before.rev + 1, due_at=UNTIL, wake=1, epoch=1)
    assert store.open(ref).head == head


def test_a_claim_can_clear_the_due_time(store: TableStore, ref: ThreadRef) -> None:
    before = running(store, ref)

    head = store.claim(ref, rev=before.rev, due_at=0, wake=False, epoch=False)

    assert head == changed(before, rev=before.rev + 1, due_at=0)


def test_of_many_claims_on_one_head_one_holds(store: TableStore, ref: ThreadRef) -> None:
    before = running(store, ref)

    with ThreadPoolExecutor(8) as pool:
        claims = [
            pool.submit(store.claim, ref, rev=before.rev, due_at=UNTIL + number, wake=True, epoch=False)
            for number in range(8)
        ]
        held = [claim.result() for claim in claims if claim.result()]

    assert held == [store.open(ref).head]
    assert held[0]
    assert held[0].wake == 1


def test_nothing_is_claimed_on_a_thread_that_does_not_exist(store: TableStore, ref: ThreadRef) -> None:
    assert store.claim(ref, rev=1, due_at=UNTIL, wake=True, epoch=False) is None
    assert store.open(ref).head is None


def test_a_run_without_a_fencing_token_of_zero_keeps_its_defaults(store: TableStore, ref: ThreadRef) -> None:
    create(store, ref, new_head(run=3, run_attempt=0))

    head, mine = store.take(ref, now=NOW, until=UNTIL, nonce="one", takeover=False)

    assert mine
    assert head
    assert (head.run, head.run_attempt) == (3, 1)
