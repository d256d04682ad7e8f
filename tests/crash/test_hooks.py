"""Hooks of a run: what they change is what is stored and shown; one that fails changes nothing; one that blocks ends
the run in words, whatever dies.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from chalicelib.domain.commands import Call, PatchMessage
from chalicelib.domain.errors import Forbidden
from chalicelib.engine.agent import Agent, DefinitionError
from chalicelib.engine.endpoints import endpoint
from chalicelib.engine.hooks import Blocked, Hook, Hooks
from chalicelib.engine.state import Refused, ThreadState
from tests.crash.audit import audit, folded, log_rows
from tests.crash.faults import FAULTS
from tests.crash.residents import POINTS, result, rows, run_tool, said, settled_in, struck, with_secrets, wrong
from tests.crash.scenarios import AGAIN, KIDS, call, spawning, step, text
from tests.crash.world import World

Worlds = Callable[[str], World]
Message = dict[str, Any]


def loud(state: ThreadState, message: Message) -> Message:
    """Every text in capitals, and a mark."""
    content = [{**p, "text": p["text"].upper()} if p["type"] == "text" else p for p in message["content"]]
    return {**message, "content": content, "metadata": {"loud": message["role"]}}


def raises(*given: Any) -> Any:
    """A hook that fails."""
    raise RuntimeError("no hook today")


def blocks(*given: Any) -> Any:
    """A hook that does not want this."""
    raise Blocked("not in this house")


def hooks_of(names: Iterable[str], hook: Hook) -> Hooks:
    """The same hook in several places."""
    given: dict[str, Any] = dict.fromkeys(names, hook)
    return Hooks(**given)


def ends(world: World) -> list[tuple[str, str, Any]]:
    """How each run ended."""
    return [(r["status"], r["reason"], (r.get("error") or {}).get("detail")) for r in folded(world).runs.values()]


def one(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
    """A tool that answers at once."""
    return 1


def test_messages_are_stored_and_shown_as_the_hook_leaves_them(world: Worlds) -> None:
    its = world("loud")

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        its.meanwhile(lambda: its.post("and then"))
        return "quiet"

    settled_in(its, use, hooks=Hooks(before_create_message=loud))
    run_tool(its)
    expected = [("user", "HELLO"), ("assistant", ""), ("tool", ""), ("user", "AND THEN"), ("assistant", "DONE.")]
    assert said(its) == expected
    users = [m["content"][0]["text"] for m in its.guests.requests[-1].messages if m["role"] == "user"]
    assert users == ["HELLO", "AND THEN"]
    assert Counter(event["type"] for event in its.events())["message.updated"] == 1
    assert audit(its) == []


@pytest.mark.parametrize("every", POINTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_hooks_that_change_messages_survive_a_death_at_any_call(world: Worlds, fault: str, every: int) -> None:
    def notes(state: ThreadState, message: Message) -> None:
        state.emit("created", {"id": message["id"]})
        state.log({"name": "created"})

    def told(world: World) -> list[str]:
        return [e["data"]["id"].rpartition("_")[2] for e in world.events() if e["type"] == "custom.created"]

    hooks = Hooks(before_create_message=loud, after_create_message=notes)
    clean = settled_in(world("hooks: clean"), one, hooks=hooks)
    run_tool(clean)
    assert told(clean) == ["c1", "r1s1", "r1s2"]
    for point in struck(clean, fault, every):
        its = settled_in(world(f"hooks: {fault} at {point}"), one, hooks=hooks)
        FAULTS[fault](its.tap, point)
        run_tool(its)
        assert said(its) == said(clean), its.seed
        assert Counter(told(its)) == {"c1": 1, "r1s1": 1, "r1s2": 1}, its.seed
        assert wrong(audit(its)) == [], its.seed


def test_entries_of_hooks_hang_on_the_newest_message(world: Worlds) -> None:
    def notes(state: ThreadState, context: list[Message]) -> None:
        state.log({"name": "asked"})

    its = settled_in(world("anchors"), one, hooks=Hooks(prefilter_llm_history=notes))
    run_tool(its)
    with its.tap.outside():
        found = sorted(row["message_id"].rpartition("_")[2] for row in log_rows(its) if row["kind"] == "app")
    assert found == ["c1", "r1s1"]


def test_an_answer_that_does_not_fit_changes_nothing(world: Worlds) -> None:
    hooks = Hooks(
        filter_messages=lambda state, messages: [m for m in messages if m["role"] != "user"] + [{"id": "?"}],
        after_system_message=lambda state, prompt: f"{prompt}Be kind.",
    )
    its = settled_in(world("unfit"), hooks=hooks)
    run_tool(its)
    assert [m["role"] for m in its.guests.requests[-1].messages] == ["user", "assistant", "tool"]
    assert {request.system for request in its.guests.requests} == {"Be kind."}
    assert [row["error"] for row in rows(its, "handler")] == ["What it answered does not fit in its place."] * 2


def test_the_model_is_shown_what_the_hooks_leave_and_never_a_call_without_a_result(world: Worlds) -> None:
    def polite(state: ThreadState, messages: list[Message]) -> list[Message]:
        return [{**m, "content": [{"type": "text", "text": "hi"}]} if m["role"] == "user" else m for m in messages]

    hooks = Hooks(
        filter_messages=polite,
        prefilter_llm_history=lambda state, messages: [m for m in messages if m["role"] != "tool"],
    )
    its = settled_in(world("fit"), hooks=hooks)
    run_tool(its)
    shown = its.guests.requests[-1].messages
    assert [m["role"] for m in shown] == ["user", "assistant", "tool"]
    assert shown[0]["content"][0]["text"] == "hi"
    assert shown[2]["content"][0]["outcome"] == "aborted"
    assert said(its)[0] == ("user", "hello")


@pytest.mark.parametrize("fails", [False, True])
def test_results_are_stored_as_their_hooks_leave_them(world: Worlds, fails: bool) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        if fails:
            raise RuntimeError("broken")
        return {"raw": 1}

    hooks = Hooks(
        after_tool_call_success=lambda state, call, value: {"ok": value},
        after_tool_call_failure=lambda state, call, value: {"failed": value},
        before_store_tool_result=lambda state, call, value: {**value, "of": call["name"], "as": call["outcome"]},
    )
    its = settled_in(world("results"), use, hooks=hooks)
    run_tool(its)
    known = {"failed": "RuntimeError: broken"} if fails else {"ok": {"raw": 1}}
    outcome = "error" if fails else "ok"
    assert result(its) == (outcome, {**known, "of": "first", "as": outcome})
    assert audit(its) == []


ALL = (
    "after_thread_created",
    "after_system_message",
    "filter_messages",
    "prefilter_llm_history",
    "before_create_message",
    "after_create_message",
    "before_store_tool_result",
    "after_tool_call_success",
)


def test_hooks_that_raise_are_logged_and_the_data_goes_on_unchanged(world: Worlds) -> None:
    its = settled_in(world("raises"), one, hooks=hooks_of(ALL, raises))
    run_tool(its)
    outcome = (said(its), result(its), ends(its))
    failed = rows(its, "handler")
    assert {row["model"] for row in failed} == set(ALL)
    assert {(row["handler"], row["error"]) for row in failed} == {("hook", "RuntimeError: no hook today")}
    assert audit(its) == []
    plain = settled_in(world("plain"), one)
    run_tool(plain)
    assert outcome == (said(plain), result(plain), ends(plain))


@pytest.mark.parametrize("name", ALL)
def test_a_hook_that_blocks_ends_the_run_in_its_words(world: Worlds, name: str) -> None:
    its = settled_in(world("blocks"), one, hooks=hooks_of([name], blocks))
    run_tool(its)
    assert ends(its) == [("failed", "hook_blocked", "not in this house")]
    assert folded(its).status["state"] == "failed"
    assert [(row["model"], row["error"]) for row in rows(its, "handler")] == [(name, "Blocked: not in this house")]
    assert audit(its) == []


@pytest.mark.parametrize("every", POINTS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["before_create_message", "before_store_tool_result"])
def test_a_run_that_is_blocked_ends_once_whatever_dies(world: Worlds, name: str, fault: str, every: int) -> None:
    clean = settled_in(world(f"blocks: {name}"), one, hooks=hooks_of([name], blocks))
    run_tool(clean)
    for point in struck(clean, fault, every):
        its = settled_in(world(f"{name}: {fault} at {point}"), one, hooks=hooks_of([name], blocks))
        FAULTS[fault](its.tap, point)
        run_tool(its)
        assert ends(its) == [("failed", "hook_blocked", "not in this house")], its.seed
        assert wrong(audit(its)) == [], its.seed


def test_a_new_thread_is_said_before_its_first_step_and_not_again(world: Worlds) -> None:
    said_new: list[str] = []

    def greets(state: ThreadState) -> None:
        said_new.append(state.thread_id)
        state.inject_message("House rules.", role="system")
        state.write_file("/rules.txt", "be kind")

    its = settled_in(world("new"), hooks=Hooks(after_thread_created=greets))
    its.create({"script": [step(text("one"))] * AGAIN})
    its.settle()
    its.post("again")
    its.settle()
    assert said_new == [its.thread.id]
    assert "House rules." in str(its.guests.requests[0].messages)
    assert audit(its) == []


def test_a_hook_that_takes_too_long_is_given_up(world: Worlds) -> None:
    its = world("late")

    def sleeps(state: ThreadState, prompt: str) -> str:
        its.clock.sleep(6)
        state.wait(60)
        return "too late"

    settled_in(its, hooks=Hooks(after_system_message=sleeps))
    its.create({"script": [step(text("one"))] * AGAIN})
    its.settle()
    assert its.guests.requests[0].system == ""
    assert [row["error"] for row in rows(its, "handler")] == ["TimeoutError: no result in 5 s"]
    assert audit(its) == []


async def _awaits(state: ThreadState, prompt: str) -> str:
    return "awaited"


def test_a_hook_may_be_a_coroutine(world: Worlds) -> None:
    its = settled_in(world("async"), hooks=Hooks(after_system_message=_awaits))
    its.create({"script": [step(text("one"))] * AGAIN})
    its.settle()
    assert its.guests.requests[0].system == "awaited"


def test_what_hooks_answer_and_say_holds_no_secret(world: Worlds) -> None:
    def tells(state: ThreadState, call: Any, value: Any) -> Any:
        return {"key": state.env["KEY"]}

    def fails(state: ThreadState, prompt: str) -> Any:
        raise RuntimeError(state.env["KEY"])

    hooks = Hooks(before_store_tool_result=tells, after_system_message=fails)
    its = with_secrets(settled_in(world("secrets"), hooks=hooks), KEY="hunter2-hunter2")
    run_tool(its)
    assert result(its) == ("ok", {"key": "[secret KEY]"})
    assert {row["error"] for row in rows(its, "handler")} == {"RuntimeError: [secret KEY]"}


def test_updates_pass_their_hooks_inside_and_outside_of_runs(world: Worlds) -> None:
    seen: list[str] = []

    def before(state: ThreadState, message: Message, change: dict[str, Any]) -> dict[str, Any]:
        return {"content": f"{message['content'][0]['text']} -> {change['content']}"}

    def after(state: ThreadState, message: Message) -> None:
        seen.append(message["content"][0]["text"])

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        return state.update_message(state.get_messages()[0]["id"], "new")["content"][0]["text"]

    @endpoint(method="POST", name="it")
    def outside(state: ThreadState, request: Any) -> Any:
        return use(state, {})

    hooks = Hooks(before_update_message=before, after_update_message=after)
    its = settled_in(world("updates"), use, hooks=hooks, endpoints=[outside])
    run_tool(its)
    assert result(its) == ("ok", "hello -> new")
    with its.tap.outside():
        request = Call(method="POST", query={}, headers={}, body=None)
        its.house.endpoints.call_endpoint(its.principal, its.thread.id, "it", request)
    assert seen == ["hello -> new", "hello -> new -> new"]
    assert audit(its) == []


def test_an_update_that_a_hook_blocks_ends_the_run(world: Worlds) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        with pytest.raises(Refused):
            state.update_message(state.get_messages()[0]["id"], "x")
        return "refused"

    its = settled_in(world("blocked update"), use, hooks=Hooks(before_update_message=blocks))
    run_tool(its)
    assert ends(its) == [("failed", "hook_blocked", "not in this house")]
    assert said(its)[0] == ("user", "hello")
    assert audit(its) == []


def test_an_edit_by_a_client_passes_the_hooks_too(world: Worlds) -> None:
    def before(state: ThreadState, message: Message, change: dict[str, Any]) -> Any:
        words = change["content"][0]["text"]
        if words == "bad":
            raise Blocked("not like that")
        if words == "odd":
            raise RuntimeError("odd")
        state.emit("edited")
        return {"metadata": {"was": message["content"][0]["text"]}}

    its = settled_in(world("patch"), hooks=Hooks(before_update_message=before, after_update_message=raises))
    run_tool(its)
    first = its.thread.user_message(1)

    def patch(words: str) -> Any:
        ask = PatchMessage(content=({"type": "text", "text": words},))
        with its.tap.outside():
            return its.house.edit.patch_message(its.principal, its.thread.id, first, ask)

    with pytest.raises(Forbidden, match="not like that"):
        patch("bad")
    assert said(its)[0] == ("user", "hello")
    assert patch("better")["metadata"] == {"was": "hello"}
    assert patch("odd")["metadata"] == {"was": "hello"}
    assert said(its)[0] == ("user", "odd")
    failed = [(row["model"], row["error"]) for row in rows(its, "handler")]
    assert ("before_update_message", "RuntimeError: odd") in failed
    assert ("after_update_message", "RuntimeError: no hook today") in failed
    assert audit(its) == []


def test_hooks_cost_no_call_of_their_own(world: Worlds) -> None:
    costs: list[list[str]] = []
    for hooks in (Hooks(), Hooks(filter_messages=lambda state, messages: messages, before_create_message=loud)):
        its = settled_in(world("cost"), hooks=hooks)
        run_tool(its)
        costs.append(its.tap.calls[:])
    assert costs[0] == costs[1]


def test_calls_of_an_answer_stay_whatever_a_hook_makes_of_its_words(world: Worlds) -> None:
    def silent(state: ThreadState, message: Message) -> Message:
        return {**message, "content": [{"type": "text", "text": "..."}]}

    its = settled_in(world("calls"), hooks=Hooks(before_create_message=silent))
    script = [step(text("I ask."), *call("c1", "first"), stop="tool_calls"), *[step(text("Done."))] * AGAIN]
    its.create({"script": script, "tools": {"first": {"on_retry": "again"}}})
    its.settle()
    kinds = [[part["type"] for part in m["content"]] for m in folded(its).messages]
    assert kinds == [["text"], ["text", "tool_call"], ["tool_result"], ["text"]]
    assert audit(its) == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Hooks(filter_messages=5), "hooks: filter_messages must be a function, not 5"),  # type: ignore[arg-type]
        (lambda: Hooks(timeout_seconds=31), "timeout_seconds must be above 0 and at most 30"),
        (lambda: Agent(name="a", hooks={}), "agent a: hooks: .* is none; write Hooks"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_definition_names_field_and_fix(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        make()


def test_the_hook_of_a_new_subagent_sees_its_row(world: Worlds) -> None:
    seen: list[dict[str, Any]] = []
    hooks = Hooks(after_subagent_created=lambda state, row: seen.append({**row, "children": len(state.children)}))
    its = settled_in(world("a subagent"), hooks=hooks)
    its.create({"script": [spawning(KIDS[0]), *[step(text("I see."))] * 8]})
    its.settle()
    mine = [row for row in seen if row["children"]]
    assert [(row["reference_id"], row["name"], row["status"]) for row in mine] == [("sub-1-1-1", "kid 1", "running")]
