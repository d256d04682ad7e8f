"""Agents with sides: what each rule ends, whose turn follows, and what each side is shown."""

from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.engine.agent import Agent, Tool
from chalicelib.engine.prompts import Prompt, Side
from tests.crash.audit import audit, told
from tests.crash.scenarios import AGAIN, REPLIES, SCENARIOS, STOPS, call, spawning, step, text
from tests.crash.world import World

Worlds = Callable[[str], World]


def _run(played: World) -> Any:
    return list(told(played)["runs"].values())[-1]


@pytest.mark.parametrize(
    ("scenario", "status", "reason"),
    [
        ("a stop tool", "completed", "stop_tool"),
        ("a session that fails", "failed", "session_fail"),
        ("two sides", "completed", "session_stop"),
        ("turns are over", "completed", "max_turns"),
        ("a side replies by a tool", "completed", "session_stop"),
        ("a human side", "completed", "awaiting_human"),
    ],
)
def test_a_run_ends_as_the_rules_of_its_sides_say(world: Worlds, scenario: str, status: str, reason: str) -> None:
    played = world("sides")
    SCENARIOS[scenario].play(played)
    assert (_run(played)["status"], _run(played)["reason"]) == (status, reason)
    assert audit(played) == []


def test_a_stop_tool_says_its_response_property(world: Worlds) -> None:
    played = world("sides")
    played.create({"script": [REPLIES]}, agent="replier")
    played.settle()
    assert told(played)["messages"][-1]["content"] == [{"type": "text", "text": "That is settled."}]


def test_a_side_that_talks_on_stops_at_its_max_steps(world: Worlds) -> None:
    played = world("sides")
    played.create({"script": [step(text("on and on"))] * 6}, agent="replier")
    played.settle()
    assert (_run(played)["reason"], len(played.guests.requests)) == ("max_steps", 4)


def test_each_side_sees_itself_as_assistant_and_nothing_of_the_others_calls(world: Worlds) -> None:
    played = world("sides")
    played.create({"script": [REPLIES, step(text("b")), STOPS]}, agent="duel")
    played.settle()
    seen = [[message["role"] for message in request.messages] for request in played.guests.requests]
    assert seen == [["user"], ["user", "user"], ["user", "assistant", "tool", "assistant", "user"]]
    sides = [message.get("side") for message in told(played)["messages"]]
    assert sides == [None, "side_a", "side_a", "side_a", "side_b", "side_a", "side_a"]


def test_a_failed_stop_tool_stops_nothing(world: Worlds) -> None:
    played = world("sides")
    broken = step(*call("r0", "reply", "[]"), stop="tool_calls")
    played.create({"script": [broken, REPLIES]}, agent="replier")
    played.settle()
    outcomes = [event["data"]["outcome"] for event in played.events() if event["type"] == "tool.completed"]
    assert (outcomes, _run(played)["reason"]) == (["error", "ok"], "stop_tool")


def test_each_side_keeps_its_model_and_the_cost_knows_both(world: Worlds) -> None:
    played = world("sides")
    SCENARIOS["each side has its model"].play(played)
    cost = played.house.cost.thread_cost(played.principal, played.thread.id)
    lines = {line["model"]: (line["requests"], line["input_tokens"], line["output_tokens"]) for line in cost["models"]}
    assert lines == {"scripted:script": (2, 6, 4), "scripted:other": (2, 6, 4)}
    assert _run(played)["model"] == "scripted:script"


def test_the_sample_debate_is_played_by_the_offline_model(world: Worlds) -> None:
    played = world("sides")
    played.create({}, text="Count to 3 is all one needs.", agent="debate")
    played.settle()
    sides = [message["side"] for message in told(played)["messages"] if message["role"] == "assistant"]
    assert sides == ["side_a", "side_b"] * 3
    assert (_run(played)["status"], _run(played)["reason"]) == ("completed", "max_turns")


def test_the_tool_that_says_how_a_session_stands_labels_the_child_in_its_parent(world: Worlds) -> None:
    at = world("session status")
    stands = Tool(name="stands", description="d", parameters={}, run=lambda state, given: "half way", on_retry="again")
    prompt = Prompt(name="p", model="scripted:script", tools=[stands])
    at.house.agents["scripted"] = Agent(name="scripted", side_a=Side(prompt=prompt, session_status="stands"))
    child = {"script": [step(*call("c1", "stands"), stop="tool_calls"), *[step(text("Done."))] * AGAIN]}
    at.create({"script": [spawning(child, tool="helper"), *[step(text("I see."))] * AGAIN]}, agent="boss")
    at.settle()
    with at.tap.outside():
        (row,) = at.house.read.children(at.principal, at.thread.id, limit=5, position=None).items
    assert (row["label"], row["status"]) == ("half way", "completed")
