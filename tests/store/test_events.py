"""The log of a thread: contiguous from 1, in pages that never cross a block, chained by hashes."""

import pytest

from chalicelib.adapters import keys, pages
from chalicelib.adapters.store import TableStore
from chalicelib.adapters.table import Table
from chalicelib.domain.events import Event, Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Head
from tests.store.kit import NOW, change, create, done, fact, thread

PLENTY = 10_000_000


def _numbered(first: int, count: int) -> tuple[Fact, ...]:
    return tuple(fact(f"event {number}", at=NOW + number) for number in range(first, first + count))


def _append(store: TableStore, ref: ThreadRef, head: Head, count: int) -> Head:
    return done(store.commit(change(ref, head, facts=_numbered(head.seq + 1, count))))


def _seqs(events: list[Event]) -> list[int]:
    return [event.seq for event in events]


def _long_log(store: TableStore) -> tuple[ThreadRef, Head]:
    """600 events by commits of 70: three blocks, and pages on both sides of each border."""
    ref = thread()
    head = create(store, ref, facts=_numbered(1, 20))
    while head.seq < 600:
        head = _append(store, ref, head, min(70, 600 - head.seq))
    return ref, head


def _rows(table: Table, ref: ThreadRef, blocks: int) -> list[pages.Page]:
    found = (item for block in range(blocks) for item in table.query(keys.events(ref, block)))
    return [pages.page_of(item) for item in found]


def test_events_come_back_as_they_were_told(store: TableStore, ref: ThreadRef) -> None:
    facts = (
        fact("thread's own", at=NOW),
        fact("first run", at=NOW + 5, run=1, attempt=1),
        fact("later attempt", at=NOW - 7, run=1, attempt=2),
        Fact(type="custom.thing", data={"deep": [[1, 1.0, True, None, -0.0, 2**70, 1e300, "é\u2028😀"]]}, at=NOW),
    )
    create(store, ref, facts=facts)

    events = store.events(ref, after=0, limit=10, max_bytes=PLENTY)

    expected = [
        Event(seq=seq, type=fact.type, data=fact.data, at=fact.at, run=fact.run, attempt=fact.attempt)
        for seq, fact in enumerate(facts, 1)
    ]
    assert events == expected
    assert repr(events) == repr(expected)


def test_reading_goes_over_block_borders(store: TableStore) -> None:
    ref, _ = _long_log(store)

    assert _seqs(store.events(ref, after=0, limit=1_000, max_bytes=PLENTY)) == list(range(1, 601))
    assert _seqs(store.events(ref, after=250, limit=20, max_bytes=PLENTY)) == list(range(251, 271))


@pytest.mark.parametrize("after", [0, 1, 19, 20, 21, 50, 255, 256, 257, 511, 512, 599])
def test_a_cursor_may_lie_anywhere(store: TableStore, ref: ThreadRef, after: int) -> None:
    head = create(store, ref, facts=_numbered(1, 20))
    while head.seq < 600:
        head = _append(store, ref, head, min(200, 600 - head.seq))

    events = store.events(ref, after=after, limit=7, max_bytes=PLENTY)

    assert _seqs(events) == list(range(after + 1, min(after + 8, 601)))
    assert [event.data["text"] for event in events] == [f"event {event.seq}" for event in events]


def test_after_the_end_there_is_nothing(store: TableStore, ref: ThreadRef) -> None:
    head = create(store, ref, facts=_numbered(1, 256))

    assert store.events(ref, after=256, limit=5, max_bytes=PLENTY) == []
    assert store.events(ref, after=1_000_000, limit=5, max_bytes=PLENTY) == []
    _append(store, ref, head, 1)
    assert _seqs(store.events(ref, after=256, limit=5, max_bytes=PLENTY)) == [257]


def test_pages_never_cross_a_block_and_follow_each_other(store: TableStore, table: Table) -> None:
    ref, _ = _long_log(store)

    found = _rows(table, ref, 3)

    assert [page.first for page in found] == [1, *(page.last + 1 for page in found[:-1])]
    assert {keys.event_block(page.first) == keys.event_block(page.last) for page in found} == {True}


def test_the_hash_chain_ends_in_the_head(store: TableStore, table: Table) -> None:
    ref, head = _long_log(store)

    chain = b""
    for page in _rows(table, ref, 3):
        chain = pages.chained(chain, page.first, page.text)
        assert page.chain == chain
    assert head.chain == chain


def test_a_large_commit_gets_several_pages_of_bounded_size(store: TableStore, table: Table, ref: ThreadRef) -> None:
    texts = [f"{number} " + "x" * 30_000 for number in range(20)]
    create(store, ref, facts=tuple(fact(text) for text in texts))

    found = _rows(table, ref, 1)

    assert len(found) == 5
    assert max(len(page.text) for page in found) < 140_000
    assert [event.data["text"] for event in store.events(ref, after=0, limit=99, max_bytes=PLENTY)] == texts


def test_a_read_is_bounded_in_bytes_but_brings_at_least_one(store: TableStore, ref: ThreadRef) -> None:
    create(store, ref, facts=tuple(fact("x" * 1_000) for _ in range(50)))

    assert _seqs(store.events(ref, after=0, limit=50, max_bytes=10)) == [1]
    assert _seqs(store.events(ref, after=0, limit=50, max_bytes=5_300)) == [1, 2, 3, 4, 5]
    assert _seqs(store.events(ref, after=7, limit=50, max_bytes=3_200)) == [8, 9, 10]
    assert _seqs(store.events(ref, after=48, limit=50, max_bytes=PLENTY)) == [49, 50]


def test_bytes_are_counted_over_pages(store: TableStore, ref: ThreadRef) -> None:
    head = create(store, ref, facts=tuple(fact("x" * 1_000) for _ in range(3)))
    for _ in range(5):
        head = done(store.commit(change(ref, head, facts=tuple(fact("x" * 1_000) for _ in range(3)))))

    assert len(store.events(ref, after=0, limit=50, max_bytes=8_500)) == 8


def test_events_behind_a_missing_page_are_not_shown(store: TableStore, table: Table, ref: ThreadRef) -> None:
    head = create(store, ref, facts=_numbered(1, 3))
    head = _append(store, ref, head, 3)
    _append(store, ref, head, 3)
    key = keys.event_page(ref, 6)
    table.client.delete_item(TableName=table.name, Key={"pk": {"S": key.pk}, "sk": {"S": key.sk}})

    assert _seqs(store.events(ref, after=0, limit=9, max_bytes=PLENTY)) == [1, 2, 3]
    assert store.events(ref, after=3, limit=9, max_bytes=PLENTY) == []


def test_a_page_is_never_overwritten(store: TableStore, table: Table, ref: ThreadRef) -> None:
    head = create(store, ref)
    key = keys.event_page(ref, 2)
    table.client.put_item(
        TableName=table.name, Item={"pk": {"S": key.pk}, "sk": {"S": key.sk}, "write": {"S": "somebody"}}
    )

    assert store.commit(change(ref, head, facts=(fact(),))).head == head
    assert table.get([key])[key]["write"] == {"S": "somebody"}


def test_a_page_of_a_newer_release_is_refused_and_not_misread(store: TableStore, table: Table, ref: ThreadRef) -> None:
    create(store, ref)
    key = keys.event_page(ref, 1)
    table.client.update_item(
        TableName=table.name,
        Key={"pk": {"S": key.pk}, "sk": {"S": key.sk}},
        UpdateExpression="SET body = :body",
        ExpressionAttributeValues={":body": {"B": b"\xff???"}},
    )

    with pytest.raises(ValueError, match="unknown version 255"):
        store.events(ref, after=0, limit=1, max_bytes=PLENTY)
