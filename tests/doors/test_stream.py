"""The stream's batches become frames of subscribers: what is pushed, to whom, and what it costs."""

import random
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chalicelib.domain.events import Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.doors import stream
from tests.doors.socket_gateway import STALL, Reader
from tests.doors.socket_house import Died, Meanwhile, SocketHouse, raw, said, seen, turned

WHOLE = 1_000  # answers in a row: more than any test posts


def watched(house: SocketHouse, readers: int = 1) -> tuple[ThreadRef, list[Reader]]:
    """A thread and live subscribers that have seen all of it."""
    key = house.key()
    ref = house.thread(key)
    found = [house.connect(key) for _ in range(readers)]
    for reader in found:
        house.follow(reader, ref)
        reader.frames_before = len(reader.frames)
    return ref, found


def new_frames(house: SocketHouse, reader: Reader) -> list[dict[str, Any]]:
    """Frames that came after the subscribe."""
    house.receive(reader)
    return reader.frames[reader.frames_before :]


def fact(kind: str, **data: Any) -> Fact:
    return Fact(type=kind, data=data, at=1)


# -- what is pushed


def test_a_short_text_turn_takes_four_frames(house: SocketHouse) -> None:
    ref, [reader] = watched(house)
    accepted = [fact("message.completed", message={}), fact("run.queued"), turned("running")]
    house.tell(ref, *accepted)
    answered = [fact("run.started"), fact("message.started"), fact("message.completed", message={})]
    house.tell(ref, *answered, fact("usage.updated"), fact("run.completed"), turned("idle"))
    frames = new_frames(house, reader)
    assert [frame["type"] for frame in frames] == ["events", "thread_status"] * 2
    assert [frame["status"]["state"] for frame in frames[1::2]] == ["running", "idle"]
    assert seen(reader) == house.rows(ref)


def test_the_status_that_is_pushed_is_the_one_that_is_stored(house: SocketHouse) -> None:
    ref, [reader] = watched(house)
    house.tell(ref, turned("idle"))
    head = house.store.open(ref).head
    assert head is not None
    assert new_frames(house, reader)[-1] == {
        "type": "thread_status",
        "thread_id": ref.id,
        "status": {"state": "idle", "since": head.since, "reason": "stop_on_response"},
    }


def test_several_changes_in_one_batch_are_told_in_order(house: SocketHouse) -> None:
    ref, [reader] = watched(house)
    house.push(house.append(ref, turned("running")), house.append(ref, turned("idle"), turned("running")))
    frames = new_frames(house, reader)
    assert [f["status"]["state"] for f in frames if f["type"] == "thread_status"] == ["running", "idle", "running"]


def test_a_batch_that_comes_again_pushes_nothing(house: SocketHouse) -> None:
    ref, [reader] = watched(house)
    page = house.append(ref, said("once"), turned("running"))
    for _ in range(3):
        house.push(page)
    assert len(new_frames(house, reader)) == 2


def test_a_batch_that_comes_late_or_out_of_order_pushes_all_rows_in_order(house: SocketHouse) -> None:
    ref, [reader] = watched(house)
    pages = [house.append(ref, said(f"row {n}")) for n in range(5)]
    for page in (pages[3], pages[0], pages[4], pages[1]):
        house.push(page)
    house.receive(reader)
    assert (seen(reader), reader.repeats) == (house.rows(ref), 0)


def test_an_old_record_beside_a_new_one_does_not_hide_it(house: SocketHouse) -> None:
    ref, [reader] = watched(house)
    old = house.append(ref, said("old"))
    house.push(old)
    house.push(house.append(ref, said("new")), old)
    house.receive(reader)
    assert (seen(reader), reader.repeats) == (house.rows(ref), 0)


def test_readers_at_different_places_each_get_what_they_miss(house: SocketHouse) -> None:
    ref, readers = watched(house, 3)
    for lag, reader in enumerate(readers):
        house.gateway.answers[reader.connection] = deque([403] * 3 * lag)
    for n in range(4):
        house.tell(ref, said(f"row {n}"))
    for reader in readers:
        house.receive(reader)
        assert (seen(reader), reader.repeats) == (house.rows(ref), 0)


def test_a_reader_far_behind_is_brought_to_the_end(house: SocketHouse) -> None:
    ref, [reader] = watched(house)
    dice = random.Random(3)
    for _ in range(11):
        page = house.append(ref, *[said(dice.randbytes(12_500).hex()) for _ in range(8)])  # 2.2 MB, three reads
    house.push(page)
    house.receive(reader)
    assert (seen(reader), reader.repeats) == (house.rows(ref), 0)


@pytest.mark.parametrize("unit", ["x", "\U0001f680", '"'])
def test_a_row_of_any_size_arrives_whole(house: SocketHouse, unit: str) -> None:
    ref, [reader] = watched(house)
    for size in (32_767, 32_768, 131_071, 131_072, 131_073, 262_144):
        house.tell(ref, said(unit * (size // len(unit.encode()))))
    house.receive(reader)
    assert seen(reader) == house.rows(ref)
    again = house.connect(house.key(ref.org))
    house.follow(again, ref)
    while again.frames[-1].get("more"):
        house.follow(again, ref, again.cursor)
    assert seen(again) == house.rows(ref)


def test_removed_rows_and_rows_that_are_no_pages_start_nothing(house: SocketHouse) -> None:
    house.requests.clear()
    for name in ("removed-page", "other-rows"):
        stream.run(raw(f"stream.{name}"), None, house=lambda: house)
    assert house.requests == []


def test_a_page_that_is_not_there_pushes_nothing(house: SocketHouse) -> None:
    ref, [reader] = watched(house)
    (pk, sk) = house.append(ref, said("there"))
    house.push((pk, sk))
    house.push((pk, f"{int(sk) + 5:015d}"))
    house.receive(reader)
    assert seen(reader) == house.rows(ref)


# -- P17: subscribers that cannot be reached

TROUBLES = [
    pytest.param([410], id="gone"),
    pytest.param([429, 429], id="throttled twice"),
    pytest.param([403] * WHOLE, id="forbidden"),
    pytest.param([500] * WHOLE, id="broken"),
    pytest.param([STALL], id="stalled"),
    pytest.param([200, 410], id="gone after a frame"),
    pytest.param([200, STALL], id="stalled after a frame"),
]


@pytest.mark.parametrize("answers", TROUBLES)
def test_one_bad_subscriber_never_stops_the_others(house: SocketHouse, answers: list[int]) -> None:
    ref, [first, bad, last] = watched(house, 3)
    house.gateway.answers[bad.connection] = deque(answers)
    house.tell(ref, said("one"), turned("running"))
    house.tell(ref, said("two"))
    for reader in (first, last):
        house.receive(reader)
        assert (seen(reader), reader.repeats) == (house.rows(ref), 0)


@pytest.mark.parametrize("answers", [[429, 429], [STALL], [200, STALL], [500] * 3, [200] + [403] * 3])
def test_a_subscriber_that_was_not_reached_gets_all_rows_with_the_next_batch(
    house: SocketHouse, answers: list[int]
) -> None:
    ref, [reader] = watched(house)
    house.gateway.answers[reader.connection] = deque(answers)
    house.tell(ref, said("one"), turned("running"))
    house.tell(ref, said("two"))
    house.receive(reader)
    assert seen(reader) == house.rows(ref)
    assert reader.states[-1] == "running"


def test_a_gateway_that_is_busy_for_a_moment_delays_nothing_to_the_next_batch(house: SocketHouse) -> None:
    ref, [reader] = watched(house)
    house.gateway.answers[reader.connection] = deque([429, 429])
    house.tell(ref, said("the last row for long"))
    house.receive(reader)
    assert seen(reader) == house.rows(ref)


def test_a_gone_subscriber_is_forgotten_and_never_tried_again(house: SocketHouse) -> None:
    ref, [reader] = watched(house)
    house.gateway.answers[reader.connection] = deque([410])
    house.tell(ref, said("one"))
    posts = house.gateway.posts[reader.connection]
    house.tell(ref, said("two"))
    assert house.gateway.posts[reader.connection] == posts
    assert house.cursors(ref) == {}
    assert house.directory.connection(reader.connection) is None


def test_a_stalled_subscriber_keeps_its_cursor_and_is_not_tried_twice_in_a_batch(house: SocketHouse) -> None:
    ref, [reader] = watched(house)
    house.gateway.answers[reader.connection] = deque([STALL] * WHOLE)
    posts = house.gateway.posts[reader.connection]
    house.tell(ref, said("one"))
    assert house.gateway.posts[reader.connection] == posts + 1
    assert house.cursors(ref) == {reader.connection: 1}


def test_many_stalled_subscribers_stall_side_by_side(house: SocketHouse) -> None:
    ref, [good, *stalled] = watched(house, 9)
    for reader in stalled:
        house.gateway.answers[reader.connection] = deque([STALL] * WHOLE)
    began = house.clock.monotonic()
    house.tell(ref, said("one"))
    assert house.clock.monotonic() - began < len(stalled)
    house.receive(good)
    assert seen(good) == house.rows(ref)


def test_a_stalled_subscriber_of_one_thread_does_not_stop_another_thread(house: SocketHouse) -> None:
    first, [stalled] = watched(house)
    second, [reader] = watched(house)
    house.gateway.answers[stalled.connection] = deque([STALL] * WHOLE)
    house.push(house.append(first, said("one")), house.append(second, said("two")))
    house.receive(reader)
    assert seen(reader) == house.rows(second)


# -- rights


def test_a_subscriber_whose_key_is_revoked_stops_receiving_within_a_minute(house: SocketHouse) -> None:
    revoked, other = house.key(), None
    ref = house.thread(revoked)
    other = house.key(revoked.org)
    leaving, staying = house.connect(revoked), house.connect(other)
    for reader in (leaving, staying):
        house.follow(reader, ref)
    house.tell(ref, said("to both"))
    house.revoke(revoked)
    house.clock.sleep(60)
    house.tell(ref, said("to one"))
    for reader in (leaving, staying):
        house.receive(reader)
    assert (leaving.cursor, staying.cursor) == (2, 3)
    assert house.cursors(ref) == {staying.connection: 3}
    assert house.directory.connection(leaving.connection) is None


# -- twice, side by side, and dying on the way


def test_two_batches_at_once_may_repeat_rows_but_never_skip_or_swap_them(
    house: SocketHouse, meanwhile: Meanwhile
) -> None:
    key = house.key()
    for point in range(1, 7):
        ref = house.thread(key)
        reader = house.connect(key)
        house.follow(reader, ref)
        pages = [house.append(ref, said("x" * 20_000), said("y" * 20_000)) for _ in range(2)]
        meanwhile.at(point, lambda pages=pages: house.push(*pages))  # type: ignore[misc]
        house.push(pages[0])
        house.receive(reader)
        assert seen(reader) == house.rows(ref), point


def test_a_batch_that_dies_anywhere_is_made_good_when_it_comes_again(house: SocketHouse, meanwhile: Meanwhile) -> None:
    key = house.key()
    for point in range(1, 9):
        ref = house.thread(key)
        readers = [house.connect(key) for _ in range(2)]
        for reader in readers:
            house.follow(reader, ref)
        page = house.append(ref, said("x" * 20_000), turned("running"), said("y" * 20_000))
        meanwhile.at(point, die)
        with pytest.raises(Died):
            house.push(page)
        house.push(page)
        for reader in readers:
            house.receive(reader)
            assert seen(reader) == house.rows(ref), point
            assert reader.states[-1] == "running", point


def die() -> None:
    raise Died


def test_the_same_batch_in_many_threads_at_once_leaves_every_reader_complete(house: SocketHouse) -> None:
    ref, readers = watched(house, 4)
    pages = [house.append(ref, said(f"row {n}"), said("z" * 30_000)) for n in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda n: house.push(*pages[: n + 1]), range(12)))
    for reader in readers:
        house.receive(reader)
        assert seen(reader) == house.rows(ref)
    assert set(house.cursors(ref).values()) == {25}


# -- what it costs


def test_a_batch_reads_twice_a_thread_and_writes_once_a_subscriber(house: SocketHouse) -> None:
    ref, readers = watched(house, 3)
    pages = [house.append(ref, said(f"row {n}")) for n in range(10)]
    house.requests.clear()
    house.push(*pages)
    assert Counter(house.requests) == {"Query": 2, "UpdateItem": len(readers)}
    assert [len(new_frames(house, reader)) for reader in readers] == [1, 1, 1]


def test_a_thread_without_subscribers_costs_one_read(house: SocketHouse) -> None:
    ref = house.thread(house.key())
    page = house.append(ref, said("unheard"))
    house.requests.clear()
    house.push(page)
    assert house.requests == ["Query"]


def test_a_batch_that_was_overtaken_costs_one_read(house: SocketHouse) -> None:
    ref, _ = watched(house)
    pages = [house.append(ref, said("one")), house.append(ref, said("two"))]
    house.push(pages[1])
    house.requests.clear()
    house.push(pages[0])
    assert house.requests == ["Query"]
