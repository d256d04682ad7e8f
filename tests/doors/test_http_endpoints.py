"""Endpoints of agents at the door: what their code is shown, and how its answer goes out."""

import pytest

from chalicelib.domain.commands import Call
from chalicelib.domain.errors import EndpointFailed, EndpointProblem, MethodNotAllowed
from chalicelib.services.call_endpoint import Called
from tests.doors.http_house import TOKENS, CardboardHouse, open_door

ROUTE = "/threads/{thread_id}/x/{name}"


def test_code_is_shown_the_request_without_its_credentials() -> None:
    door = open_door()
    headers = {"X-Trace": "1", "Cookie": "c", "X-Api-Key": "k", "X-Hub-Signature-256": "s"}
    reply = door.send(f"PUT {ROUTE}", body={"n": [1, 1.0]}, query={"a": ["1", "2"]}, headers=headers)
    shown = {"x-trace": "1", "content-type": "application/json"}
    call = Call(method="PUT", query={"a": ["1", "2"]}, headers=shown, body={"n": [1, 1.0]})
    assert door.house.calls == [("call_endpoint", TOKENS["member-of-a"], "thread_id-1", "name-1", call)]
    assert (reply.status, reply.body, reply.headers["x-own"]) == (200, {"said": 1}, "yes")
    assert reply.headers["content-type"] == "application/json"


def test_an_answer_has_the_status_that_code_gave_it() -> None:
    door = open_door(CardboardHouse(called=Called(status=202, body=None, headers={})))
    reply = door.send(f"GET {ROUTE}")
    assert (reply.status, reply.body) == (202, None)


def test_a_method_that_an_endpoint_does_not_know_names_those_that_it_knows() -> None:
    refusal = MethodNotAllowed()
    refusal.allow = ("GET", "PUT")
    reply = open_door(CardboardHouse(fails=refusal)).send(f"POST {ROUTE}")
    assert reply.is_problem(405, "method-not-allowed")
    assert reply.headers["allow"] == "GET, PUT"


def test_refusals_of_code_are_problems() -> None:
    refused = open_door(CardboardHouse(fails=EndpointProblem(422, "No such city."))).send(f"POST {ROUTE}")
    assert refused.is_problem(422, "endpoint-problem")
    assert refused.body["detail"] == "No such city."
    assert open_door(CardboardHouse(fails=EndpointFailed())).send(f"GET {ROUTE}").is_problem(500, "endpoint-failed")


@pytest.mark.parametrize(("raw", "path"), [(b"{", ""), (b"[NaN]", "0"), (b'{"a": "\\ud800"}', "a"), (b"[" * 99, "")])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_body_that_is_no_good_json_reaches_no_code(method: str, raw: bytes, path: str) -> None:
    door = open_door()
    reply = door.send(f"{method} {ROUTE}", raw=raw)
    assert reply.is_problem(400, "invalid-request")
    assert reply.paths == [path]
    assert door.house.calls == []


def test_a_viewer_may_only_look() -> None:
    door = open_door()
    assert door.send(f"GET {ROUTE}", token="viewer-of-a").status == 200
    assert door.send(f"DELETE {ROUTE}", token="viewer-of-a").is_problem(403, "forbidden")
