"""Idempotency-Key: what is one request said twice, and what is another one."""

import json
from typing import Any

import pytest

from chalicelib.domain.commands import Answer, Idempotency
from tests.doors.http_house import CardboardHouse, event, open_door

MESSAGES, RUNS, THREADS = "POST /threads/{thread_id}/messages", "POST /threads/{thread_id}/runs", "POST /threads"
STOP, CONTINUE = "POST /threads/{thread_id}/stop", "POST /threads/{thread_id}/continue"
UPLOADS = "POST /threads/{thread_id}/uploads"
LOGS = "POST /threads/{thread_id}/logs"
CANCEL = "POST /runs/{run_id}/cancel"
KEYED: list[tuple[str, Any]] = [
    (THREADS, {"agent": "a"}),
    (MESSAGES, {"content": "x"}),
    (RUNS, {"input": "x"}),
    (STOP, None),
    (CANCEL, None),
    (CONTINUE, None),
    (UPLOADS, {"path": "/a.txt", "bytes": 1}),
    (LOGS, {"name": "x"}),
]


def idempotency(route: str, **how: Any) -> Idempotency | None:
    """What the service is told about the key of a request."""
    door = open_door()
    reply = door.send(route, headers={"Idempotency-Key": "a-key"}, **how)
    assert reply.status == 201
    told: Idempotency | None = door.house.calls[0][-1]
    return told


def fingerprint(route: str, **how: Any) -> str:
    told = idempotency(route, **how)
    assert told is not None
    return told.fingerprint


@pytest.mark.parametrize(("route", "body"), KEYED)
def test_every_mutating_post_but_tickets_takes_a_key(route: str, body: Any) -> None:
    told = idempotency(route, body=body)
    assert told is not None
    assert (told.key, len(told.fingerprint)) == ("a-key", 64)


@pytest.mark.parametrize(("route", "body"), KEYED)
def test_without_the_header_there_is_no_key(route: str, body: Any) -> None:
    door = open_door()
    door.send(route, body=body)
    assert door.house.calls[0][-1] is None


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"])
@pytest.mark.parametrize("key", ["!", "~" * 255, "schedule:sch_1:2026-01-01T00:00:00Z"])
def test_a_key_within_bounds_is_taken_in_a_header_of_any_case(name: str, key: str) -> None:
    door = open_door()
    assert door.send(CONTINUE, headers={name: key}).status == 201
    assert door.house.calls[0][-1].key == key


def test_two_keys_in_one_request_are_400() -> None:
    door = open_door()
    sent = event(CONTINUE, headers={"Idempotency-Key": "b"})
    reply = door.handle({**sent, "multiValueHeaders": {"idempotency-key": ["a", "b"]}})
    assert reply.is_problem(400, "invalid-request")
    assert door.house.calls == []


SAME: list[tuple[str, bytes, bytes]] = [
    (MESSAGES, b'{"content":"a","metadata":{"x":1,"y":2}}', b'{ "metadata": {"y":2, "x":1}, "content" : "a" }'),
    (MESSAGES, b'{"content":"a"}', b'{"content":"a","delivery":"join","metadata":{},"silent":false,"attachments":[]}'),
    (MESSAGES, b'{"content":"a"}', b'{"content":[{"text":"a","type":"text"}]}'),
    (MESSAGES, b'{"content":"\\u00e9"}', '{"content":"é"}'.encode()),
    (RUNS, b'{"input":"b"}', b'{"input":"b","delivery":"enqueue"}'),
    (THREADS, b'{"agent":"a","message":"x"}', b'{"message":{"content":"x"},"agent":"a","tags":[],"arguments":{}}'),
    (
        UPLOADS,
        b'{"path":"/e\\u0301","bytes":1}',
        '{"bytes":1,"path":"/é","content_type":"application/octet-stream"}'.encode(),
    ),
    (STOP, b"", b"{}"),
    (CONTINUE, b"", b" {} "),
]


@pytest.mark.parametrize(("route", "one", "other"), SAME)
def test_the_same_ask_in_other_bytes_has_the_same_fingerprint(route: str, one: bytes, other: bytes) -> None:
    assert fingerprint(route, raw=one) == fingerprint(route, raw=other)


DIFFERENT: list[tuple[str, Any, Any]] = [
    (MESSAGES, {"content": "a"}, {"content": "b"}),
    (MESSAGES, {"content": "a"}, {"content": "a", "delivery": "enqueue"}),
    (MESSAGES, {"content": "a"}, {"content": "a", "metadata": {"k": None}}),
    (MESSAGES, {"content": "a", "metadata": {"k": 1}}, {"content": "a", "metadata": {"k": 1.0}}),
    (MESSAGES, {"content": "a", "metadata": {"k": 1}}, {"content": "a", "metadata": {"k": True}}),
    (MESSAGES, {"content": "a", "metadata": {"k": 1}}, {"content": "a", "metadata": {"k": "1"}}),
    (MESSAGES, {"content": "a", "metadata": {"k": []}}, {"content": "a", "metadata": {"k": {}}}),
    (MESSAGES, {"content": "é"}, {"content": "e\u0301"}),
    (MESSAGES, {"content": "ab"}, {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
    (THREADS, {"agent": "a", "tags": ["x", "y"]}, {"agent": "a", "tags": ["x,y"]}),
    (THREADS, {"agent": "a", "title": ""}, {"agent": "a"}),
    (UPLOADS, {"path": "/a", "bytes": 1}, {"path": "/a", "bytes": 2}),
    (UPLOADS, {"path": "/a", "bytes": 1}, {"path": "/b", "bytes": 1}),
    (LOGS, {"name": "x"}, {"name": "y"}),
    (LOGS, {"name": "x"}, {"name": "x", "cost": 0.1}),
]


@pytest.mark.parametrize(("route", "one", "other"), DIFFERENT)
def test_another_ask_has_another_fingerprint(route: str, one: Any, other: Any) -> None:
    assert fingerprint(route, body=one) != fingerprint(route, body=other)


def test_another_thread_route_or_flag_has_another_fingerprint() -> None:
    prints = [
        fingerprint(MESSAGES, body={"content": "x"}),
        fingerprint(MESSAGES, body={"content": "x"}, ids={"thread_id": "thr_2"}),
        fingerprint(RUNS, body={"input": "x"}),
        fingerprint(CONTINUE),
        fingerprint(STOP),
        fingerprint(STOP, query={"all": "true"}),
        fingerprint(CANCEL),
    ]
    assert len(set(prints)) == len(prints)
    assert fingerprint(STOP, query={"all": "false"}) == fingerprint(STOP)


def test_the_fingerprint_does_not_know_who_asks() -> None:
    """Its scope is the org, which the service adds; another key of the same org may send the request again."""
    assert fingerprint(CONTINUE, token="member-of-b") == fingerprint(CONTINUE)


def test_a_replay_says_so_and_a_first_answer_does_not() -> None:
    replay = CardboardHouse(answer=Answer(status=200, body={}, replayed=True))
    assert open_door(replay).send(CONTINUE).headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in open_door().send(CONTINUE).headers


def test_the_fingerprint_of_a_known_ask_never_changes() -> None:
    """Keys live at least a day, across deployments: an old request sent again must find its own fingerprint."""
    body = {"agent": "a", "message": {"content": "x"}, "arguments": {"n": [1, 1.0, None, {}]}}
    known = "f3a8ca5ad3654ddf751ad20969c25ec680a51242aaa034d95abfb6dbc8781986"
    assert fingerprint(THREADS, raw=json.dumps(body).encode()) == known
