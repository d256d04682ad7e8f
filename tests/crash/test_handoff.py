"""A thread that is handed over: who plays from then on, with what, until when; and which handoffs are refused."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.commands import CreateRun, Delivery
from chalicelib.engine.agent import Agent
from chalicelib.engine.handoff import Handoff
from chalicelib.engine.hooks import Hooks
from chalicelib.engine.prompts import Prompt, Side
from chalicelib.ports import ModelRequest
from tests.crash.audit import audit, told
from tests.crash.residents import results
from tests.crash.scenarios import AGAIN, HANDS_BACK, HANDS_OVER, REPLIES, SCENARIOS, call, players, step, text, tools
from tests.crash.tap import Moment
from tests.crash.world import World

Worlds = Callable[[str], World]
TO_DESK = step(*call("h1", "to_desk"), stop="tool_calls")
SO = [step(text("So."))] * AGAIN


def _played(world: World, *script: Mapping[str, Any], agent: str = "front", **arguments: Any) -> World:
    world.create({"script": [*script, *SO], **arguments}, agent=agent)
    world.settle()
    return world


def _prompts(world: World) -> list[str]:
    return [request.system for request in world.guests.requests]


def _offered(request: ModelRequest) -> set[str]:
    return {tool.name for tool in request.tools}


def _runs(world: World) -> list[Any]:
    return list(told(world)["runs"].values())


def _shown(world: World) -> Any:
    with world.tap.outside():
        return world.house.read.thread(world.principal, world.thread.id, frozenset())


def test_the_other_agent_plays_with_what_is_its_own_until_it_hands_back(world: Worlds) -> None:
    at = world("handed over")
    SCENARIOS["handed over and back"].play(at)
    assert _prompts(at) == ["The front.", "The desk.", "The desk.", "The front."]
    assert [request.model for request in at.guests.requests] == [
        *("scripted:script", "scripted:desk", "scripted:desk", "scripted:script")
    ]
    assert [_offered(request) == {"back"} for request in at.guests.requests] == [False, True, True, False]
    assert [dict(request.options) for request in at.guests.requests] == [{}, {"seed": 7}, {"seed": 7}, {}]
    assert players(at)["moves"] == [{"played_by": "desk"}, {"played_by": "front"}]
    assert "played_by" not in _shown(at)
    assert audit(at) == []


def test_the_thread_shows_who_plays_it_and_the_model_reads_it(world: Worlds) -> None:
    at = _played(world("handed over"), TO_DESK)
    assert (_shown(at)["agent"], _shown(at)["played_by"]) == ("front", "desk")
    assert results(at)["h1"] == ("ok", "The agent desk has taken over this conversation and goes on from here.")
    assert audit(at) == []


def test_it_moves_with_the_last_result_of_the_step_and_not_before(world: Worlds) -> None:
    at = _played(world("handed over"), HANDS_OVER, tools=tools("again"))
    types = [(event["type"], event["data"].get("call_id")) for event in at.events()]
    moved = types.index(("thread.updated", None))
    assert types.index(("tool.completed", "h1")) < types.index(("tool.completed", "t1")) < moved
    assert types[moved - 1][0] == "message.completed"


def test_a_cancel_before_the_step_has_ended_leaves_who_played(world: Worlds) -> None:
    at = world("handed over")
    asks = {"ask": {"asks": {"question": "Which?", "options": ["a"]}, "on_retry": "again"}}
    both = step(*call("h1", "to_desk"), *call("q1", "ask"), stop="tool_calls")
    _played(at, both, tools=asks)
    assert results(at)["h1"][0] == "ok"
    at.cancel()
    at.settle()
    assert (at.head.player, results(at)["q1"][0]) == ("front", "aborted")
    at.post("go on")
    at.settle()
    assert (_prompts(at)[-1], audit(at)) == ("The front.", [])


def test_a_model_that_was_asked_for_plays_the_whole_run_and_no_other(world: Worlds) -> None:
    at = world("handed over")
    at.create({"script": [step(text("Hello.")), TO_DESK, *SO]}, agent="front")
    at.settle()
    ask = CreateRun(content=({"type": "text", "text": "go"},), model="scripted:asked")
    at.request(lambda house: house.accept.create_run(at.principal, at.thread.id, ask, None))
    at.settle()
    at.post("and then?")
    at.settle()
    assert [(request.system, request.model) for request in at.guests.requests] == [
        ("The front.", "scripted:script"),
        ("The front.", "scripted:asked"),
        ("The desk.", "scripted:asked"),
        ("The desk.", "scripted:desk"),
    ]


def test_the_steps_of_a_run_count_whoever_took_them(world: Worlds) -> None:
    at = world("handed over")
    at.house.agents["desk"] = replace(at.house.agents["desk"], max_steps=1)
    _played(at, TO_DESK)
    assert (_runs(at)[0]["reason"], len(at.guests.requests)) == ("max_steps", 1)


def test_the_rules_of_a_side_do_not_look_at_the_step_that_handed_over(world: Worlds) -> None:
    at = world("handed over")
    both = step(*call("r0", "reply"), *call("h1", "to_replier"), stop="tool_calls")
    _played(at, both, REPLIES, tools={"reply": {"returns": {"text": "Not yet."}, "on_retry": "again"}})
    assert (_runs(at)[0]["reason"], len(at.guests.requests)) == ("stop_tool", 2)
    assert told(at)["messages"][-1]["content"] == [{"type": "text", "text": "That is settled."}]
    assert audit(at) == []


def test_hooks_stay_those_of_the_threads_own_agent(world: Worlds) -> None:
    at, seen = world("handed over"), []

    def system(state: Any, prompt: str) -> str:
        seen.append(prompt)
        return f"{prompt} Be kind."

    at.house.agents["front"] = replace(at.house.agents["front"], hooks=Hooks(after_system_message=system))
    _played(at, TO_DESK)
    assert (seen, _prompts(at)[-1]) == (["The front.", "The desk."], "The desk. Be kind.")


def test_it_waits_for_a_person_where_it_needs_one(world: Worlds) -> None:
    at = _played(world("handed over"), step(*call("h1", "ask_for_desk"), stop="tool_calls"))
    assert (at.head.waiting, at.head.player) == ("awaiting_human", "front")
    at.decide(approve=True)
    at.settle()
    assert (at.head.player, audit(at)) == ("desk", [])


def test_a_message_that_comes_meanwhile_joins_under_the_new_agent(world: Worlds) -> None:
    at = world("handed over")

    def while_asked(count: int) -> None:
        if count == 1:
            at.meanwhile(lambda: at.post("quick", Delivery.JOIN))

    at.guests.while_asked = while_asked
    _played(at, TO_DESK)
    last = at.guests.requests[-1]
    assert (last.system, last.messages[-1]["content"]) == ("The desk.", [{"type": "text", "text": "quick"}])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("to_nobody", "There is no agent named 'nobody'."),
        ("to_duel", "Agent duel has two sides, so it cannot take a thread over."),
        ("to_front", "Agent front plays this thread already."),
        ("to_guide", "Agent guide requires other arguments: arguments.city: 'city' is a required property"),
        ("to_broken", "The tools of agent broken could not be made: no tools today"),
    ],
)
def test_what_cannot_be_handed_over_is_that_calls_error_and_the_run_goes_on(
    world: Worlds, name: str, said: str
) -> None:
    at = _played(world("refused"), step(*call("h1", name), stop="tool_calls"))
    assert results(at) == {"h1": ("error", said)}
    assert (at.head.player, _prompts(at), _runs(at)[0]["status"]) == ("front", ["The front."] * 2, "completed")
    assert (players(at)["moves"], audit(at)) == ([], [])


def test_a_second_handoff_of_a_step_is_refused_after_an_approval_too(world: Worlds) -> None:
    two = step(*call("h1", "to_nobody"), *call("h2", "to_desk"), *call("h3", "ask_for_desk"), stop="tool_calls")
    at = _played(world("refused"), two)
    at.decide(approve=True)
    at.settle()
    assert [results(at)[name][0] for name in ("h1", "h2", "h3")] == ["error", "ok", "error"]
    assert results(at)["h3"][1] == "Another call of this step hands the thread over already."
    assert (at.head.player, audit(at)) == ("desk", [])


def test_a_session_cannot_hand_over_what_another_run_waits_for(world: Worlds) -> None:
    at = world("refused")
    placed = call("s1", "child_session_create", json.dumps({"idempotency_key": "a", "prompt": "do a"}))
    gathered = call("g", "child_session_gather", '{"ids": ["${s1.reference_id}"]}')
    _played(at, step(*placed, stop="tool_calls"), step(*gathered, stop="tool_calls"), TO_DESK)
    assert results(at)["h1"] == ("error", "A session cannot hand the thread over while another run waits for it.")
    assert (at.head.player, audit(at)) == ("front", [])


def test_an_agent_with_two_sides_cannot_hand_over(world: Worlds) -> None:
    at = world("refused")
    prompt = Prompt(name="p", model="scripted:script", tools=[Handoff(name="to_desk", agent="desk")])
    side = Side(prompt=prompt)
    at.house.agents["duel"] = Agent(name="duel", kind="dual_ai", side_a=side, side_b=side, max_turns=2)
    _played(at, TO_DESK, agent="duel")
    assert results(at)["h1"] == ("error", "An agent with two sides cannot hand its thread over.")


def test_an_optional_handoff_is_left_out_where_its_agent_does_not_exist(world: Worlds) -> None:
    at = _played(world("refused"))
    assert {"to_nobody", "to_desk"} <= _offered(at.guests.requests[0])
    assert "to_none" not in _offered(at.guests.requests[0])


def test_runs_fail_with_a_sentence_while_the_agent_is_gone_and_go_on_when_it_is_back(world: Worlds) -> None:
    at = _played(world("gone"), TO_DESK)
    desk = at.house.agents.pop("desk")
    at.post("hello?")
    at.settle()
    assert _runs(at)[-1]["error"]["detail"] == "The thread was handed over. There is no agent named 'desk'."
    at.house.agents["desk"] = desk
    at.post("and now?")
    at.settle()
    assert (_runs(at)[-1]["status"], _prompts(at)[-1]) == ("completed", "The desk.")


def test_a_run_fails_in_words_if_the_tools_of_the_new_agent_cannot_be_made_any_more(world: Worlds) -> None:
    at, made = world("gone"), []

    def twice(arguments: Mapping[str, Any]) -> list[Handoff]:
        made.append(arguments)
        if len(made) > 2:  # the handoff is looked at when it starts and when it is played
            raise RuntimeError("no more")
        return []

    at.house.agents["desk"] = replace(at.house.agents["desk"], tools=twice)
    _played(at, TO_DESK)
    assert _runs(at)[0]["error"]["detail"] == "The tools of agent desk could not be made: no more"
    assert (len(at.guests.requests), at.head.player, audit(at)) == (1, "desk", [])


def test_a_handoff_that_had_started_when_its_agent_went_is_an_error(world: Worlds) -> None:
    at = world("gone")
    at.create({"script": [TO_DESK, *SO]}, agent="front")
    at.tap.at(len(at.tap.calls) + 3, Moment.AFTER, at.tap.die)
    at.deliver()
    assert [event["data"]["call_id"] for event in at.events() if event["type"] == "tool.started"] == ["h1"]
    at.house.agents.pop("desk")
    at.rest()
    assert results(at) == {"h1": ("error", "There is no agent named 'desk'.")}
    assert (at.head.player, audit(at)) == ("front", [])


def test_a_handoff_back_is_made_by_the_one_that_plays(world: Worlds) -> None:
    at = _played(world("handed back"), TO_DESK, HANDS_BACK)
    assert (_prompts(at), at.head.played_by) == (["The front.", "The desk.", "The front."], "")
    assert audit(at) == []
