"""Tools that code queues: each is a step of the run that takes it in, in its place in the queue, once whatever dies."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.commands import Delivery, PatchMessage
from chalicelib.domain.errors import ThreadBusy
from chalicelib.engine.hooks import Hooks
from chalicelib.engine.state import Refused, ThreadState
from chalicelib.engine.workers import Flag
from tests.crash.audit import audit, told
from tests.crash.faults import FAULTS
from tests.crash.guests import HELPER, SCOUT
from tests.crash.residents import POINTS, results, rows, runs, said, settled_in, struck, wrong
from tests.crash.scenarios import AGAIN, KIDS, call, step, text
from tests.crash.tap import Moment
from tests.crash.world import World

Worlds = Callable[[str], World]
DONE = [step(text("Done."))] * AGAIN
TWO = {name: {"on_retry": "again"} for name in ("first", "second")}


def answers(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
    """What every tool answers, unless it is told to queue another one."""
    if "queue" in arguments:
        return state.queue_tool(*arguments["queue"]).rpartition("_")[2]
    return {"got": dict(arguments)}


def outside(world: World) -> ThreadState:
    """The thread as an endpoint has it."""
    house = world.house
    opened = house.store.open(world.thread, about=True)
    assert opened.head is not None
    assert opened.about is not None
    agent = house.agents[opened.head.agent]
    return house.outside.state(
        world.thread, opened.head, opened.about, agent, token=house.appender.ids.token(), again=False, cancel=Flag()
    )


def queue(world: World, name: str = "first", **arguments: Any) -> str:
    """Code outside of any run queues a tool."""
    with world.tap.outside():
        return outside(world).queue_tool(name, arguments)


def opened(world: World, *script: Mapping[str, Any], agent: str = "scripted", **tools: Mapping[str, Any]) -> World:
    """A thread that has not been spoken to: its first run has ended without a step."""
    world.create({"script": [*script, *DONE], "tools": {**TWO, **tools}}, agent=agent)
    world.cancel()
    world.settle()
    return world


def shown(world: World) -> list[dict[str, Any]]:
    with world.tap.outside():
        page = world.house.read.messages(
            world.principal, world.thread.id, descending=False, silent=True, limit=100, position=None
        )
    return page.items


# -- in a run


def inside(world: World) -> World:
    """A run whose tool queues another tool."""
    its = settled_in(world, answers)
    queues = step(*call("c1", "first", '{"queue": ["second", {"n": 5}]}'), stop="tool_calls")
    its.create({"script": [queues, *DONE], "tools": TWO})
    its.rest()
    return its


INSIDE = [("user", "hello"), ("assistant", ""), ("tool", ""), ("assistant", ""), ("tool", ""), ("assistant", "Done.")]


def test_a_tool_queues_another_and_the_model_goes_on_from_its_result(world: Worlds) -> None:
    its = inside(world("inside"))
    assert results(its) == {"c1": ("ok", "c2"), "queued-2": ("ok", {"got": {"n": 5}})}
    assert said(its) == INSIDE
    asked = shown(its)[3]
    assert (asked["id"], asked["run_id"]) == (its.thread.user_message(2), its.thread.run(1))
    assert asked["content"] == [
        {"type": "tool_call", "name": "second", "arguments": {"n": 5}, "call_id": "queued-2"},
    ]
    assert [m["role"] for m in its.guests.requests[-1].messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert (len(its.guests.requests), runs(its)) == (2, [("completed", "stop_on_response", 3)])
    assert [row["message_id"] for row in rows(its, "tool")] == [its.thread.answer(1, 1), asked["id"]]
    types = [event["type"] for event in its.events() if event["data"].get("call_id") == "queued-2"]
    assert types == ["tool.started", "tool.completed"]
    assert wrong(audit(its)) == []


@pytest.mark.parametrize("every", POINTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_tool_queued_in_a_run_runs_once_whatever_dies(world: Worlds, fault: str, every: int) -> None:
    clean = inside(world("inside: clean"))
    for point in struck(clean, fault, every):
        its = world(f"inside: {fault} at {point}")
        FAULTS[fault](its.tap, point)
        inside(its)
        assert said(its) == INSIDE, its.seed
        assert results(its)["queued-2"] == ("ok", {"got": {"n": 5}}), its.seed
        assert wrong(audit(its)) == [], its.seed


def test_what_no_tool_can_play_is_refused_where_it_is_queued(world: Worlds) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        with pytest.raises(LookupError, match="no tool named 'third'"):
            state.queue_tool("third")
        with pytest.raises(ValueError, match="n: 'x' is not of type 'integer'"):
            state.queue_tool("second", {"n": "x"})
        with pytest.raises(ValueError, match="the limit is"):
            state.queue_tool("first", {"much": "x" * 300_000})
        return "refused"

    its = settled_in(world("refused"), use)
    counts = {"properties": {"n": {"type": "integer"}}}
    script = [step(*call("c1", "first"), stop="tool_calls"), *DONE]
    its.create({"script": script, "tools": {"first": {}, "second": {"parameters": counts}}})
    its.rest()
    assert results(its) == {"c1": ("ok", "refused")}
    assert (len(said(its)), audit(its)) == (4, [])


# -- from outside


def test_it_starts_a_run_of_a_thread_at_rest_and_no_model_is_asked_for_it(world: Worlds) -> None:
    its = opened(settled_in(world("outside"), answers))
    message = queue(its, n=7)
    (waits,) = [m for m in shown(its) if m["id"] == message]
    assert (waits["role"], waits["run_id"]) == ("assistant", its.thread.run(3))
    its.settle()
    assert runs(its)[-1] == ("completed", "stop_on_response", 2)
    assert results(its) == {"queued-3": ("ok", {"got": {"n": 7}})}
    assert said(its)[1:] == [("assistant", ""), ("tool", ""), ("assistant", "Done.")]
    assert [m["id"] for m in its.guests.requests[0].messages][1] == message
    assert (len(its.guests.requests), wrong(audit(its))) == (1, [])


@pytest.mark.parametrize("every", POINTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_that_it_starts_is_played_once_whatever_dies(world: Worlds, fault: str, every: int) -> None:
    def play(its: World) -> World:
        queue(opened(settled_in(its, answers)), n=7)
        its.rest()
        return its

    clean = play(world("starts: clean"))
    begin = len(opened(settled_in(world("starts: opened"), answers)).tap.calls) + 1
    for point in struck(clean, fault, every, first=begin):
        its = world(f"starts: {fault} at {point}")
        FAULTS[fault](its.tap, point)
        play(its)
        assert told(its) == told(clean), its.seed
        assert wrong(audit(its)) == [], its.seed


def test_it_waits_its_turn_among_messages_and_is_taken_in_alone(world: Worlds) -> None:
    its = settled_in(world("order"), answers)

    def while_asked(count: int) -> None:
        if count == 1:
            its.meanwhile(lambda: [its.post("one"), queue(its, n=1), queue(its, "second"), its.post("two")])

    its.guests.while_asked = while_asked
    its.create({"script": DONE, "tools": TWO})
    its.settle()
    assert said(its)[1:] == [
        *(("assistant", "Done."), ("user", "one"), ("assistant", ""), ("tool", ""), ("assistant", ""), ("tool", "")),
        *(("user", "two"), ("assistant", "Done.")),
    ]
    assert (len(its.guests.requests), len(runs(its)), wrong(audit(its))) == (2, 1, [])


def test_a_pending_one_is_shown_as_queued(world: Worlds) -> None:
    its, seen = settled_in(world("pending"), answers), []

    def while_asked(count: int) -> None:
        if count == 1:
            its.meanwhile(lambda: queue(its, n=1))
            seen.extend(shown(its))

    its.guests.while_asked = while_asked
    its.create({"script": DONE, "tools": TWO})
    its.settle()
    waits = seen[-1]
    assert (waits["role"], waits["metadata"]) == ("assistant", {"queued": True})
    assert [event["data"]["message"] for event in its.events() if event["type"] == "message.queued"] == [waits]


def test_where_the_run_takes_no_further_step_it_starts_the_next_one(world: Worlds) -> None:
    its = settled_in(world("limit"), answers)
    its.house.agents["scripted"] = replace(its.house.agents["scripted"], max_steps=2)
    queues = step(*call("c1", "first", '{"queue": ["second", {}]}'), stop="tool_calls")
    its.create({"script": [queues, queues, *DONE], "tools": TWO})
    its.settle()
    assert runs(its)[0] == ("completed", "max_steps", 2)
    assert len(its.guests.requests) == 1
    queue(its)
    its.settle()
    assert (runs(its)[1], wrong(audit(its))) == (("completed", "max_steps", 2), [])


def test_one_that_is_left_by_a_run_at_its_last_step_is_promoted(world: Worlds) -> None:
    its = settled_in(world("promoted"), answers)
    its.house.agents["scripted"] = replace(its.house.agents["scripted"], max_steps=1)

    def while_asked(count: int) -> None:
        if count == 1:
            its.meanwhile(lambda: [queue(its, n=1), its.post("then")])

    its.guests.while_asked = while_asked
    its.create({"script": DONE, "tools": TWO})
    its.settle()
    assert [reason for _, reason, _ in runs(its)] == ["max_steps", "max_steps", "stop_on_response"]
    assert [role for role, _ in said(its)] == ["user", "assistant", "assistant", "tool", "user", "assistant"]
    assert wrong(audit(its)) == []


# -- what it meets when its time has come


def test_what_fits_no_longer_when_its_time_has_come_is_an_error_for_the_model(world: Worlds) -> None:
    its = opened(settled_in(world("gone"), answers))
    queue(its, n=1)
    its.house.agents["scripted"] = replace(its.house.agents["scripted"], tools=(), subagents=(), child_sessions=False)
    its.settle()
    assert results(its) == {"queued-3": ("error", "There is no tool named 'first'. Known tools: none.")}
    assert (runs(its)[-1], wrong(audit(its))) == (("completed", "stop_on_response", 2), [])
    assert [event["type"] for event in its.events() if event["type"] == "tool.started"] == []


ASK = {"asks": {"question": "Which?", "options": ["a"]}, "on_retry": "again"}
ASKS = step(*call("c1", "ask"), stop="tool_calls")


def test_it_decides_nothing_for_people_and_a_message_behind_it_still_does(world: Worlds) -> None:
    its = world("asked")
    its.create({"script": [ASKS, *DONE], "tools": {"ask": ASK, "first": {"returns": "one"}}})
    its.settle()
    queue(its)
    its.settle()
    assert (its.head.waiting, its.head.pending) == ("awaiting_human", 1)
    its.post("never mind")
    its.settle()
    assert results(its) == {"c1": ("refused", results(its)["c1"][1]), "queued-2": ("ok", "one")}
    assert [role for role, _ in said(its)] == ["user", "assistant", "tool", "assistant", "tool", "user", "assistant"]
    assert wrong(audit(its)) == []


def test_an_answer_comes_first_where_both_wait(world: Worlds) -> None:
    its = world("asked")
    its.create({"script": [ASKS, *DONE], "tools": {"ask": ASK, "first": {"returns": "one"}}})

    def while_asked(count: int) -> None:
        if count == 1:
            its.meanwhile(lambda: queue(its))

    its.guests.while_asked = while_asked
    its.settle()
    assert its.head.waiting == "awaiting_human"
    its.answer("a")
    its.settle()
    assert results(its)["queued-2"] == ("ok", "one")
    assert (its.head.pending, wrong(audit(its))) == (0, [])


def test_it_waits_for_a_person_where_its_tool_needs_one(world: Worlds) -> None:
    its = opened(world("allowed"), pay={"returns": "paid", "requires_approval": True, "on_retry": "again"})
    queue(its, "pay")
    its.settle()
    assert its.head.waiting == "awaiting_human"
    its.decide(approve=True)
    its.settle()
    assert (results(its), wrong(audit(its))) == ({"queued-3": ("ok", "paid")}, [])


def test_a_tool_that_the_turn_plays_itself_makes_its_child(world: Worlds) -> None:
    its = opened(world("child"), agent="boss")
    queue(its, HELPER.name, **KIDS[0])
    its.settle()
    assert [outcome for outcome, _ in results(its).values()] == ["ok"]
    assert "kid 1 is done" in json.dumps(results(its)["queued-3"][1])
    assert (len(its.children()), wrong(audit(its))) == (1, [])


def test_after_a_handoff_it_is_a_tool_of_the_agent_that_plays(world: Worlds) -> None:
    its = world("handed over")
    its.create({"script": [step(*call("h1", "to_desk"), stop="tool_calls"), *DONE]}, agent="front")
    its.settle()
    with its.tap.outside(), pytest.raises(LookupError):
        outside(its).queue_tool("to_desk")
    queue(its, "back")
    its.settle()
    assert (its.head.player, results(its)["queued-2"][0]) == ("front", "ok")
    assert wrong(audit(its)) == []


def test_a_side_calls_it_and_the_other_is_not_shown_it(world: Worlds) -> None:
    its = world("sides")
    its.create({"script": [step(text("a"))] * AGAIN}, agent="duel")
    its.cancel()
    its.settle()
    message = queue(its, "reply", text="I say this.")
    its.settle()
    (stands,) = [m for m in shown(its) if m["id"] == message]
    assert (stands["side"], results(its)["queued-3"][0]) == ("side_a", "ok")
    first, *_ = its.guests.requests
    assert [m["content"][0].get("text") for m in first.messages] == ["hello", "I say this."]
    assert wrong(audit(its)) == []


def test_a_human_side_leaves_it_to_the_other(world: Worlds) -> None:
    its = world("sides")
    its.create({"script": [step(text("a"))] * AGAIN}, agent="talk")
    its.settle()
    queue(its, "reply", text="By a tool.")
    its.settle()
    assert runs(its)[-1][:2] == ("completed", "awaiting_human")
    assert (said(its)[-1], wrong(audit(its))) == (("assistant", "By a tool."), [])


def test_a_stop_tool_that_is_queued_ends_the_run(world: Worlds) -> None:
    its = world("stops")
    its.create({"script": DONE}, agent="replier")
    its.cancel()
    its.settle()
    queue(its, "reply", text="Settled.")
    its.settle()
    assert (runs(its)[-1], len(its.guests.requests)) == (("completed", "stop_tool", 1), 0)
    assert (said(its)[-1], wrong(audit(its))) == (("assistant", "Settled."), [])


def test_hooks_of_tools_see_it_and_hooks_of_messages_do_not(world: Worlds) -> None:
    seen: list[Any] = []

    def created(state: ThreadState, message: dict[str, Any]) -> None:
        seen.append(message["role"])

    def succeeded(state: ThreadState, told: dict[str, Any], result: Any) -> Any:
        seen.append(told["call_id"])
        return {"changed": True}

    hooks = Hooks(before_create_message=created, after_tool_call_success=succeeded)
    its = opened(settled_in(world("hooks"), answers, hooks=hooks))
    seen.clear()
    queue(its)
    its.settle()
    assert (seen, results(its)) == (["queued-3", "assistant"], {"queued-3": ("ok", {"changed": True})})
    assert wrong(audit(its)) == []


# -- ends, edits, names


def test_one_that_is_cancelled_before_it_starts_stands_unanswered_and_the_model_is_shown_a_pair(world: Worlds) -> None:
    its = opened(settled_in(world("withdrawn"), answers))
    queue(its)
    its.cancel(3, key="two")
    its.post("go on")
    its.settle()
    assert (results(its), [status for status, _, _ in runs(its)]) == ({}, ["cancelled", "cancelled", "completed"])
    assert [m["role"] for m in its.guests.requests[-1].messages] == ["user", "assistant", "tool", "user"]
    assert wrong(audit(its)) == []


def test_a_cancel_that_comes_with_the_start_leaves_no_call_open(world: Worlds) -> None:
    its = opened(settled_in(world("cancelled"), answers))
    queue(its)
    its.tap.at(len(its.tap.calls) + 3, Moment.BEFORE, lambda: its.meanwhile(lambda: its.cancel(3, key="two")))
    its.settle()
    assert (runs(its)[-1][0], results(its), wrong(audit(its))) == ("cancelled", {}, [])


def test_everything_that_is_queued_is_taken_back(world: Worlds) -> None:
    its = opened(settled_in(world("stopped"), answers))
    its.post("hello again")
    queue(its)
    its.stop_everything()
    its.settle()
    assert sorted(role for role, _ in said(its)) == ["assistant", "user", "user"]
    assert (results(its), wrong(audit(its))) == ({}, [])


def test_an_edit_leaves_the_call_and_a_deletion_takes_its_result_along(world: Worlds) -> None:
    its = opened(settled_in(world("edited"), answers))
    message = queue(its)
    ask = PatchMessage(content=({"type": "text", "text": "By code."},), metadata=None)
    with its.tap.outside():
        with pytest.raises(ThreadBusy):
            its.house.edit.patch_message(its.principal, its.thread.id, message, ask)
    its.settle()
    with its.tap.outside():
        its.house.edit.patch_message(its.principal, its.thread.id, message, ask)
    assert [part["type"] for part in shown(its)[1]["content"]] == ["text", "tool_call"]
    assert wrong(audit(its)) == []
    with its.tap.outside():
        its.house.edit.delete_message(its.principal, its.thread.id, message)
    assert said(its) == [("user", "hello"), ("assistant", "Done.")]


def test_no_call_of_a_model_takes_its_name(world: Worlds) -> None:
    its = settled_in(world("names"), answers)
    its.create({"script": [step(*call("queued-2", "first"), stop="tool_calls"), *DONE], "tools": TWO})
    its.settle()
    queue(its, "second")
    its.settle()
    assert sorted(results(its)) == ["queued-2", "queued-2-1-1-2"]
    assert wrong(audit(its)) == []


def test_a_terminated_thread_and_a_missing_agent_refuse_it(world: Worlds) -> None:
    its = opened(world("refused"))
    state = outside(its)
    gone = replace(its.head, played_by="nobody")
    with its.tap.outside():
        lost = its.house.outside.state(
            its.thread,
            gone,
            its.house.store.open(its.thread, about=True).about or pytest.fail("no thread"),
            its.house.agents["scripted"],
            token="t",
            again=False,
            cancel=Flag(),
        )
        with pytest.raises(Refused, match="no agent named 'nobody'"):
            lost.queue_tool("first")
    its.terminate()
    with its.tap.outside(), pytest.raises(Refused):
        state.queue_tool("first")


def test_a_message_that_hooks_must_see_is_seen_though_a_tool_stands_before_it(world: Worlds) -> None:
    seen: list[str] = []

    def created(state: ThreadState, message: dict[str, Any]) -> None:
        if message["role"] == "user":
            seen.append(message["content"][0]["text"])

    its = settled_in(world("hooks"), answers, hooks=Hooks(before_create_message=created))

    def while_asked(count: int) -> None:
        if count == 1:
            its.meanwhile(lambda: [queue(its), its.post("two")])

    its.guests.while_asked = while_asked
    its.create({"script": DONE, "tools": TWO})
    its.settle()
    assert (seen, wrong(audit(its))) == (["hello", "two"], [])


def test_a_run_in_flight_takes_it_in_before_the_runs_that_are_queued(world: Worlds) -> None:
    its = opened(settled_in(world("behind"), answers))
    its.post("one", Delivery.ENQUEUE)
    its.post("two", Delivery.ENQUEUE)
    queue(its)
    its.settle()
    roles = [role for role, _ in said(its)]
    assert roles == ["user", "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert wrong(audit(its)) == []


# -- what a run that it starts writes before the call is taken up


def test_a_child_that_starts_at_once_leaves_the_call_in_its_place(world: Worlds) -> None:
    its = settled_in(world("an immediate child"), answers)
    kid, scout = its.house.agents["scripted"], replace(SCOUT, agent="kid")
    agents = {"kid": kid, "scripted": replace(kid, tools=lambda given: [*kid.tools_for(given), scout])}
    its.house.agents.update(agents)
    queue(opened(its), n=1)
    its.settle()
    assert results(its) == {"queued-3": ("ok", {"got": {"n": 1}})}
    assert [event["type"] for event in its.events()].count("child.completed") == 1
    assert (runs(its)[1][1], wrong(audit(its))) == ("stop_on_response", [])


def test_a_hook_of_the_new_thread_leaves_the_call_in_its_place(world: Worlds) -> None:
    def greets(state: ThreadState) -> None:
        state.inject_message("Welcome.", role="system")

    its = settled_in(world("a hook"), answers, hooks=Hooks(after_thread_created=greets))
    its.create({"script": DONE, "tools": TWO}, text=None)
    queue(its, n=1)
    its.settle()
    assert results(its) == {"queued-1": ("ok", {"got": {"n": 1}})}
    assert (runs(its)[0][1], wrong(audit(its))) == ("stop_on_response", [])
