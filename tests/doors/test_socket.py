"""What a client sees on its socket when it subscribes, asks oddly, drops and comes back."""

import json
import random
from collections import deque
from typing import Any

import pytest

from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import RESPONSE_BYTES
from chalicelib.doors import socket
from chalicelib.ports import Subscriber
from tests.doors.socket_gateway import Reader
from tests.doors.socket_house import SECOND, Died, Meanwhile, SocketHouse, raw, said, seen, talk, turned


def kinds(reader: Reader) -> list[str]:
    return [frame["type"] for frame in reader.frames]


# -- subscribing


def test_the_status_comes_first_then_the_rows_then_caught_up(house: SocketHouse) -> None:
    key = house.key()
    ref = house.thread(key, *talk(1, 3), turned("running"))
    reader = house.connect(key)
    house.follow(reader, ref)
    assert kinds(reader) == ["thread_status", "events", "caught_up"]
    assert reader.states == ["running"]
    assert seen(reader) == house.rows(ref)
    assert reader.frames[-1] == {"type": "caught_up", "thread_id": ref.id, "cursor": 4}


@pytest.mark.parametrize("after", [0, 1, 2, 4])
def test_a_replay_begins_after_the_cursor(house: SocketHouse, after: int) -> None:
    key = house.key()
    ref = house.thread(key, *talk(1, 5))
    reader = house.connect(key)
    house.follow(reader, ref, after)
    assert seen(reader) == house.rows(ref)[after:]


@pytest.mark.parametrize("after", [5, 6, 999_999, 10**300])
def test_a_cursor_at_or_past_the_end_is_the_end(house: SocketHouse, after: int) -> None:
    key = house.key()
    ref = house.thread(key, *talk(1, 5))
    reader = house.connect(key)
    house.follow(reader, ref, after)
    assert (kinds(reader), reader.frames[-1]["cursor"]) == (["thread_status", "caught_up"], 5)
    reader.cursor = 5
    house.tell(ref, said("later"))
    house.receive(reader)
    assert seen(reader) == house.rows(ref)[5:]


def test_a_quiet_subscriber_gets_each_later_row_once(house: SocketHouse) -> None:
    key = house.key()
    ref = house.thread(key, *talk(1, 3))
    reader = house.connect(key)
    house.follow(reader, ref)
    for n in range(4):
        house.tell(ref, said(f"later {n}"))
    house.receive(reader)
    assert (seen(reader), reader.repeats) == (house.rows(ref), 0)


def test_a_second_subscribe_replaces_the_first(house: SocketHouse) -> None:
    key = house.key()
    ref = house.thread(key, *talk(1, 3))
    reader = house.connect(key)
    house.follow(reader, ref)
    house.follow(reader, ref, 3)
    house.tell(ref, said("later"))
    house.receive(reader)
    assert (seen(reader), reader.repeats) == (house.rows(ref), 0)
    assert house.cursors(ref) == {reader.connection: 4}


def test_two_threads_share_a_socket_and_unsubscribe_ends_one(house: SocketHouse) -> None:
    key = house.key()
    left, kept = house.thread(key), house.thread(key)
    reader = house.connect(key)
    for ref in (left, kept):
        house.follow(reader, ref, 1)
    house.say(reader, {"action": "unsubscribe", "thread_id": left.id})
    house.push(house.append(left, said("unheard")), house.append(kept, said("heard")))
    house.receive(reader)
    assert [row["thread_id"] for row in seen(reader)] == [kept.id]
    assert house.cursors(left) == {}


def test_unsubscribing_twice_says_nothing(house: SocketHouse) -> None:
    key = house.key()
    ref, reader = house.thread(key), house.connect(key)
    for _ in range(2):
        house.say(reader, {"action": "unsubscribe", "thread_id": ref.id})
    assert reader.frames == []


def test_a_replay_stops_after_a_megabyte_and_goes_on_when_asked_again(house: SocketHouse) -> None:
    key = house.key()
    ref = house.thread(key)
    dice = random.Random(7)
    for _ in range(11):
        house.append(ref, *[said(dice.randbytes(12_500).hex()) for _ in range(8)])  # 2.2 MB of text
    reader = house.connect(key)
    house.follow(reader, ref)
    sizes, replays = [sum(len(json.dumps(frame)) for frame in reader.frames)], 1
    while reader.frames[-1].get("more"):
        assert reader.frames[-1]["cursor"] == reader.cursor
        assert house.cursors(ref) == {}
        before = len(reader.frames)
        house.follow(reader, ref, reader.cursor)
        sizes.append(sum(len(json.dumps(frame)) for frame in reader.frames[before:]))
        replays += 1
    assert seen(reader) == house.rows(ref)
    assert replays == 3
    assert max(sizes) < RESPONSE_BYTES * 1.01
    assert house.cursors(ref) == {reader.connection: 89}


# -- rows that are stored while somebody subscribes


def calls_of(house: SocketHouse, meanwhile: Meanwhile, reader: Reader, ref: ThreadRef) -> int:
    """How many adapter calls a subscribe takes."""
    meanwhile.at(0, lambda: None)
    house.follow(reader, ref)
    return meanwhile.calls


def test_a_row_stored_at_any_point_of_a_subscribe_is_not_missed(house: SocketHouse, meanwhile: Meanwhile) -> None:
    key = house.key()
    quiet = house.thread(key, *talk(1, 3))
    repeats = 0
    for point in range(1, calls_of(house, meanwhile, house.connect(key), quiet) + 1):
        ref = house.thread(key, *talk(1, 3))
        reader = house.connect(key)
        meanwhile.at(point, lambda ref=ref: house.tell(ref, turned("running")))  # type: ignore[misc]
        house.follow(reader, ref)
        assert seen(reader) == house.rows(ref), point
        house.tell(ref, said("later"))
        house.receive(reader)
        assert seen(reader) == house.rows(ref), point
        assert house.cursors(ref) == {reader.connection: 5}, point
        assert reader.states[-1] == "running", point
        assert kinds(reader)[0] == "thread_status"
        assert len(reader.of("caught_up")) == 1
        repeats += reader.repeats
    assert repeats <= 1  # between the flip and the read after it fan-out and the subscribe both send


def test_a_fan_out_that_is_overtaken_by_a_subscribe_leaves_no_hole(house: SocketHouse, meanwhile: Meanwhile) -> None:
    key = house.key()
    for point in range(1, 5):
        ref = house.thread(key, *talk(1, 3))
        first, second = house.connect(key), house.connect(key)
        house.follow(first, ref)
        page = house.append(ref, said("four"))
        meanwhile.at(point, lambda ref=ref, second=second: house.follow(second, ref))  # type: ignore[misc]
        house.push(page)
        house.tell(ref, said("five"))
        for reader in (first, second):
            house.receive(reader)
            assert seen(reader) == house.rows(ref), point


def test_a_subscribe_that_dies_on_the_way_is_served_by_later_pushes(house: SocketHouse, meanwhile: Meanwhile) -> None:
    key = house.key()
    quiet = house.thread(key, *talk(1, 3))
    for point in range(1, calls_of(house, meanwhile, house.connect(key), quiet) + 1):
        ref = house.thread(key, *talk(1, 3))
        reader = house.connect(key)
        meanwhile.at(point, die)
        with pytest.raises(Died):
            house.follow(reader, ref)
        house.receive(reader)
        had_row = reader.connection in house.cursors(ref)
        house.clock.sleep(31)
        house.tell(ref, said("later"))
        house.receive(reader)
        assert seen(reader) == (house.rows(ref) if had_row else []), point


def die() -> None:
    raise Died


def test_nobody_pushes_to_a_subscriber_that_is_catching_up(house: SocketHouse) -> None:
    key = house.key()
    ref = house.thread(key)
    reader = house.connect(key)
    house.directory.subscribe(
        Subscriber(
            connection=reader.connection,
            token=ref.token,
            org=ref.org,
            cursor=0,
            catching_until=house.clock.now() + 30 * SECOND,
            key_sha256=key.sha256,
        )
    )
    house.tell(ref, said("while it catches up"))
    assert house.gateway.posts[reader.connection] == 0
    house.clock.sleep(30)
    house.tell(ref, said("its replay has died"))
    house.receive(reader)
    assert seen(reader) == house.rows(ref)


# -- odd frames and P18


@pytest.mark.parametrize("after", ["abc", -1, 1.5, None, [1], True])
def test_a_bad_cursor_is_an_error_and_leaves_the_subscription_alone(house: SocketHouse, after: Any) -> None:
    key = house.key()
    ref = house.thread(key)
    reader = house.connect(key)
    house.follow(reader, ref)
    house.say(reader, {"action": "subscribe", "thread_id": ref.id, "after": after})
    assert reader.problem["type"] == "/problems/invalid-request"
    assert [fault["path"] for fault in reader.problem["errors"]] == ["after"]
    house.tell(ref, said("still heard"))
    house.receive(reader)
    assert seen(reader) == house.rows(ref)


ODD = ("not json", "[]", '"x"', "{}", '{"action": "fly"}', '{"action": "subscribe"}', "", "\x00", "[" * 9_000, "NaN")


@pytest.mark.parametrize(
    "frame", [*ODD, '{"action": "subscribe", "thread_id": 5}', '{"action": "ping", "a": "\\ud800"}']
)
def test_an_odd_frame_is_an_error_and_the_socket_stays_open(house: SocketHouse, frame: str) -> None:
    reader = house.connect(house.key())
    house.say(reader, frame)
    assert (reader.problem["type"], reader.problem["status"]) == ("/problems/invalid-request", 400)
    house.say(reader, {"action": "ping"})
    assert kinds(reader) == ["error", "pong"]


@pytest.mark.parametrize(("size", "kind"), [(32_768, "pong"), (32_769, "error"), (131_073, "error")])
def test_a_client_frame_above_32_kb_is_a_clear_error(house: SocketHouse, size: int, kind: str) -> None:
    reader = house.connect(house.key())
    frame = '{"action": "ping"}'
    house.say(reader, frame + " " * (size - len(frame)))
    assert kinds(reader) == [kind]
    if kind == "error":
        assert reader.problem["type"] == "/problems/too-large"


def test_the_raw_events_of_the_gateway_are_understood(house: SocketHouse) -> None:
    reader = house.connect(house.key())
    for name in ("message-ping", "message-binary", "message-not-json"):
        event = raw(f"websocket.{name}")
        event["requestContext"]["connectionId"] = reader.connection
        assert socket.message(event, None, house=lambda: house) == {"statusCode": 200}
    house.receive(reader)
    assert kinds(reader) == ["pong", "pong", "error"]


def test_unknown_foreign_and_deleted_threads_look_alike_and_store_nothing(house: SocketHouse) -> None:
    key = house.key()
    foreign, deleted = house.thread(house.key()), house.thread(key)
    house.delete(deleted)
    reader = house.connect(key)
    for thread_id in (
        "thr_unknown0000",
        "",
        "thr_" + "a" * 20,
        foreign.id,
        deleted.id,
        "msg_" + "a" * 20,
        "x" * 20_000,
    ):
        house.say(reader, {"action": "subscribe", "thread_id": thread_id, "after": 0})
    problems = [frame["problem"] for frame in reader.of("error")]
    assert len(problems) == 7
    assert all(problem == problems[0] for problem in problems)
    assert problems[0]["type"] == "/problems/not-found"
    assert [house.cursors(ref) for ref in (foreign, deleted)] == [{}, {}]


def test_a_connection_that_is_not_known_gets_an_error(house: SocketHouse) -> None:
    ref = house.thread(house.key())
    reader = Reader(connection="never-connected=")
    house.say(reader, {"action": "subscribe", "thread_id": ref.id, "after": 0})
    assert reader.problem["type"] == "/problems/unauthorized"
    assert house.cursors(ref) == {}


def test_a_revoked_key_can_subscribe_to_nothing_more(house: SocketHouse) -> None:
    key = house.key()
    ref, reader = house.thread(key), house.connect(key)
    house.revoke(key)
    house.clock.sleep(60)
    house.say(reader, {"action": "subscribe", "thread_id": ref.id, "after": 0})
    assert reader.problem["type"] == "/problems/unauthorized"
    assert house.directory.connection(reader.connection) is None


@pytest.mark.parametrize("status", [429, 403])
def test_a_replay_that_cannot_be_sent_leaves_no_subscription(house: SocketHouse, status: int) -> None:
    key = house.key()
    ref, reader = house.thread(key, *talk(1, 3)), house.connect(key)
    house.gateway.answers[reader.connection] = deque([200, status])
    house.follow(reader, ref)
    assert kinds(reader) == ["thread_status", "error"]
    assert reader.problem["type"] == "/problems/retry-later"
    assert house.cursors(ref) == {}
    house.follow(reader, ref)
    assert seen(reader) == house.rows(ref)


def test_a_socket_that_is_gone_in_its_replay_is_forgotten(house: SocketHouse) -> None:
    key = house.key()
    ref, reader = house.thread(key, *talk(1, 3)), house.connect(key)
    house.gateway.answers[reader.connection] = deque([200, 410])
    house.follow(reader, ref)
    assert house.cursors(ref) == {}
    assert house.directory.connection(reader.connection) is None


def test_closing_twice_forgets_the_connection_and_its_subscriptions(house: SocketHouse) -> None:
    key = house.key()
    refs, reader = [house.thread(key), house.thread(key)], house.connect(key)
    for ref in refs:
        house.follow(reader, ref)
    house.hang_up(reader)
    house.hang_up(reader)
    assert house.directory.connection(reader.connection) is None
    assert [house.cursors(ref) for ref in refs] == [{}, {}]
