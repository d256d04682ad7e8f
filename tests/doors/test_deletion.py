"""Deleting a thread at the doors: the HTTP route, and what those who follow the thread on a socket are told."""

import json

from chalicelib.adapters import keys
from chalicelib.domain.commands import Answer
from chalicelib.domain.errors import NotFound
from chalicelib.domain.ids import ThreadRef
from chalicelib.doors import stream
from tests.doors.http_house import TOKENS, CardboardHouse, open_door
from tests.doors.socket_gateway import Reader
from tests.doors.socket_house import Meanwhile, SocketHouse, said

ROUTE = "DELETE /threads/{thread_id}"


def _push(house: SocketHouse, ref: ThreadRef) -> None:
    """The stream's record of the tombstone."""
    pk, sk = keys.head(ref)
    change = {"Keys": {"pk": {"S": pk}, "sk": {"S": sk}}, "NewImage": {"de": {"N": "1"}}}
    stream.run({"Records": [{"eventName": "MODIFY", "dynamodb": change}]}, None, house=lambda: house)


def _subscribe(house: SocketHouse, reader: Reader, ref: ThreadRef) -> None:
    house.say(reader, {"action": "subscribe", "thread_id": ref.id, "after": 0})


def _problems(house: SocketHouse, reader: Reader) -> list[str]:
    """Types of the problems in the frames so far."""
    received = [json.loads(frame) for frame in house.gateway.received[reader.connection]]
    return [frame["problem"]["type"] for frame in received if frame["type"] == "error"]


def test_a_deletion_is_202_with_its_instant() -> None:
    door = open_door(CardboardHouse(answer=Answer(status=202, body={"deleted_at": 5})))
    reply = door.send(ROUTE)
    assert (reply.status, reply.body) == (202, {"deleted_at": 5})
    assert door.house.calls == [("delete_thread", TOKENS["member-of-a"], "thread_id-1")]


def test_a_viewer_may_not_delete_and_an_unknown_thread_is_404() -> None:
    assert open_door().send(ROUTE, token="viewer-of-a").is_problem(403, "forbidden")
    assert open_door(CardboardHouse(fails=NotFound())).send(ROUTE).is_problem(404, "not-found")


def test_who_follows_a_thread_is_told_of_its_deletion_once_and_then_nothing(house: SocketHouse) -> None:
    key = house.key()
    ref, other = house.thread(key), house.thread(key)
    reader, elsewhere = house.connect(key), house.connect(key)
    house.follow(reader, ref)
    house.follow(elsewhere, other)
    late = house.append(ref, said("late"))
    house.delete(ref)
    for _ in range(2):
        _push(house, ref)
    house.push(late)
    assert _problems(house, reader) == ["/problems/not-found"]
    assert json.loads(house.gateway.received[reader.connection][-1])["type"] == "error"
    assert house.cursors(ref) == {}
    assert list(house.cursors(other)) == [elsewhere.connection]


def test_a_deletion_at_any_call_of_a_subscribe_leaves_no_subscription(house: SocketHouse, meanwhile: Meanwhile) -> None:
    key = house.key()
    ref, reader = house.thread(key), house.connect(key)
    meanwhile.at(0, lambda: None)
    _subscribe(house, reader, ref)
    calls = meanwhile.calls
    assert calls > 0
    for call in range(1, calls + 1):
        ref, reader = house.thread(key), house.connect(key)
        deleted: list[ThreadRef] = []

        def delete(ref: ThreadRef = ref, deleted: list[ThreadRef] = deleted) -> None:
            deleted.append(ref)
            house.delete(ref)
            _push(house, ref)

        meanwhile.at(call, delete)
        _subscribe(house, reader, ref)
        assert deleted == [ref], call
        assert house.cursors(ref) == {}, call
        assert set(_problems(house, reader)) == {"/problems/not-found"}, call
