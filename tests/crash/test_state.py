"""What code of a run does with its thread, under faults: each message, event and effect stands once, whatever dies."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from chalicelib.engine.state import ThreadState
from tests.crash.audit import audit
from tests.crash.faults import FAULTS
from tests.crash.residents import POINTS, result, run_tool, said, settled_in, struck, with_secrets, wrong
from tests.crash.world import World

Worlds = Callable[[str], World]


def _speaks(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
    """Places two messages, tells an event, and queues what a user could have said."""
    state.inject_message("Remember the milk.", role="system")
    state.emit("progress", {"half": True})
    queued = state.queue_message("And then?")
    state.inject_message("A quiet note.", silent=True)
    return queued.rpartition("_")[2]


SAID = [
    ("user", "hello"),
    ("assistant", ""),
    ("tool", ""),
    ("system", "Remember the milk."),
    ("user", "A quiet note."),
    ("user", "And then?"),
    ("assistant", "Done."),
]


def test_what_a_tool_places_is_seen_by_the_next_model_step(world: Worlds) -> None:
    its = settled_in(world("speaks"), _speaks)
    run_tool(its)
    assert result(its) == ("ok", "c2")
    assert said(its) == SAID
    shown = [[part.get("text") for part in m["content"]] for m in its.guests.requests[-1].messages]
    assert [["Remember the milk."], ["A quiet note."], ["And then?"]] == shown[-3:]
    (told,) = [e for e in its.events() if e["type"] == "custom.progress"]
    assert (told["data"], told["run_id"], told["attempt"]) == ({"half": True}, its.thread.run(1), 1)
    assert wrong(audit(its)) == []


@pytest.mark.parametrize("every", POINTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_tool_that_dies_anywhere_and_runs_again_says_each_thing_once(world: Worlds, fault: str, every: int) -> None:
    clean = settled_in(world("speaks: clean"), _speaks)
    run_tool(clean)
    for point in struck(clean, fault, every):
        its = settled_in(world(f"speaks: {fault} at {point}"), _speaks)
        FAULTS[fault](its.tap, point)
        run_tool(its)
        assert sorted(said(its)) == sorted(SAID), its.seed
        kinds = Counter(e["type"] for e in its.events())
        assert (kinds["custom.progress"], kinds["message.queued"]) == (1, 1), its.seed
        assert wrong(audit(its)) == [], its.seed


def test_notes_that_tell_and_place_cost_no_call_of_their_own(world: Worlds) -> None:
    def tells(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        state.inject_message("one")
        state.emit("two")
        return "done"

    costs: list[Counter[str]] = []
    for use in (lambda state, arguments: "done", tells):
        its = settled_in(world("costs"), use)
        run_tool(its)
        costs.append(Counter(its.tap.calls))
    assert costs[0] == costs[1]


def test_an_attempt_that_has_lost_its_lease_tells_and_places_nothing(world: Worlds) -> None:
    its = world("hung")
    seen: list[str] = []

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        state.inject_message("hung" if not seen else "again")
        state.emit("who", {"is": "hung" if not seen else "again"})
        if not seen:
            seen.append("hung")
            with its.tap.outside():
                now = its.clock.now() + 40_000_000
                other = its.process(salt="other").store
                other.take(its.thread, now=now, until=now + 30_000_000, nonce="other", takeover=True)
            its.clock.sleep(40)
        return "done"

    settled_in(its, use)
    run_tool(its)
    assert ("user", "again") in said(its)
    assert ("user", "hung") not in said(its)
    assert [e["data"] for e in its.events() if e["type"] == "custom.who"] == [{"is": "again"}]


def test_a_message_is_found_and_changed_by_its_id(world: Worlds) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        first, *_ = state.get_messages()
        body = state.update_message(first["id"], "goodbye", {"edited": True})
        with pytest.raises(LookupError):
            state.update_message("msg_x")
        with pytest.raises(ValueError, match="content"):
            state.update_message(first["id"], [])
        return [body["content"][0]["text"], state.get_messages(before=first["place"])]

    its = settled_in(world("changes"), use)
    run_tool(its)
    assert result(its) == ("ok", ["goodbye", []])
    assert said(its)[0] == ("user", "goodbye")
    assert its.guests.requests[-1].messages[0]["content"][0]["text"] == "goodbye"
    assert wrong(audit(its)) == []


def test_a_window_of_messages_has_places_and_a_bound(world: Worlds) -> None:
    seen: list[Any] = []

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        newest = state.get_messages(limit=2)
        seen.extend([[m["place"] for m in newest], [m["role"] for m in state.get_messages()]])
        for limit in (0, 51, True):
            with pytest.raises(ValueError, match="limit"):
                state.get_messages(limit=limit)
        seen.append([row["kind"] for row in state.get_logs()])
        return state.status()["state"]

    its = settled_in(world("window"), use)
    run_tool(its)
    assert result(its) == ("ok", "running")
    assert seen == [[2], ["user", "assistant"], ["llm"]]


@pytest.mark.parametrize(
    "bad",
    [
        lambda state: state.emit("no spaces"),
        lambda state: state.emit("much", "x" * 31 * 1024),
        lambda state: state.inject_message("x", role="tool"),
        lambda state: state.inject_message([{"type": "text"}]),
        lambda state: state.inject_message("x" * 257 * 1024),
        lambda state: state.queue_message([]),
        lambda state: state.queue_message("x", {"m": "x" * 5000}),
        lambda state: state.invoke_tool("first", {"x": 1}) and state.get_logs(before="log_x"),
    ],
)
def test_what_is_no_good_is_a_value_error_and_leaves_nothing(world: Worlds, bad: Callable[[ThreadState], Any]) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        if arguments:
            return "inner"
        with pytest.raises(ValueError, match=r".+"):
            bad(state)
        return "refused"

    its = settled_in(world("bad"), use)
    run_tool(its)
    assert result(its) == ("ok", "refused")
    assert len(said(its)) == 4
    assert audit(its) == []


def test_a_tool_runs_another_tool_inside_itself(world: Worlds) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        return {"deep": arguments["n"]} if "n" in arguments else state.invoke_tool("first", {"n": 1})

    its = settled_in(world("invokes"), use)
    run_tool(its)
    assert result(its) == ("ok", {"deep": 1})


def test_the_context_is_shared_within_an_execution_and_the_user_is_read(world: Worlds) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        state.context["n"] = state.context.get("n", 0) + 1
        return [state.context["n"], state.user(), state.terminated]

    its = settled_in(world("context"), use)
    run_tool(its)
    assert result(its) == ("ok", [1, None, False])


class Panic(BaseException):
    """What native code raises: no Exception."""


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt("stop"), Panic("index out of range")], ids=repr)
def test_whatever_a_tool_raises_is_its_result(world: Worlds, error: BaseException) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        raise error

    its = settled_in(world("raises"), use)
    run_tool(its)
    assert result(its) == ("error", f"{type(error).__name__}: {error}")
    assert said(its)[-1] == ("assistant", "Done.")


SECRET = "hunter2-hunter2"


@pytest.mark.parametrize("fails", [False, True])
def test_a_secret_reaches_no_model_no_log_and_no_event(world: Worlds, fails: bool) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        secret = state.env["KEY"]
        state.log({"name": "sent", "request": {secret: f"key={secret}"}})
        state.emit("sent", {"key": secret})
        state.inject_message(f"the key is {secret}")
        state.queue_message(f"use {secret}", {"key": secret})
        state.set_value("key", secret)
        if fails:
            raise RuntimeError(f"refused {secret}")
        return {"key": secret, "city": state.env["CITY"]}

    its = with_secrets(settled_in(world("secrets"), use), KEY=SECRET)
    run_tool(its)
    kept = "RuntimeError: refused [secret KEY]" if fails else {"key": "[secret KEY]", "city": "Lisbon"}
    assert result(its)[1] == kept
    with its.tap.outside():
        table = its.cloud.table.client.scan(TableName=its.cloud.table.name)["Items"]
    assert SECRET not in str(table)
    assert SECRET not in str([request.messages for request in its.guests.requests])
    assert its.house.durable.get_value(its.principal, its.thread.id, "key") == "[secret KEY]"
