"""HTTP through a real socket: what reaches the handler, and what the gateway answers by itself."""

import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.infra import stub_app


@pytest.fixture
def http(gateway: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{gateway}", timeout=10, trust_env=False) as client:
        yield client


def _is_problem(answer: httpx.Response, status: int, name: str) -> None:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["turnlog-request-id"]
    assert (answer.json()["type"], answer.json()["status"]) == (f"/problems/{name}", status)


def test_a_request_becomes_a_proxy_event(http: httpx.Client) -> None:
    event = http.post("/api/echo/a%2Fb?x=1&x=2", content=b'{"a": "\xc3\xa9"}', headers={"X-Own": "1"}).json()
    assert (event["resource"], event["httpMethod"], event["path"]) == ("/api/echo/{name}", "POST", "/api/echo/a%2Fb")
    assert event["pathParameters"] == {"name": "a/b"}
    assert event["multiValueQueryStringParameters"] == {"x": ["1", "2"]}
    assert event["body"] == '{"a": "é"}'
    assert event["headers"]["x-own"] == "1"
    assert event["requestContext"]["stage"] == "live"
    assert event["requestContext"]["identity"]["sourceIp"] == "127.0.0.1"


def test_headers_with_several_values_come_back_as_several(http: httpx.Client) -> None:
    assert http.get("/api/echo").headers.get_list("x-two") == ["a", "b"]


def test_an_unknown_path_is_the_gateways_own_404(http: httpx.Client) -> None:
    _is_problem(http.get("/api/nowhere"), 404, "not-found")
    _is_problem(http.get("/ws"), 404, "not-found")


def test_each_answer_of_the_gateway_has_its_own_request_id(http: httpx.Client) -> None:
    ids = {http.get("/api/nowhere").headers["turnlog-request-id"] for _ in range(3)}
    assert len(ids) == 3


def test_a_wrong_method_on_a_known_path_is_left_to_the_app(http: httpx.Client) -> None:
    assert http.delete("/api/echo").json() == {"status": 405}
    assert http.request("BREW", "/api/echo").json()["httpMethod"] == "BREW"


def test_a_body_above_10_mb_is_413_and_one_below_arrives(http: httpx.Client) -> None:
    _is_problem(http.post("/api/echo", content=b"x" * (10 * 1024 * 1024 + 1)), 413, "too-large")
    _is_problem(http.post("/api/echo", content=b"x" * (7 * 1024 * 1024)), 413, "too-large")
    assert len(http.post("/api/echo", content=b"x" * 1024 * 1024).json()["body"]) == 1024 * 1024


def test_a_crash_of_the_function_is_502_and_tells_nothing(http: httpx.Client) -> None:
    for path in ("/api/raise", "/api/malformed"):
        answer = http.get(path)
        _is_problem(answer, 502, "bad-gateway")
        assert "crash" not in answer.text


def test_bytes_come_back_as_bytes_only_for_who_accepts_them(http: httpx.Client) -> None:
    assert http.get("/api/binary", headers={"Accept": "image/png"}).content == b"\x00\xff"
    assert http.get("/api/binary", headers={"Accept": "text/html"}).content == b"AP8="


def test_an_answer_without_content_has_no_body(http: httpx.Client) -> None:
    answer = http.get("/api/empty")
    assert (answer.status_code, answer.content, answer.headers["turnlog-request-id"]) == (204, b"", "r")


def test_a_hundred_waiting_requests_leave_room_for_others(http: httpx.Client, gateway: str) -> None:
    stub_app.HOLD.clear()
    statuses: list[int] = []

    def wait_long() -> None:
        statuses.append(httpx.get(f"http://{gateway}/api/hold", timeout=30, trust_env=False).status_code)

    waiting = [threading.Thread(target=wait_long) for _ in range(100)]
    for thread in waiting:
        thread.start()
    try:
        assert http.get("/api/health").status_code == 200
        assert statuses == []
    finally:
        stub_app.HOLD.set()
    for thread in waiting:
        thread.join()
    assert statuses == [200] * 100


def test_an_unknown_connection_is_gone(http: httpx.Client) -> None:
    answer = http.post("/_sockets/@connections/AAAAAAAAAAAAAAA%3D", content=b"x")
    assert (answer.status_code, answer.headers["x-amzn-errortype"]) == (410, "GoneException")
