"""Agents with sides: what each rule ends, whose turn follows, and what each side is shown."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.audit import audit, told
from tests.crash.scenarios import FAILS, REPLIES, SCENARIOS, STOPS, step, text
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
    unknown = {**FAILS, "events": [{**FAILS["events"][0], "name": "nothing"}, *FAILS["events"][1:]]}
    played.create({"script": [unknown, REPLIES]}, agent="replier")
    played.settle()
    assert _run(played)["reason"] == "stop_tool"


def test_the_sample_debate_is_played_by_the_offline_model(world: Worlds) -> None:
    played = world("sides")
    played.create({}, text="Count to 3 is all one needs.", agent="debate")
    played.settle()
    sides = [message["side"] for message in told(played)["messages"] if message["role"] == "assistant"]
    assert sides[:2] == ["side_a", "side_b"]
    assert (_run(played)["status"], _run(played)["reason"]) in [
        ("completed", "max_turns"),
        ("completed", "session_stop"),
    ]
