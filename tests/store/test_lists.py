"""Lists of a thread and of an org: pages over blocks, in both directions, and the two indexes."""

import pytest

from chalicelib.adapters import keys
from chalicelib.adapters.store import TableStore
from chalicelib.adapters.table import Table
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import About, Head
from chalicelib.ports import DUE_SHARDS, Due
from tests.store.faults import Counter
from tests.store.kit import NOW, change, changed, command, create, done, fact, new_head, thread, user_message

ABOUT = About(title="t", tags=(), arguments={}, user=None)
BEYOND = 10**18


@pytest.fixture(scope="module")
def long_thread() -> ThreadRef:
    """A thread with 250 commands and 150 messages: three blocks of each."""
    return thread()


@pytest.fixture
def filled(store: TableStore, long_thread: ThreadRef) -> ThreadRef:
    """That thread, written by the first test that needs it."""
    head = store.open(long_thread).head or create(store, long_thread)
    while head.commands < 250:
        first, last = head.commands + 1, head.commands + 50
        places = range(head.messages + 1, head.messages + 31)
        commit = change(
            long_thread,
            head,
            changed(head, commands=last, messages=places[-1]),
            commands=tuple(command(number) for number in range(first, last + 1)),
            messages=tuple(user_message(place) for place in places),
        )
        head = done(store.commit(commit))
    return long_thread


@pytest.mark.parametrize(("after", "before"), [(0, 251), (99, 102), (100, 201), (101, 150), (249, 251), (250, 999)])
@pytest.mark.parametrize("limit", [1, 7, 100, 1_000])
def test_commands_come_in_order_from_any_window(
    store: TableStore, filled: ThreadRef, after: int, before: int, limit: int
) -> None:
    expected = list(range(after + 1, min(before, 251)))

    up = store.commands(filled, after=after, before=before, limit=limit)
    down = store.commands(filled, after=after, before=before, limit=limit, descending=True)

    assert [row.number for row in up] == expected[:limit]
    assert [row.number for row in down] == expected[::-1][:limit]


@pytest.mark.parametrize(("after", "before"), [(0, 151), (63, 66), (64, 129), (149, 151), (150, 151)])
def test_messages_come_in_order_from_any_window(store: TableStore, filled: ThreadRef, after: int, before: int) -> None:
    expected = list(range(after + 1, min(before, 151)))

    up = store.messages(filled, after=after, before=before, limit=1_000)
    down = store.messages(filled, after=after, before=before, limit=1_000, descending=True)

    assert [row.place for row in up] == expected
    assert [row.place for row in down] == expected[::-1]


def test_a_window_far_beyond_the_newest_costs_no_walk_through_empty_blocks(
    store: TableStore, table: Table, filled: ThreadRef
) -> None:
    sent = Counter(table.client)

    up = store.messages(filled, after=140, before=BEYOND, limit=20)
    down = store.messages(filled, after=0, before=BEYOND, limit=5, descending=True)
    none = store.messages(filled, after=5_000, before=BEYOND, limit=5, descending=True)

    assert [row.place for row in up] == list(range(141, 151))
    assert [row.place for row in down] == [150, 149, 148, 147, 146]
    assert none == []
    assert len(sent.bodies) <= 7


def test_lists_of_an_unknown_thread_are_empty(store: TableStore, ref: ThreadRef) -> None:
    assert store.commands(ref, after=0, before=BEYOND, limit=5) == []
    assert store.messages(ref, after=0, before=BEYOND, limit=5, descending=True) == []


def test_threads_of_an_org_come_newest_activity_first(store: TableStore) -> None:
    org = f"org #{thread().token}"
    refs = [thread(org) for _ in range(5)]
    for age, ref in enumerate(refs):
        create(store, ref, new_head(active_at=NOW - age))
    create(store, thread(f"{org}2"))

    first = store.newest_threads(org, before="", limit=3)
    rest = store.newest_threads(org, before=first[-1][0], limit=3)

    assert [ref for _, ref in first + rest] == refs


def test_activity_moves_a_thread_to_the_front_and_deletion_takes_it_out(store: TableStore) -> None:
    org = f"org_{thread().token}"
    refs = [thread(org), thread(org)]
    heads = [create(store, ref, new_head(active_at=NOW - age)) for age, ref in enumerate(refs)]

    older = done(store.commit(change(refs[1], heads[1], changed(heads[1], active_at=NOW + 9), facts=(fact(),))))
    assert [ref for _, ref in store.newest_threads(org, before="", limit=9)] == [refs[1], refs[0]]

    deleted = done(store.commit(change(refs[1], older, changed(older, deleted_at=NOW), facts=(fact(),))))
    assert [ref for _, ref in store.newest_threads(org, before="", limit=9)] == [refs[0]]
    assert store.open(refs[1]).head == deleted


def _due(store: TableStore, ref: ThreadRef, until: int) -> bool:
    return Due(ref=ref) in store.due(keys.due_shard(ref), until=until, limit=1_000)


def test_a_thread_is_due_from_its_time_on_until_that_is_cleared(store: TableStore, ref: ThreadRef) -> None:
    head = create(store, ref, new_head(run=1, due_at=NOW + 10))

    assert not _due(store, ref, NOW + 9)
    assert _due(store, ref, NOW + 10)
    moved_on = store.claim(ref, rev=head.rev, due_at=NOW + 20, wake=True, epoch=False)
    assert moved_on
    assert (_due(store, ref, NOW + 19), _due(store, ref, NOW + 20)) == (False, True)
    done(store.commit(change(ref, moved_on, changed(moved_on, due_at=0), facts=(fact(),))))
    assert not _due(store, ref, NOW + 99)


def test_a_renewed_lease_makes_its_thread_due_at_its_end(store: TableStore, ref: ThreadRef) -> None:
    create(store, ref, new_head(run=1, due_at=NOW + 5))

    store.take(ref, now=NOW, until=NOW + 30, nonce="n", takeover=False)
    assert (_due(store, ref, NOW + 4), _due(store, ref, NOW + 5)) == (False, True)
    store.renew(ref, run=1, attempt=1, until=NOW + 60)
    assert (_due(store, ref, NOW + 59), _due(store, ref, NOW + 60)) == (False, True)


def test_due_threads_come_oldest_first_and_each_in_one_shard(store: TableStore) -> None:
    refs = [thread() for _ in range(80)]
    for late, ref in enumerate(refs):
        create(store, ref, new_head(run=1, due_at=1_000 + late))

    shards = [store.due(shard, until=1_100, limit=1_000) for shard in range(DUE_SHARDS)]

    assert sorted(due.ref.token for shard in shards for due in shard) == sorted(ref.token for ref in refs)
    for shard in shards:
        assert shard == sorted(shard, key=lambda due: refs.index(due.ref))
    fullest = max(shards, key=len)
    assert store.due(shards.index(fullest), until=1_100, limit=1) == fullest[:1]


def test_about_reads_many_threads_at_once_and_leaves_out_what_is_not_there(store: TableStore, table: Table) -> None:
    refs = [thread() for _ in range(3)]
    heads: dict[ThreadRef, Head] = {ref: create(store, ref, about=ABOUT) for ref in refs}
    sent = Counter(table.client)

    found = store.about([*refs, thread(), ThreadRef("org_other", refs[0].token)])

    assert found == {ref: (head, ABOUT) for ref, head in heads.items()}
    assert len(sent.bodies) == 1
    with pytest.raises(ValueError, match="51 threads"):
        store.about([thread() for _ in range(51)])


def test_another_orgs_thread_is_not_there(store: TableStore, ref: ThreadRef) -> None:
    create(store, ref, about=ABOUT, messages=(user_message(1),))
    foreign = ThreadRef("org_other", ref.token)

    opened = store.open(foreign, about=True, messages=[1])

    assert (opened.head, opened.about, opened.messages) == (None, None, {})
    assert store.events(foreign, after=0, limit=9, max_bytes=999) == []
    assert store.messages(foreign, after=0, before=9, limit=9) == []
