"""Lists: cursors that open only where they were made, pages, and threads that open whole."""

from typing import Any

import pytest

from chalicelib.domain.commands import Page
from tests.doors.http_house import CardboardHouse, open_door

POSITION = ["block", 7, {"k": "é"}]
MESSAGES = "GET /threads/{thread_id}/messages"
FILES = "GET /threads/{thread_id}/files/list"
LOGS = "GET /threads/{thread_id}/logs"
RUNS = ["GET /threads/{thread_id}/runs", "GET /runs", "GET /runs/{run_id}/steps"]
LISTS = ["GET /threads", MESSAGES, *RUNS, FILES, LOGS]


def many() -> CardboardHouse:
    return CardboardHouse(page=Page(items=[1, 2], next=POSITION))


@pytest.mark.parametrize("route", LISTS)
def test_a_cursor_brings_its_position_back(route: str) -> None:
    door = open_door(many())
    cursor = door.send(route).body["next_cursor"]
    assert door.send(route, query={"cursor": cursor, "limit": "3"}).status == 200
    first, second = door.house.calls
    assert (first[-2:], second[-2:]) == ((50, None), (3, POSITION))


@pytest.mark.parametrize("made", LISTS)
@pytest.mark.parametrize("used", LISTS)
def test_a_cursor_opens_only_its_own_list(made: str, used: str) -> None:
    door = open_door(many())
    reply = door.send(used, query={"cursor": door.send(made).body["next_cursor"]})
    assert (reply.status == 200) == (made == used)
    assert reply.status == 200 or reply.paths == ["cursor"]


@pytest.mark.parametrize(
    ("route", "ids"), [(MESSAGES, {"thread_id": "thr_2"}), ("GET /runs/{run_id}/steps", {"run_id": "run_2"})]
)
def test_a_cursor_of_another_thread_or_run_is_refused(route: str, ids: dict[str, str]) -> None:
    door = open_door(many())
    reply = door.send(route, query={"cursor": door.send(route, ids=ids).body["next_cursor"]})
    assert reply.is_problem(400, "invalid-request")


@pytest.mark.parametrize("route", LISTS)
def test_a_cursor_of_another_org_is_refused(route: str) -> None:
    door = open_door(many())
    cursor = door.send(route, token="member-of-b").body["next_cursor"]
    assert door.send(route, query={"cursor": cursor}).is_problem(400, "invalid-request")
    assert door.send(route, query={"cursor": cursor}, token="member-of-b").status == 200


def test_a_cursor_is_shared_by_the_credentials_of_one_org() -> None:
    door = open_door(many())
    cursor = door.send("GET /threads", token="viewer-of-a").body["next_cursor"]
    assert door.send("GET /threads", query={"cursor": cursor}, token="member-of-a").status == 200


@pytest.mark.parametrize(
    ("route", "query"),
    [
        ("GET /threads", {"tag": "a"}),
        ("GET /threads", {"agent": "a"}),
        ("GET /threads", {"state": "idle"}),
        ("GET /threads", {"q": "a"}),
        (MESSAGES, {"order": "desc"}),
        (MESSAGES, {"include": "silent"}),
        (FILES, {"path": "/a"}),
    ],
)
def test_a_cursor_belongs_to_its_filters(route: str, query: dict[str, str]) -> None:
    door = open_door(many())
    cursor = door.send(route, query=query).body["next_cursor"]
    assert door.send(route, query={**query, "cursor": cursor}).status == 200
    assert door.send(route, query={"cursor": cursor}).is_problem(400, "invalid-request")


def test_a_default_that_is_said_is_the_same_list() -> None:
    door = open_door(many())
    cursor = door.send(MESSAGES, query={"order": "asc"}).body["next_cursor"]
    assert door.send(MESSAGES, query={"cursor": cursor}).status == 200


def test_a_cursor_signed_with_another_secret_is_refused() -> None:
    other, door = open_door(many()), open_door(many())
    other.house.settings.secret = b"another secret"
    cursor = other.send("GET /threads").body["next_cursor"]
    assert door.send("GET /threads", query={"cursor": cursor}).is_problem(400, "invalid-request")


def test_a_thread_opens_whole_beside_its_own_fields() -> None:
    reply = open_door(many()).send("GET /threads/{thread_id}", query={"include": "steps,messages,runs"})
    assert (reply.body["id"], reply.body["title"]) == ("thread_id-1", None)
    assert [reply.body[name]["items"] for name in ("messages", "runs", "steps")] == [[1, 2]] * 3
    assert "position" not in reply.body["messages"]


def test_a_thread_without_include_has_none_of_its_parts() -> None:
    assert open_door().send("GET /threads/{thread_id}").body == {"id": "thread_id-1", "title": None}


@pytest.mark.parametrize(
    ("name", "route", "ids"),
    [
        ("messages", MESSAGES, {}),
        ("runs", "GET /threads/{thread_id}/runs", {}),
        ("steps", "GET /runs/{run_id}/steps", {"run_id": "run_1"}),
    ],
)
def test_a_part_of_a_thread_goes_on_at_its_own_route(name: str, route: str, ids: dict[str, Any]) -> None:
    door = open_door(many())
    part = door.send("GET /threads/{thread_id}", query={"include": name}).body[name]
    assert door.send(route, query={"cursor": part["next_cursor"]}, ids=ids).status == 200
    assert door.house.calls[-1][-1] == POSITION


def test_the_list_of_agents_has_one_page() -> None:
    assert open_door().send("GET /agents").body == {"items": [{"name": "assistant"}], "next_cursor": None}
