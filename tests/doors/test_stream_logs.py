"""Rows of a thread's log on their way to subscribers: who gets them, in which frames, and what they cost."""

from collections import Counter, deque
from typing import Any

from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import FRAME_BYTES
from tests.doors.socket_gateway import Reader
from tests.doors.socket_house import SocketHouse, said


def watched(house: SocketHouse, *wants: bool) -> tuple[ThreadRef, list[Reader]]:
    """A thread and its live subscribers, each with or without logs."""
    key = house.key()
    ref = house.thread(key)
    readers = []
    for logs in wants:
        reader = house.connect(key)
        house.follow(reader, ref, logs=logs)
        readers.append(reader)
    return ref, readers


def shown(house: SocketHouse, reader: Reader) -> list[dict[str, Any]]:
    """Rows of the log that a client was sent."""
    house.receive(reader)
    return [frame["row"] for frame in reader.frames if frame["type"] == "log"]


def test_rows_go_to_those_who_asked_for_logs_and_to_nobody_else(house: SocketHouse) -> None:
    ref, [curious, other] = watched(house, True, False)
    house.push(house.log(ref, {"name": "a", "cost": 0.5}), house.log(ref, {"name": "b"}))
    assert [(row["model"], row["app_cost"]) for row in shown(house, curious)] == [("a", 0.5), ("b", None)]
    assert shown(house, curious)[0]["thread_id"] == ref.id
    assert shown(house, other) == []


def test_rows_do_not_touch_the_cursor_and_stand_beside_events(house: SocketHouse) -> None:
    ref, [reader] = watched(house, True)
    before = house.cursors(ref)
    house.push(house.log(ref, {"name": "a"}))
    assert house.cursors(ref) == before
    house.push(house.log(ref, {"name": "b"}), house.append(ref, said("x")))
    assert [row["model"] for row in shown(house, reader)] == ["a", "b"]
    assert list(reader.rows.values()) == house.rows(ref)


def test_a_large_row_is_one_frame_below_the_limit_that_says_what_it_cut(house: SocketHouse) -> None:
    ref, [reader] = watched(house, True)
    house.push(
        house.log(ref, {"name": "large", "request": "\U0001f680" * 16_000, "data": ['"'] * 5_000, "message": "m"})
    )
    (row,) = shown(house, reader)
    assert row["truncated"] == ["app_data", "app_request"]
    assert (row["app_message"], "\ufffd" in row["app_request"]) == ("m", False)
    assert all(len(data) < FRAME_BYTES for data in house.gateway.received[reader.connection])


def test_a_subscriber_that_catches_up_gets_no_row_before_its_status(house: SocketHouse) -> None:
    ref, [reader] = watched(house, True)
    (row,) = house.directory.subscribers(ref)
    house.directory.subscribe(
        type(row)(**{**vars(row), "catching_until": house.clock.now() + 30_000_000})  # as in the middle of a replay
    )
    house.push(house.log(ref, {"name": "early"}))
    assert shown(house, reader) == []


def test_a_gone_subscriber_is_forgotten_and_the_others_get_their_rows(house: SocketHouse) -> None:
    ref, [gone, there] = watched(house, True, True)
    house.gateway.answers[gone.connection] = deque([410])
    house.push(house.log(ref, {"name": "a"}))
    assert [row["model"] for row in shown(house, there)] == ["a"]
    assert set(house.cursors(ref)) == {there.connection}


def test_rows_of_another_thread_or_org_go_nowhere_else(house: SocketHouse) -> None:
    _, [reader] = watched(house, True)
    other, [stranger] = watched(house, True)
    house.push(house.log(other, {"name": "theirs"}))
    assert shown(house, reader) == []
    assert [row["model"] for row in shown(house, stranger)] == ["theirs"]


def test_a_row_costs_one_query_and_is_read_only_if_somebody_wants_it(house: SocketHouse) -> None:
    ref, _ = watched(house, False)
    key = house.log(ref, {"name": "a"})
    house.requests.clear()
    house.push(key, key)
    assert house.requests == ["Query"]
    ref, _ = watched(house, True, True)
    keys = [house.log(ref, {"name": f"{n}"}) for n in range(5)]
    house.requests.clear()
    house.push(*keys)
    assert Counter(house.requests) == {"Query": 1, "BatchGetItem": 1}
