"""Endpoints of agents: code outside of any run that reads and writes its thread, beside whatever runs there."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from chalicelib.domain.commands import Call
from chalicelib.domain.errors import (
    EndpointFailed,
    EndpointLate,
    EndpointProblem,
    MethodNotAllowed,
    NotFound,
    Refusal,
)
from chalicelib.domain.limits import QUEUED_COMMANDS
from chalicelib.engine.effects import effect
from chalicelib.engine.endpoints import Endpoint, Problem, Request, Response, endpoint
from chalicelib.engine.run_files import Abandoned
from chalicelib.engine.state import Refused, ThreadState
from chalicelib.ports import Commit, Committed
from chalicelib.services.call_endpoint import Called
from tests.crash.audit import audit
from tests.crash.guests import GIVEN_UP_SECONDS
from tests.crash.residents import result, rows, run_tool, said, settled_in, with_secrets, wrong
from tests.crash.world import World

Worlds = Callable[[str], World]
Answer = Callable[[ThreadState, Request], Any]
CALL = Call(method="POST", query={}, headers={}, body=None)


def one(answer: Answer, **given: Any) -> Endpoint:
    """An endpoint `POST it`."""
    return endpoint(method="POST", name="it", **given)(answer)


def ask(world: World, call: Call = CALL, name: str = "it", thread: str | None = None) -> Called:
    """A client asks for it."""
    with world.tap.outside():
        return world.house.endpoints.call_endpoint(world.principal, thread or world.thread.id, name, call)


def settled(world: World, answer: Answer, **given: Any) -> World:
    """A thread with one run behind it, and an endpoint."""
    its = settled_in(world, endpoints=[one(answer, **given)], effects=[effect(name="later")(lambda: None)])
    run_tool(its)
    return its


def test_an_endpoint_reads_and_writes_its_thread(world: Worlds) -> None:
    def answer(state: ThreadState, request: Request) -> Any:
        state.set_value("seen", request.body)
        state.log({"name": "asked", "cost": 0.5})
        state.emit("asked", {"by": request.level})
        message = state.inject_message("A note.", role="system")
        state.update_message(message, "Another note.")
        state.write_file("/note.txt", "text")
        state.schedule_effect("later", after_seconds=5)
        return {
            "roles": [m["role"] for m in state.get_messages()],
            "value": state.get_value("seen"),
            "file": state.read_file("/note.txt").decode(),
            "effects": [one["name"] for one in state.get_scheduled_effects()],
            "kinds": sorted({row["kind"] for row in state.get_logs()}),
            "state": state.status()["state"],
            "run": state.run_id,
        }

    its = settled(world("answers"), answer)
    called = ask(its, replace(CALL, body={"n": 1}))
    assert called == Called(
        status=200,
        body={
            "roles": ["user", "assistant", "tool", "assistant", "system"],
            "value": {"n": 1},
            "file": "text",
            "effects": ["later"],
            "kinds": ["app", "llm", "tool"],
            "state": "idle",
            "run": "",
        },
        headers={},
    )
    assert said(its)[-1] == ("system", "Another note.")
    (row,) = rows(its, "handler")
    assert (row["model"], row["handler"], row["status"]) == ("POST it", "endpoint", "success")
    its.clock.sleep(60)
    its.sweep()
    its.settle()
    assert wrong(audit(its)) == []


def test_a_message_that_an_endpoint_queues_starts_a_run_or_joins_one(world: Worlds) -> None:
    its = world("queues")

    def answer(state: ThreadState, request: Request) -> Any:
        return state.queue_message("from outside")

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        its.meanwhile(lambda: ask(its))
        return "asked"

    settled_in(its, use, endpoints=[one(answer)])
    run_tool(its)
    assert said(its)[-2:] == [("user", "from outside"), ("assistant", "Done.")]
    assert len([e for e in its.events() if e["type"] == "run.completed"]) == 1
    ask(its)
    its.settle()
    assert said(its)[-2:] == [("user", "from outside"), ("assistant", "Done.")]
    assert len([e for e in its.events() if e["type"] == "run.completed"]) == 2
    assert wrong(audit(its)) == []


def test_what_an_endpoint_places_while_calls_are_open_stands_behind_their_results(world: Worlds) -> None:
    its = world("between")

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        its.meanwhile(lambda: ask(its))
        return "asked"

    settled_in(its, use, endpoints=[one(lambda state, request: state.inject_message("between"))])
    run_tool(its)
    assert [role for role, _ in said(its)] == ["user", "assistant", "tool", "user", "assistant"]
    assert result(its) == ("ok", "asked")
    assert wrong(audit(its)) == []


def test_an_answer_of_its_own_has_status_and_headers(world: Worlds) -> None:
    def answer(state: ThreadState, request: Request) -> Any:
        return Response(status=202, body={"queued": True}, headers={"X-Trace": "abc"})

    its = settled(world("own"), answer)
    assert ask(its) == Called(status=202, body={"queued": True}, headers={"X-Trace": "abc"})


async def _awaits(state: ThreadState, request: Request) -> Any:
    return request.method


def test_an_endpoint_may_be_a_coroutine(world: Worlds) -> None:
    assert ask(settled(world("async"), _awaits)).body == "POST"


def _raises(error: BaseException) -> Answer:
    def answer(state: ThreadState, request: Request) -> Any:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "refusal", "status", "detail"),
    [
        (_raises(Problem(409, "Not: now.")), EndpointProblem, 409, "Not: now."),
        (_raises(RuntimeError("hunter2-hunter2")), EndpointFailed, 500, "The endpoint could not answer."),
        (_raises(SystemExit("hunter2-hunter2")), EndpointFailed, 500, "The endpoint could not answer."),
        (lambda state, request: "x" * 2 * 1024 * 1024, EndpointFailed, 500, "The endpoint could not answer."),
        (lambda state, request: Response(headers={"Set-Cookie": "a"}), EndpointFailed, 500, "could not answer"),
        (lambda state, request: Response(headers={"X": "a\r\nb"}), EndpointFailed, 500, "could not answer"),
    ],
)
def test_what_goes_wrong_is_a_problem_without_secrets_and_a_row(
    world: Worlds, answer: Answer, refusal: type[Refusal], status: int, detail: str
) -> None:
    its = with_secrets(settled(world("wrong"), answer), KEY="hunter2-hunter2")
    with pytest.raises(refusal) as raised:
        ask(its)
    assert raised.value.status == status
    assert detail in raised.value.detail
    (row,) = rows(its, "handler")
    assert row["status"] == "error"
    assert "hunter2" not in str([raised.value.detail, row])


def test_an_endpoint_that_takes_too_long_is_given_up_and_writes_nothing_more(world: Worlds) -> None:
    late: list[Exception] = []
    over = Event()

    def answer(state: ThreadState, request: Request) -> Any:
        while not state.wait(5):
            pass
        try:
            state.emit("late")
        except Exception as error:  # noqa: BLE001 - the test looks at it
            late.append(error)
        finally:
            over.set()

    its = settled(world("late"), answer, timeout_seconds=0.05)
    with pytest.raises(EndpointLate):
        ask(its)
    assert over.wait(GIVEN_UP_SECONDS)
    assert [type(error) for error in late] == [Abandoned]
    assert [e for e in its.events() if e["type"] == "custom.late"] == []


def test_unknown_names_methods_threads_and_orgs(world: Worlds) -> None:
    its = settled(world("unknown"), lambda state, request: 1)
    with pytest.raises(NotFound):
        ask(its, name="other")
    with pytest.raises(MethodNotAllowed) as refused:
        ask(its, replace(CALL, method="GET"))
    assert refused.value.allow == ("POST",)
    for thread in ("thr_x", "thr_" + "a" * 20):
        with pytest.raises(NotFound):
            ask(its, thread=thread)
    its.principal = replace(its.principal, org="org_other")
    with pytest.raises(NotFound):
        ask(its)


def test_a_full_queue_is_refused_in_words(world: Worlds) -> None:
    def answer(state: ThreadState, request: Request) -> Any:
        try:
            while True:
                state.queue_message("more")
        except Refused as refused:
            return str(refused)

    its = settled_in(world("full"), endpoints=[one(answer, timeout_seconds=25)])
    its.create({"script": []})
    head = its.head
    after = replace(head, pending=QUEUED_COMMANDS)
    full = Commit(ref=its.thread, before=head, after=after, now=its.clock.now(), write="full")
    with its.tap.outside():
        assert isinstance(its.house.store.commit(full), Committed)
    assert ask(its).body == "The queue of this thread is full."
