"""What the door says when it says no: the order of its checks, one form for every error, and nothing of a crash."""

import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from chalice.app import BadRequestError

import app as doors
from chalicelib.domain.errors import (
    Forbidden,
    KeyReused,
    NotFound,
    QueueFull,
    Refusal,
    RetryLater,
    ThreadBusy,
    ThreadTerminated,
)
from chalicelib.doors.auth import LEVELS
from chalicelib.doors.http.exchange import current
from tests.doors.http_house import NEEDED, CardboardHouse, event, open_door

ROUTES = sorted(LEVELS)
GUARDED = [route.replace(" /api", " ") for route in ROUTES if LEVELS[route] is not None]
PUT_FILE = "PUT /threads/{thread_id}/files"  # takes bytes of any type
MUTATING = [route for route in GUARDED if not route.startswith("GET") and "tickets" not in route]


def test_every_route_of_the_app_is_in_the_table_of_levels_and_no_other() -> None:
    assert {f"{method} {path}" for path, methods in doors.app.routes.items() for method in methods} == set(LEVELS)


@pytest.mark.parametrize("route", GUARDED)
@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer not-a-key",
        "Basic member-of-a",
        "member-of-a",
        "Bearer a b",
        "Bearer \xff",
    ],
)
def test_a_missing_or_wrong_credential_is_401_whatever_else_is_wrong(route: str, authorization: str | None) -> None:
    door = open_door()
    headers = {"Content-Type": "text/plain"} | ({} if authorization is None else {"Authorization": authorization})
    reply = door.send(route, raw=b"{", headers=headers, query={"limit": "x"}, token=None)
    assert reply.is_problem(401, "unauthorized")
    assert reply.headers["www-authenticate"] == "Bearer"
    assert door.house.calls == []


@pytest.mark.parametrize("token", [None, "not-a-key"])
def test_without_a_credential_an_unknown_route_or_method_is_401_too(token: str | None) -> None:
    door = open_door()
    assert door.send("GET /no-such-route", token=token).is_problem(401, "unauthorized")
    assert door.send("DELETE /threads", token=token).is_problem(401, "unauthorized")


def test_the_scheme_of_a_credential_is_read_in_any_case() -> None:
    headers = {"authorization": "bEARER member-of-a"}
    assert open_door().send("GET /agents", token=None, headers=headers).status == 200


def test_health_answers_without_a_credential_and_with_a_wrong_one() -> None:
    for token in (None, "not-a-key"):
        reply = open_door().send("GET /health", token=token)
        assert (reply.status, reply.body) == (200, {"status": "ok", "version": "1.2.3", "stage": "test"})


def test_an_unknown_route_is_404() -> None:
    door = open_door()
    assert door.send("GET /no-such-route").is_problem(404, "not-found")
    assert door.send("GET /threads/{thread_id}/no-such-part").is_problem(404, "not-found")
    assert set(door.app.routes) == {route.partition(" ")[2] for route in LEVELS}


def test_an_event_that_names_no_resource_is_404() -> None:
    known = event("GET /agents")
    bare = {"httpMethod": "GET", "path": "/", "headers": known["headers"], "requestContext": {"resourcePath": None}}
    assert open_door().handle(bare).is_problem(404, "not-found")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("template", sorted({route.partition(" /api")[2] for route in ROUTES}))
def test_a_method_that_a_route_does_not_know_is_405_and_allow_names_those_it_knows(method: str, template: str) -> None:
    known = sorted(route.partition(" ")[0] for route in ROUTES if route.partition(" /api")[2] == template)
    reply = open_door().send(f"{method} {template}", body={})
    if method not in known:
        assert reply.is_problem(405, "method-not-allowed")
        assert reply.headers["allow"] == ", ".join(known)
    else:
        assert reply.status != 405


@pytest.mark.parametrize("route", MUTATING)
def test_a_viewer_may_not_change_anything(route: str) -> None:
    door = open_door()
    assert door.send(route, body={}, token="viewer-of-a").is_problem(403, "forbidden")
    assert door.house.calls == []


@pytest.mark.parametrize("route", [route for route in GUARDED if route not in MUTATING])
def test_a_viewer_may_look_at_everything(route: str) -> None:
    assert open_door().send(route, query=dict(NEEDED.get(route, {})), token="viewer-of-a").status in (200, 201)


def test_a_route_that_is_not_in_the_table_is_refused() -> None:
    door = open_door()
    entry = door.app.routes["/api/agents"]["GET"]
    door.app.routes = {**door.app.routes, "/api/forgotten": {"GET": entry}}
    assert door.send("GET /forgotten").is_problem(403, "forbidden")


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/xml",
        "application/json; charset=latin-1",
        "application/jsonp",
        "text/plain, application/json",
        "",
    ],
)
@pytest.mark.parametrize("route", [route for route in MUTATING if not route.startswith("DELETE") and route != PUT_FILE])
def test_a_body_of_another_media_type_is_415(route: str, content_type: str) -> None:
    door = open_door()
    reply = door.send(route, raw=b'{"content": "x"}', headers={"Content-Type": content_type})
    assert reply.is_problem(415, "unsupported-media-type")
    assert door.house.calls == []


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON", "application/json;charset=UTF-8", 'application/json; charset="utf-8"'],
)
def test_json_may_name_its_charset(content_type: str) -> None:
    reply = open_door().send(
        "POST /threads/{thread_id}/messages", body={"content": "x"}, headers={"content-type": content_type}
    )
    assert reply.status == 201


REFUSALS: list[tuple[Refusal, int, str]] = [
    (NotFound(), 404, "not-found"),
    (Forbidden(), 403, "forbidden"),
    (KeyReused(), 409, "idempotency-key-reused"),
    (ThreadBusy(), 409, "thread-busy"),
    (ThreadTerminated(), 423, "thread-terminated"),
    (QueueFull(), 429, "queue-full"),
    (RetryLater(), 503, "retry-later"),
]


@pytest.mark.parametrize(("refusal", "status", "name"), REFUSALS)
def test_a_refusal_of_a_service_becomes_its_problem(refusal: Refusal, status: int, name: str) -> None:
    reply = open_door(CardboardHouse(fails=refusal)).send("POST /threads/{thread_id}/continue")
    assert reply.is_problem(status, name)
    assert ("retry-after" in reply.headers) == (status in (429, 503))


def test_retry_after_says_the_seconds_that_the_service_said() -> None:
    refusal = QueueFull(retry_after_seconds=7)
    reply = open_door(CardboardHouse(fails=refusal)).send("POST /threads/{thread_id}/continue")
    assert reply.headers["retry-after"] == "7"


def test_an_error_of_chalice_becomes_a_problem() -> None:
    reply = open_door(CardboardHouse(fails=BadRequestError("no good"))).send("GET /agents")
    assert reply.is_problem(400, "invalid-request")
    assert reply.body["errors"] == [{"path": "", "message": "no good"}]


@pytest.mark.parametrize("route", GUARDED)
def test_a_crash_is_a_problem_500_without_a_trace_and_is_logged(route: str, caplog: pytest.LogCaptureFixture) -> None:
    bodies: dict[str, dict[str, object]] = {
        "/threads": {"agent": "a"},
        "/messages": {"content": "x"},
        "/runs": {"input": "x"},
    }
    bodies |= {"/{thread_id}": {"title": "x"}, "/{message_id}": {"content": "x"}}
    bodies |= {"/uploads": {"path": "/a", "bytes": 1}, "/logs": {"name": "x"}, "/values/{name}": {"value": 1}}
    bodies |= {"/answer": {"answer": 1}, "/decision": {"decision": "approve"}}
    body = next((body for end, body in bodies.items() if route.endswith(end)), None)
    house = CardboardHouse(fails=ZeroDivisionError("secret of the house"))
    with caplog.at_level(logging.ERROR):
        reply = open_door(house).send(
            route, body=None if route.startswith(("GET", "DELETE")) else body, query=dict(NEEDED.get(route, {}))
        )
    assert reply.is_problem(500, "internal-error")
    assert b"secret" not in reply.raw
    assert b"Traceback" not in reply.raw
    assert "secret of the house" in caplog.text
    assert reply.headers["turnlog-request-id"] in caplog.text


def test_an_answer_that_is_no_json_is_a_500_and_not_a_nan_on_the_wire() -> None:
    house = CardboardHouse()
    house.page.items.append(float("nan"))
    assert open_door(house).send("GET /threads").is_problem(500, "internal-error")


def test_a_house_that_cannot_be_built_is_a_problem_500() -> None:
    door = open_door()

    def broken() -> CardboardHouse:
        raise KeyError("TURNLOG_TABLE")

    door.app.house = broken
    assert door.send("GET /agents").is_problem(500, "internal-error")


def test_every_answer_has_its_own_request_id_and_forbids_sniffing_and_storing() -> None:
    door = open_door()
    replies = [door.send(route) for route in (*GUARDED, "GET /health", "GET /no-such-route", "PUT /threads")]
    replies += [door.send("GET /agents", token=None), door.handle({})]
    assert len({reply.headers["turnlog-request-id"] for reply in replies}) == len(replies)
    assert {reply.headers["cache-control"] for reply in replies} == {"no-store"}
    assert {reply.headers["x-content-type-options"] for reply in replies} == {"nosniff"}


def test_a_problem_is_readable_text_whatever_was_sent() -> None:
    raw = b'{"content": "x", "k\\ud83d": 1, "' + b"z" * 5_000 + b'": 2}'
    reply = open_door().send("POST /threads/{thread_id}/messages", raw=raw)
    assert reply.is_problem(400, "invalid-request")
    assert all(len(path) < 100 for path in reply.paths)
    assert json.dumps(reply.body, ensure_ascii=False).encode() != b""


def test_a_body_of_a_thousand_faults_gets_a_short_answer() -> None:
    raw = json.dumps({"content": ["\ud800"] * 100_000}).encode()
    reply = open_door().send("POST /threads/{thread_id}/messages", raw=raw)
    assert reply.is_problem(400, "invalid-request")
    assert len(reply.paths) == 20


def test_requests_on_threads_never_see_each_other() -> None:
    """Each view waits until all are inside, then says whom it serves: one attribute for all would cross them."""
    count = 8
    inside = threading.Barrier(count)

    class Slow(CardboardHouse):
        def run(self, p: object, run_id: str, /) -> object:
            inside.wait(timeout=10)
            exchange = current()
            request = door.app.current_request
            assert request is exchange.request
            return {"id": exchange.ids["run_id"]}

    door = open_door(Slow())

    def ask(n: int) -> str:
        return str(door.send("GET /runs/{run_id}", ids={"run_id": f"run_{n}"}).body["id"])

    with ThreadPoolExecutor(count) as pool:
        assert list(pool.map(ask, range(count))) == [f"run_{n}" for n in range(count)]
    assert door.app.current_request is None
