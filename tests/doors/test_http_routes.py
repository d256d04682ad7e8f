"""Each route, from the raw event to what the service is asked and what the client gets."""

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.commands import (
    Answer,
    AnswerQuestion,
    CreateRun,
    CreateThread,
    Decide,
    Delivery,
    Page,
    PatchMessage,
    PatchThread,
    Say,
)
from tests.doors.http_house import TOKENS, CardboardHouse, Reply, open_door

ASKER = TOKENS["member-of-a"]
HELLO = ({"type": "text", "text": "Hello"},)
EVENTS = Path(__file__).parents[2] / "events"


def play(name: str) -> tuple[CardboardHouse, Reply]:
    """A raw event of API Gateway, as it was recorded."""
    door = open_door()
    return door.house, door.handle(json.loads((EVENTS / f"http.{name}.json").read_text()))


def test_creating_a_thread_with_a_message_asks_for_both_at_once() -> None:
    house, reply = play("create-thread")
    name, asker, ask, idem = house.calls[0]
    say = Say(content=HELLO, metadata={})
    assert (name, asker) == ("create_thread", ASKER)
    assert ask == CreateThread(agent="assistant", title="Überblick", arguments={}, message=say)
    assert (idem.key, len(idem.fingerprint)) == ("a-key", 64)
    assert (reply.status, reply.body) == (201, {"made": True})


def test_a_message_of_parts_and_a_key_in_any_case_are_read() -> None:
    house, reply = play("post-message")
    name, asker, thread_id, ask, idem = house.calls[0]
    assert (name, asker, thread_id, idem.key) == ("post_message", ASKER, "thr_01", "a-key")
    assert ask == Say(content=HELLO, metadata={"k": 1}, delivery=Delivery.JOIN)
    assert reply.status == 201


def test_a_file_comes_as_the_bytes_that_were_sent_under_a_path_that_is_decoded_once() -> None:
    house, reply = play("put-file")
    data = b"\x89PNG\r\n\x1a\n\x00\xff"
    assert house.calls == [("put_file", ASKER, "thr_01", "/a b/é&%2e%2e.png", data, "image/png")]
    assert reply.status == 201


def test_a_cancel_needs_no_body_and_no_media_type() -> None:
    house, _ = play("cancel-without-body")
    assert house.calls[0][:3] == ("cancel_run", ASKER, "run_01")


def test_filters_of_threads_reach_the_service_and_unknown_ones_do_not() -> None:
    house, reply = play("list-threads")
    assert house.calls == [("threads", ASKER, None, "a tag", "idle", None, 2, None)]
    assert reply.body == {"items": [{"id": "one"}], "next_cursor": None}


def test_a_long_poll_hands_its_wait_to_the_service() -> None:
    house, reply = play("long-poll")
    assert house.calls == [("events", ASKER, "thr_01", 3, 10, 2.5)]
    assert reply.body == {"items": [], "cursor": 3, "status": {"state": "idle"}}


def test_an_id_is_decoded_once_by_the_gateway_and_not_again_here() -> None:
    house, _ = play("encoded-id")
    assert house.calls == [("thread", ASKER, "thr_01/x", frozenset())]


@pytest.mark.parametrize(
    ("name", "status"), [("health", 200), ("unknown-route", 404), ("wrong-method", 405), ("half-character", 400)]
)
def test_raw_events_that_reach_no_service(name: str, status: int) -> None:
    house, reply = play(name)
    assert (reply.status, house.calls) == (status, [])


def test_every_recorded_event_of_this_door_is_used_here() -> None:
    source = Path(__file__).read_text()
    recorded = {path.name.split(".")[1] for path in EVENTS.glob("http.*.json")}
    assert recorded
    assert {name for name in recorded if f'"{name}"' not in source} == set()


READS: list[tuple[str, dict[str, str], tuple[Any, ...]]] = [
    ("GET /agents", {}, ("agents", ASKER)),
    ("GET /threads", {}, ("threads", ASKER, None, None, None, None, 50, None)),
    ("GET /threads", {"agent": "a", "q": "some words"}, ("threads", ASKER, "a", None, None, "some words", 50, None)),
    ("GET /threads", {"q": ""}, ("threads", ASKER, None, None, None, None, 50, None)),
    ("GET /threads/{thread_id}", {}, ("thread", ASKER, "thread_id-1", frozenset())),
    ("GET /threads/{thread_id}/messages", {}, ("messages", ASKER, "thread_id-1", False, False, 50, None)),
    (
        "GET /threads/{thread_id}/messages",
        {"order": "desc", "include": "silent", "limit": "100"},
        ("messages", ASKER, "thread_id-1", True, True, 100, None),
    ),
    ("GET /threads/{thread_id}/files", {"path": "/e\u0301 &+%41"}, ("get_file", ASKER, "thread_id-1", "/é &+%41")),
    ("GET /threads/{thread_id}/files/list", {}, ("list_files", ASKER, "thread_id-1", "/", 50, None)),
    ("GET /threads/{thread_id}/files/list", {"path": "/a/"}, ("list_files", ASKER, "thread_id-1", "/a", 50, None)),
    ("GET /threads/{thread_id}/logs", {}, ("list_logs", ASKER, "thread_id-1", None, None, False, 50, None)),
    (
        "GET /threads/{thread_id}/logs",
        {"kind": "app", "level": "warn", "order": "desc", "limit": "2"},
        ("list_logs", ASKER, "thread_id-1", "app", "warn", True, 2, None),
    ),
    ("GET /threads/{thread_id}/cost", {}, ("thread_cost", ASKER, "thread_id-1")),
    ("GET /threads/{thread_id}/values/{name}", {}, ("get_value", ASKER, "thread_id-1", "name-1")),
    ("GET /threads/{thread_id}/runs", {"limit": "1"}, ("runs", ASKER, "thread_id-1", 1, None)),
    ("GET /threads/{thread_id}/events", {}, ("events", ASKER, "thread_id-1", 0, 50, 0.0)),
    ("GET /threads/{thread_id}/events", {"wait": "20"}, ("events", ASKER, "thread_id-1", 0, 50, 20.0)),
    ("GET /threads/{thread_id}/events", {"after": "999999"}, ("events", ASKER, "thread_id-1", 999_999, 50, 0.0)),
    ("GET /threads/{thread_id}/blobs/{ref}", {}, ("blob", ASKER, "thread_id-1", "ref-1")),
    ("GET /runs", {}, ("roots", ASKER, 50, None)),
    ("GET /runs/{run_id}", {}, ("run", ASKER, "run_id-1")),
    ("GET /runs/{run_id}/steps", {}, ("steps", ASKER, "run_id-1", 50, None)),
    ("GET /commands/{command_id}", {}, ("command", ASKER, "command_id-1")),
    ("GET /commands", {"idempotency_key": "~k!"}, ("command_by_key", ASKER, "~k!")),
]


@pytest.mark.parametrize(("route", "query", "call"), READS)
def test_a_read_asks_its_service_once(route: str, query: dict[str, str], call: tuple[Any, ...]) -> None:
    door = open_door()
    assert door.send(route, query=query).status == 200
    assert door.house.calls == [call]


CHANGES: list[tuple[str, Any, tuple[Any, ...]]] = [
    (
        "POST /threads",
        {
            "agent": "scripted",
            "arguments": {"n": 1},
            "tags": ["b", "a", "b"],
            "user": "someone",
            "message": {"content": "Hello", "delivery": "enqueue", "metadata": {"k": 1}},
        },
        (
            "create_thread",
            ASKER,
            CreateThread(
                agent="scripted",
                arguments={"n": 1},
                tags=("b", "a"),
                user="someone",
                message=Say(content=HELLO, metadata={"k": 1}, delivery=Delivery.ENQUEUE),
            ),
            None,
        ),
    ),
    (
        "POST /threads/{thread_id}/runs",
        {"input": "Hello", "parent_run_id": "run_0", "model": "offline:echo", "delivery": "join"},
        (
            "create_run",
            ASKER,
            "thread_id-1",
            CreateRun(content=HELLO, parent_run_id="run_0", model="offline:echo", delivery=Delivery.JOIN),
            None,
        ),
    ),
    (
        "POST /threads/{thread_id}/runs",
        {"input": "Hello"},
        ("create_run", ASKER, "thread_id-1", CreateRun(content=HELLO, delivery=Delivery.ENQUEUE), None),
    ),
    ("POST /threads/{thread_id}/continue", {}, ("continue_thread", ASKER, "thread_id-1", None)),
    ("POST /threads/{thread_id}/stop", None, ("stop", ASKER, "thread_id-1", False, None)),
    ("POST /threads/{thread_id}/terminate", {}, ("terminate", ASKER, "thread_id-1", None)),
    (
        "POST /threads/{thread_id}/questions/{question_id}/answer",
        {"answer": {"k": [1.0, None]}},
        ("answer_question", ASKER, "thread_id-1", "question_id-1", AnswerQuestion(answer={"k": [1.0, None]}), None),
    ),
    (
        "POST /threads/{thread_id}/approvals/{approval_id}/decision",
        {"decision": "reject", "reason": "too dear"},
        ("decide", ASKER, "thread_id-1", "approval_id-1", Decide(approve=False, reason="too dear"), None),
    ),
    ("POST /runs/{run_id}/cancel", {}, ("cancel_run", ASKER, "run_id-1", None)),
    (
        "PATCH /threads/{thread_id}",
        {"title": "new"},
        ("patch_thread", ASKER, "thread_id-1", PatchThread(title="new", tags=None)),
    ),
    (
        "PATCH /threads/{thread_id}",
        {"tags": []},
        ("patch_thread", ASKER, "thread_id-1", PatchThread(title=None, tags=())),
    ),
    (
        "PATCH /threads/{thread_id}/messages/{message_id}",
        {"content": "Hello"},
        ("patch_message", ASKER, "thread_id-1", "message_id-1", PatchMessage(content=HELLO)),
    ),
    (
        "PUT /threads/{thread_id}/values/{name}",
        {"value": {"k": [1.0, None]}},
        ("put_value", ASKER, "thread_id-1", "name-1", {"k": [1.0, None]}),
    ),
    ("PUT /threads/{thread_id}/values/{name}", {"value": None}, ("put_value", ASKER, "thread_id-1", "name-1", None)),
    ("POST /stream/tickets", {}, ("issue", ASKER)),
]


@pytest.mark.parametrize(("route", "body", "call"), CHANGES)
def test_a_change_asks_its_service_once(route: str, body: Any, call: tuple[Any, ...]) -> None:
    door = open_door()
    assert door.send(route, body=body).status in (200, 201)
    assert door.house.calls == [call]


@pytest.mark.parametrize(("all_of_it", "everything"), [("true", True), ("false", False)])
def test_stop_takes_all(all_of_it: str, everything: bool) -> None:
    door = open_door()
    door.send("POST /threads/{thread_id}/stop", query={"all": all_of_it})
    assert door.house.calls == [("stop", ASKER, "thread_id-1", everything, None)]


def test_removing_a_message_answers_204_without_a_body() -> None:
    door = open_door()
    reply = door.send("DELETE /threads/{thread_id}/messages/{message_id}")
    assert (reply.status, reply.raw) == (204, b"")
    assert "content-type" not in reply.headers
    assert door.house.calls == [("delete_message", ASKER, "thread_id-1", "message_id-1")]


def test_removing_a_value_answers_204_without_a_body() -> None:
    door = open_door()
    reply = door.send("DELETE /threads/{thread_id}/values/{name}")
    assert (reply.status, reply.raw) == (204, b"")
    assert door.house.calls == [("delete_value", ASKER, "thread_id-1", "name-1")]


def test_an_entry_for_the_log_is_made_a_row_at_the_door() -> None:
    door = open_door()
    entry = {"name": "search", "status": "error", "request": {"q": 1}, "extra": 1, "cost": "free"}
    assert door.send("POST /threads/{thread_id}/logs", body=entry).status == 201
    name, asker, thread_id, ask, idem = door.house.calls[0]
    assert (name, asker, thread_id, idem) == ("write_log", ASKER, "thread_id-1", None)
    said = {name: value for name, value in ask.body.items() if value is not None}
    assert said == {"model": "search", "app_level": "error", "app_status": "error", "app_request": '{"q":1}'}


@pytest.mark.parametrize("status", [200, 201, 202])
def test_the_status_of_a_service_is_the_status_of_the_answer(status: int) -> None:
    house = CardboardHouse(answer=Answer(status=status, body={"run": None}))
    reply = open_door(house).send("POST /runs/{run_id}/cancel")
    assert (reply.status, reply.body) == (status, {"run": None})


def test_an_answer_is_utf_8_and_keeps_values_and_types() -> None:
    values: list[Any] = [1, 1.0, 0.1, 2512292042121000001, True, None, "é\U0001f680\u2028", {"": []}]
    reply = open_door(CardboardHouse(page=Page(items=values))).send("GET /threads")
    assert json.dumps(reply.body["items"]) == json.dumps(values)
    assert "é".encode() in reply.raw


def test_a_blob_is_a_download_that_no_browser_runs() -> None:
    house = CardboardHouse(stored=b"\x00\xff<script>", stored_type="text/html")
    reply = open_door(house).send("GET /threads/{thread_id}/blobs/{ref}")
    assert (reply.status, reply.raw) == (200, b"\x00\xff<script>")
    assert reply.headers["content-type"] == "text/html"
    assert reply.headers["content-disposition"] == "attachment"
    assert "sandbox" in reply.headers["content-security-policy"]


@pytest.mark.parametrize("stored_type", ["", "text/html\r\nSet-Cookie: x", "é/é"])
def test_a_blob_of_an_odd_type_is_served_as_bytes(stored_type: str) -> None:
    reply = open_door(CardboardHouse(stored_type=stored_type)).send("GET /threads/{thread_id}/blobs/{ref}")
    assert reply.headers["content-type"] == "application/octet-stream"


def test_a_ticket_is_answered_whole() -> None:
    reply = open_door().send("POST /stream/tickets")
    assert (reply.status, sorted(reply.body)) == (201, ["expires_at", "ticket", "url"])
