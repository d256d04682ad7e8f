"""Bad input on every route: a 4xx problem with the path of the fault; nothing behind the door is reached."""

import json
from typing import Any

import pytest

from chalicelib.doors.auth import LEVELS
from tests.doors.http_house import NEEDED, event, open_door

MESSAGES, THREADS, RUNS = "POST /threads/{thread_id}/messages", "POST /threads", "POST /threads/{thread_id}/runs"
PATCH_THREAD, PATCH_MESSAGE = "PATCH /threads/{thread_id}", "PATCH /threads/{thread_id}/messages/{message_id}"
UPLOADS, FILES = "POST /threads/{thread_id}/uploads", "GET /threads/{thread_id}/files/list"
LOGS, VALUE = "POST /threads/{thread_id}/logs", "PUT /threads/{thread_id}/values/{name}"
ENDPOINT = "POST /threads/{thread_id}/x/{name}"
LIST_LOGS = "GET /threads/{thread_id}/logs"
QUESTIONS = "GET /threads/{thread_id}/questions"
ANSWER = "POST /threads/{thread_id}/questions/{question_id}/answer"
DECIDE = "POST /threads/{thread_id}/approvals/{approval_id}/decision"
WITH_BODY: dict[str, dict[str, Any]] = {
    THREADS: {"agent": "a"},
    MESSAGES: {"content": "x"},
    RUNS: {"input": "x"},
    PATCH_THREAD: {"title": "x"},
    PATCH_MESSAGE: {"content": "x"},
    UPLOADS: {"path": "/a.txt", "bytes": 1},
    LOGS: {"name": "x"},
    VALUE: {"value": None},
    ANSWER: {"answer": None},
    DECIDE: {"decision": "approve"},
}
WITHOUT_BODY = [
    "POST /runs/{run_id}/cancel",
    "POST /threads/{thread_id}/stop",
    "POST /threads/{thread_id}/continue",
    "POST /threads/{thread_id}/terminate",
    "POST /stream/tickets",
]
KEYED = [
    THREADS,
    MESSAGES,
    RUNS,
    UPLOADS,
    LOGS,
    ENDPOINT,
    ANSWER,
    DECIDE,
    *(route for route in WITHOUT_BODY if "tickets" not in route),
]
LISTS = [
    "GET /threads",
    "GET /threads/{thread_id}/messages",
    "GET /threads/{thread_id}/runs",
    "GET /runs",
    "GET /runs/{run_id}/steps",
    FILES,
    LIST_LOGS,
    QUESTIONS,
    "GET /threads/{thread_id}/children",
]

# What is wrong with the bytes, for every route that may have a body; and where the answer must say it is.
BYTES: list[tuple[bytes, str]] = [
    (b"{", ""),
    (b"[]", ""),
    (b'"x"', ""),
    (b"null", ""),
    (b"1", ""),
    (b" ", ""),
    (b"\xff\xfe", ""),
    (b"\xef\xbb\xbf{}", ""),
    (b"\xed\xa0\xbd", ""),
    (b'{"content": }', ""),
    (b'{"content": "x"} {}', ""),
    (b"{'content': 'x'}", ""),
    (b'{"content": NaN}', "content"),
    (b'{"input": -Infinity}', "input"),
    (b'{"title": 1e999}', "title"),
    (b'{"title": ' + b"9" * 400 + b"}", "title"),
    (b'{"content": "lone \\ud83d half"}', "content"),
    (b'{"input": "nul \\u0000 here"}', "input"),
    (b'{"content": "raw \x00 nul"}', ""),
    (b'{"a": {"k\\ud83d": 1}}', "a.k\ufffd"),
    (b'{"a": {"k\\u0000": 1}}', "a.k\ufffd"),
    (b'{"a": {"v": ["ok", "\\udc00"]}}', "a.v.1"),
    (b'{"a": {"b": 1, "b": 2}}', "a.b"),
    (b"[" * 10_000, ""),
    (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, ""),
    (b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", ""),
]


@pytest.mark.parametrize("route", [*WITH_BODY, *WITHOUT_BODY])
@pytest.mark.parametrize(("raw", "path"), BYTES)
def test_bytes_that_are_no_good_json_are_400_with_the_path(route: str, raw: bytes, path: str) -> None:
    door = open_door()
    reply = door.send(route, raw=raw)
    assert reply.is_problem(400, "invalid-request")
    assert path in reply.paths
    assert door.house.calls == []


@pytest.mark.parametrize("route", [route for route in (*WITH_BODY, *WITHOUT_BODY) if route != LOGS])
def test_a_field_that_a_route_does_not_know_is_400_with_its_path(route: str) -> None:
    door = open_door()
    reply = door.send(route, body={"agent": "a", "content": "x", "input": "x", "unknown": 1})
    assert reply.is_problem(400, "invalid-request")
    assert "unknown" in reply.paths
    assert door.house.calls == []


ODD_ENTRIES: list[dict[str, Any]] = [
    {"extra": 1}, {"level": "loud"}, {"status": 5}, {"message": 5}, {"error": {}}, {"trigger": "text"},
    {"duration_ms": "12"}, {"duration_ms": -1}, {"cost": "free"}, {"cost": True}, {"cost": -1}, {"cost": 1e300},
    {"name": "n" * 500}, {"data": "d" * 20_000}, {"request": "r" * 70_000}, {"message": "m" * 5_000},
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD_ENTRIES)
def test_an_entry_for_the_log_with_a_name_is_refused_for_nothing_in_it(odd: dict[str, Any]) -> None:
    assert open_door().send(LOGS, body={"name": "x", **odd}).status == 201


@pytest.mark.parametrize("route", WITH_BODY)
def test_a_body_that_is_needed_and_missing_is_400(route: str) -> None:
    door = open_door()
    for headers in ({}, {"Content-Type": "application/json"}):
        assert door.send(route, headers=headers).is_problem(400, "invalid-request")
    assert door.send(route, body={}).is_problem(400, "invalid-request")
    assert door.house.calls == []


@pytest.mark.parametrize("route", WITHOUT_BODY)
def test_a_body_that_is_not_needed_may_be_missing_or_an_empty_object(route: str) -> None:
    door = open_door()
    assert {door.send(route).status, door.send(route, body={}).status, door.send(route, raw=b" {} ").status} == {201}
    assert len(door.house.calls) == 3


@pytest.mark.parametrize("route", [*WITH_BODY, *WITHOUT_BODY])
def test_a_huge_body_is_413(route: str) -> None:
    door = open_door()
    assert door.send(route, raw=b'{"content": "' + b"x" * 1_048_576 + b'"}').is_problem(413, "too-large")
    assert door.house.calls == []


@pytest.mark.parametrize("route", [*WITH_BODY, *WITHOUT_BODY])
def test_a_body_that_claims_base64_and_is_not_is_400(route: str) -> None:
    door = open_door()
    assert door.handle({**event(route, body={}), "body": "}{"}).is_problem(400, "invalid-request")
    assert door.house.calls == []


@pytest.mark.parametrize("route", WITH_BODY)
def test_a_body_that_comes_as_text_is_read_too(route: str) -> None:
    door = open_door()
    as_text = {**event(route, body={}), "body": json.dumps(WITH_BODY[route]), "isBase64Encoded": False}
    assert door.handle(as_text).status in (200, 201)


ROCKET = "\U0001f680"
TEXT, FILE = {"type": "text", "text": "x"}, {"type": "file", "path": "/a.txt"}
BAD_TAGS: list[Any] = [5, None, "", "x" * 65, ["x"]]
DATA = {"type": "data", "name": "n", "content_type": "image/png", "base64": "eA=="}
Fault = tuple[str, dict[str, Any], str]


def each(route: str, name: str, *values: Any) -> list[Fault]:
    """One row a value: the route, what is added to a good request, and where the fault is."""
    return [(route, {name: value}, name) for value in values]


def each_path(*paths: Any) -> list[Fault]:
    return [(MESSAGES, {"content": [{**FILE, "path": path}]}, "content.0.path") for path in paths]


#: Texts that are no path of a file, and values that are no text. What JSON or a query cannot even carry is elsewhere.
BAD_PATHS: list[Any] = [
    5, None, "", "/", "a.txt", "./a", "//a", "/a//b", "/a/", "/.", "/a/./b", "/..", "/../a", "/a/../b", "/a/..",
    "/a\x01b", "/a\x7f", "/a\x85b", "/a\nb", "/" + "x" * 1_024, "/" + "é" * 512, "/" + ROCKET * 256, "/" + "x" * 5_000,
]  # fmt: skip
SHAPES: list[Fault] = [
    *each(MESSAGES, "content", 5, None, True, {}, [], "", 1.5),
    *each(MESSAGES, "delivery", 7, None, "later", "", "JOIN", "interrupt", "rollback"),
    *each(MESSAGES, "silent", "no", 1, None),
    *each(DECIDE, "decision", "perhaps", "", None, True, "APPROVE"),
    *each(DECIDE, "reason", 1, None, "", "x" * 1_001),
    *each(MESSAGES, "metadata", [], "x", None, 1),
    *each(MESSAGES, "attachments", "none", {}, None, [FILE] * 21),
    *each(RUNS, "input", 5, None, [], "", {}),
    *each(RUNS, "delivery", 7, None, "later", "interrupt", "rollback"),
    *each(RUNS, "parent_run_id", 5, None, "", ["run_1"]),
    *each(RUNS, "model", 5, None, "", {}),
    *each(PATCH_MESSAGE, "content", 5, None, [], ""),
    *each(PATCH_MESSAGE, "metadata", [], "x", None, 1),
    *each(THREADS, "message", 5, None, [], ""),
    *each(THREADS, "agent", 5, None, "", "x" * 201, []),
    *each(THREADS, "arguments", [], "x", None, 1),
    *each(THREADS, "user", 5, None, "", {}, "x" * 201),
    *each(THREADS, "title", 5, None, "x" * 201, []),
    *each(THREADS, "tags", 5, None, "a", {}, [f"t{n}" for n in range(21)]),
    *each(PATCH_THREAD, "title", 5, None, "x" * 201, []),
    *each(PATCH_THREAD, "tags", 5, None, "a", {}, [f"t{n}" for n in range(21)]),
    *((route, {"tags": ["ok", tag]}, "tags.1") for route in (THREADS, PATCH_THREAD) for tag in BAD_TAGS),
    # Of an entry for the log what is no field is dropped, as it is from code; all but its name.
    *((route, {"org": "org_b"}, "org") for route in WITH_BODY if route != LOGS),
    *each(LOGS, "name", 5, None, "", " ", [], {}, True),
    *each_path(5, "", "/", "a.txt", "/../a", "/a/../b", "/a/..", "/" + "x" * 1_024, "/" + ROCKET * 256),
    *each(UPLOADS, "path", *BAD_PATHS),
    *each(UPLOADS, "bytes", "1", None, -1, 1.0, True, []),
    *each(UPLOADS, "content_type", 5, None, "", "png", "image/png\r\nX: y", "image/" + "x" * 200),
    *each(UPLOADS, "sha256", 5, None, "", "x" * 64, "a" * 63, "A" * 64),
    (THREADS, {"message": {}}, "message.content"),
    (THREADS, {"message": {"content": [{**TEXT, "text": ""}]}}, "message.content.0.text"),
    (THREADS, {"message": {"content": "x", "unknown": 1}}, "message.unknown"),
    (THREADS, {"message": {"content": "x", "delivery": "later"}}, "message.delivery"),
    (MESSAGES, {"content": ["x"]}, "content.0"),
    (MESSAGES, {"content": [{}]}, "content.0.type"),
    (MESSAGES, {"content": [TEXT, {"type": "x"}]}, "content.1.type"),
    (MESSAGES, {"content": [{"type": 1}]}, "content.0.type"),
    (MESSAGES, {"content": [{"type": "tool_call", "call_id": "c"}]}, "content.0.type"),
    (MESSAGES, {"content": [{"type": "text"}]}, "content.0.text"),
    (MESSAGES, {"content": [{**TEXT, "text": 5}]}, "content.0.text"),
    (MESSAGES, {"content": [{**TEXT, "more": 5}]}, "content.0.more"),
    (MESSAGES, {"content": [TEXT] * 1_001}, "content"),
    (MESSAGES, {"content": [{**DATA, "base64": "e"}]}, "content.0.base64"),
    (MESSAGES, {"content": [{**DATA, "base64": "eA==\n"}]}, "content.0.base64"),
    (MESSAGES, {"content": [{**DATA, "base64": "é"}]}, "content.0.base64"),
    (MESSAGES, {"content": [{**DATA, "name": ""}]}, "content.0.name"),
    (MESSAGES, {"content": [{**DATA, "content_type": "png"}]}, "content.0.content_type"),
    (MESSAGES, {"content": [{**DATA, "content_type": "image/png\r\nX: y"}]}, "content.0.content_type"),
    (MESSAGES, {"attachments": [TEXT]}, "attachments.0.type"),
    (MESSAGES, {"attachments": ["/a.txt"]}, "attachments.0"),
]


@pytest.mark.parametrize(("route", "change", "path"), SHAPES)
def test_a_wrong_type_count_or_field_is_400_with_the_path(route: str, change: dict[str, Any], path: str) -> None:
    door = open_door()
    reply = door.send(route, body={**WITH_BODY[route], **change})
    assert reply.is_problem(400, "invalid-request")
    assert path in reply.paths
    assert door.house.calls == []


LARGE: list[Fault] = [
    *[(route, {name: text}, name)
      for route, name in ((MESSAGES, "content"), (RUNS, "input"), (PATCH_MESSAGE, "content"), (THREADS, "message"))
      for text in ("x" * 262_145, ROCKET * 65_537)],
    (MESSAGES, {"content": [{**TEXT, "text": "x" * 131_072}, {**TEXT, "text": "x" * 131_073}]}, "content"),
    (MESSAGES, {"content": [{**DATA, "base64": "eHh4" * 65_536}]}, "content"),
    (MESSAGES, {"metadata": {"m": "x" * 4_100}}, "metadata"),
    (MESSAGES, {"metadata": {"m": ROCKET * 1_023}}, "metadata"),
    (PATCH_MESSAGE, {"metadata": {"m": "x" * 4_100}}, "metadata"),
    (THREADS, {"arguments": {"a": "x" * 65_600}}, "arguments"),
    (THREADS, {"message": {"content": "x", "metadata": {"m": "x" * 4_100}}}, "message.metadata"),
]  # fmt: skip


@pytest.mark.parametrize(("route", "change", "path"), LARGE)
def test_bytes_above_a_limit_are_413_with_the_path(route: str, change: dict[str, Any], path: str) -> None:
    door = open_door()
    reply = door.send(route, body={**WITH_BODY[route], **change})
    assert reply.is_problem(413, "too-large")
    assert path in reply.paths
    assert door.house.calls == []


AT_THE_LIMIT: list[tuple[str, dict[str, Any]]] = [
    (MESSAGES, {"content": "x" * 262_144}),
    (MESSAGES, {"content": ROCKET * 65_536}),
    (MESSAGES, {"content": [FILE, DATA, TEXT], "attachments": [], "silent": False}),
    (MESSAGES, {"metadata": {"m": "x" * (4_096 - len('{"m":""}'))}}),
    (THREADS, {"arguments": {"a": "x" * (65_536 - len('{"a":""}'))}}),
    (THREADS, {"title": ROCKET * 200, "tags": [ROCKET * 64, *(f"t{n}" for n in range(19))]}),
    (THREADS, {"title": "", "tags": [], "arguments": {}, "message": {"content": "x", "delivery": "enqueue"}}),
    (RUNS, {"input": [TEXT] * 1_000, "delivery": "join"}),
    (PATCH_THREAD, {"title": "", "tags": []}),
    (PATCH_MESSAGE, {"metadata": {}}),
]


@pytest.mark.parametrize(("route", "change"), AT_THE_LIMIT)
def test_what_is_exactly_at_a_limit_is_taken(route: str, change: dict[str, Any]) -> None:
    assert open_door().send(route, body={**WITH_BODY[route], **change}).status in (200, 201)


def test_all_faults_of_a_body_come_in_one_answer() -> None:
    body = {"agent": 5, "title": "x" * 201, "tags": [1], "unknown": 1, "message": {"content": 5}}
    reply = open_door().send(THREADS, body=body)
    assert sorted(reply.paths) == ["agent", "message.content", "tags.0", "title", "unknown"]


BAD_LIMITS: list[Any] = ["0", "-1", "x", "1.5", "101", "", "1e1", "\u0663", " 1", "9" * 5_000, ["1", "1"]]
BAD_CURSORS: list[Any] = ["nonsense", "", "é", "a" * 5_000, "====", ["a", "a"], "\x00", "\ud800", "bm9uc2Vuc2U"]
BAD_TEXTS = [path for path in BAD_PATHS if isinstance(path, str)]
WITH_PATH = [f"{method} /threads/{{thread_id}}/files" for method in ("GET", "PUT", "DELETE")]
PUT_FILE = WITH_PATH[1]
THREAD, EVENTS = "GET /threads/{thread_id}", "GET /threads/{thread_id}/events"
QUERIES: list[Fault] = [
    *(row for route in (*LISTS, EVENTS) for row in each(route, "limit", *BAD_LIMITS)),
    *(row for route in LISTS for row in each(route, "cursor", *BAD_CURSORS)),
    *(
        row
        for name in ("agent", "tag", "q")
        for row in each("GET /threads", name, "\x00", "\ud83d", "x" * 201, ["a", "b"])
    ),
    *each("GET /threads", "state", "waiting", "", ["idle", "idle"]),
    *each(THREAD, "include", "events", "messages,,runs", "", ["messages", "runs"]),
    *each("GET /threads/{thread_id}/messages", "include", "all", "", "silent,x"),
    *each("GET /threads/{thread_id}/messages", "order", "up", "", "DESC"),
    *each(EVENTS, "after", "abc", "-1", "1.5", "", "1e3", "9" * 19, "\u0663", ["1", "2"]),
    *each(EVENTS, "wait", "x", "-1", "21", "20.1", "nan", "inf", "1e1", "", "1.", ["1", "2"]),
    *each(LIST_LOGS, "order", "up", "", "DESC"),
    *each(LIST_LOGS, "kind", "APP", "", "none", ["app", "llm"]),
    *each(QUESTIONS, "state", "closed", "", ["open", "open"]),
    *each(LIST_LOGS, "level", "fatal", "", ["info", "warn"]),
    *each("POST /threads/{thread_id}/stop", "all", "yes", "1", "", ["true", "true"]),
    *each("GET /commands", "idempotency_key", "", "a b", "é", "x" * 256, ["a", "b"]),
    ("GET /commands", {}, "idempotency_key"),
    *(
        row
        for route in WITH_PATH
        for row in [*each(route, "path", *BAD_TEXTS, "/a\x00b", "/\ud83d", ["/a", "/b"]), (route, {}, "path")]
    ),
    *each(FILES, "path", *(path for path in BAD_TEXTS if path not in ("/", "/a/")), "/a\x00b", "/\ud83d", ["/a", "/b"]),
    *((PUT_FILE, {"path": "/a.txt", "upload_id": token}, "upload_id") for token in BAD_CURSORS),
]


@pytest.mark.parametrize(("route", "query", "path"), QUERIES)
def test_a_bad_or_repeated_query_field_is_400_with_the_path(route: str, query: dict[str, Any], path: str) -> None:
    door = open_door()
    reply = door.send(route, query=query)
    assert reply.is_problem(400, "invalid-request")
    assert reply.paths == [path]
    assert door.house.calls == []


@pytest.mark.parametrize("route", [route.replace(" /api", " ") for route in LEVELS])
def test_unknown_query_fields_are_ignored_on_every_route(route: str) -> None:
    query: dict[str, str | list[str]] = {"new": ["a", "b"], "org": "org_b", **NEEDED.get(route, {})}
    reply = open_door().send(route, body=WITH_BODY.get(route), query=query)
    assert reply.status in (200, 201, 204)


@pytest.mark.parametrize("route", KEYED)
@pytest.mark.parametrize("key", ["", "a b", "caf\xe9", "x" * 256, "\x7f", "a\tb"])
def test_an_idempotency_key_out_of_bounds_is_400_with_the_path(route: str, key: str) -> None:
    door = open_door()
    reply = door.send(route, body=WITH_BODY.get(route), headers={"Idempotency-Key": key})
    assert reply.is_problem(400, "invalid-request")
    assert reply.paths == ["Idempotency-Key"]
    assert door.house.calls == []


ODD_IDS = ["", "\x00", "\ud800", "x" * 256, "a b", ROCKET, "thr_1\n"]
STRANGE_IDS = ["thr_", "../..", "thr_%00", "'or'1'='1", "x" * 255]
WITH_IDS = [route.replace(" /api", " ") for route in LEVELS if "{" in route]


def ids_of(route: str, value: str) -> dict[str, str]:
    return {part[1:-1]: value for part in route.split("/") if part.startswith("{")}


@pytest.mark.parametrize("route", WITH_IDS)
@pytest.mark.parametrize("odd", ODD_IDS)
def test_what_can_be_no_id_in_a_path_is_404(route: str, odd: str) -> None:
    door = open_door()
    assert door.send(route, body=WITH_BODY.get(route), ids=ids_of(route, odd)).is_problem(404, "not-found")
    assert door.house.calls == []


@pytest.mark.parametrize("route", WITH_IDS)
@pytest.mark.parametrize("strange", STRANGE_IDS)
def test_what_could_be_an_id_goes_to_the_service_as_it_came(route: str, strange: str) -> None:
    door = open_door()
    key = {} if route == ENDPOINT else {"Idempotency-Key": "k"}
    ids, query = ids_of(route, strange), NEEDED.get(route, {})
    reply = door.send(route, body=WITH_BODY.get(route), ids=ids, headers=key, query=dict(query))
    assert reply.status in (200, 201, 204)
    assert strange in door.house.calls[0]
