"""Agents as tools: which side of a child is spoken to, which side of a parent is told, children that start at once."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.engine.agent import Agent
from chalicelib.engine.prompts import Prompt, Side
from tests.crash.audit import audit, told
from tests.crash.guests import HELPER, SCOUT
from tests.crash.residents import rows
from tests.crash.scenarios import AGAIN, KIDS, STOPS, call, spawning, step, text
from tests.crash.world import World

Worlds = Callable[[str], World]
SEEN = [step(text("I see."))] * AGAIN


def heard(world: World) -> list[list[str]]:
    """The roles and first words that each model call of this thread was sent."""
    mine = [request for request in world.guests.requests if world.thread.token in request.messages[0]["id"]]
    return [[f"{m['role']}: {m['content'][0].get('text')}" for m in request.messages] for request in mine]


def registry(world: World) -> list[Any]:
    with world.tap.outside():
        found = world.house.read.children(world.principal, world.thread.id, limit=50, position=None).items
    return sorted(found, key=lambda row: row["reference_id"])


def sound(world: World) -> None:
    for ref in (world.thread, *world.children()):
        assert audit(world.at(ref)) == []


# -- the side of a child that is spoken to


def test_messages_to_a_child_are_the_turn_of_the_side_that_receives_them(world: Worlds) -> None:
    at = world("receives")
    child = {"script": [step(text("b speaks")), step(text("a speaks")), STOPS, *[step(text("b again")), STOPS] * AGAIN]}
    spawn = spawning(child, tool="to_second")
    tell = step(
        *call("t", "subagent_message", json.dumps({"reference_id": "sub-1-1-1", "content": "and then?"})),
        stop="tool_calls",
    )
    at.create({"script": [spawn, step(text("begun")), tell, *SEEN]}, agent="boss")
    at.settle()
    (ref,) = at.children()
    kid = at.at(ref)
    answers = [(m["side"], m["role"]) for m in told(kid)["messages"] if m.get("side") and m["role"] == "assistant"]
    assert answers[:2] == [("side_b", "assistant"), ("side_a", "assistant")]
    first = json.dumps(child, sort_keys=True, separators=(",", ":"))
    shown = heard(kid)
    assert shown[0] == [f"user: {first}"]
    assert shown[1] == ["user: b speaks"]
    sound(at)


# -- the side of a parent that is told


def _haggles(*tools: Any) -> Agent:
    return Agent(
        name="duel",
        kind="dual_ai",
        side_a=Side(prompt=Prompt(name="a", model="scripted:script", tools=list(tools))),
        side_b=Side(prompt=Prompt(name="b", model="scripted:script")),
        max_turns=4,
    )


def test_a_child_is_told_to_the_side_that_made_it(world: Worlds) -> None:
    at = world("owning side")
    at.house.agents["duel"] = _haggles(replace(HELPER, blocking=False))
    spawn = step(text("Wait."), *call("k1", "helper", json.dumps(KIDS[0])), stop="tool_calls")
    at.create({"script": [spawn, *[step(text("so"))] * AGAIN]}, agent="duel")
    at.settle()
    report = next(m for m in told(at)["messages"] if m["silent"])
    assert (report["side"], report["role"]) == ("side_a", "user")
    said = "Subagent helper (sub-1-1-1) has ended: completed"
    seen = [(sum(said in one for one in each), len(each)) for each in heard(at)]
    assert {count for count, _ in seen} == {0, 1}
    by_side = [m["side"] for m in told(at)["messages"] if m["role"] == "assistant"]
    assert {side for side, (count, _) in zip(by_side, seen, strict=True) if count} == {"side_a"}
    sound(at)


def test_a_child_of_a_side_that_talks_with_a_human_is_heard_without_the_human(world: Worlds) -> None:
    at = world("human side")
    quick = _haggles(replace(HELPER, blocking=False))
    at.house.agents["talk"] = replace(quick, name="talk", side_a=Side(human=True), side_b=quick.side_a)
    at.create({"script": [spawning(KIDS[0], tool="helper"), *SEEN]}, agent="talk")
    at.deliver()
    at.settle()
    assert any("has ended: completed" in one for one in heard(at)[-1])
    assert told(at)["status"]["reason"] == "awaiting_human"
    assert len(told(at)["runs"]) == 2
    sound(at)


# -- children that start at once


def test_an_immediate_child_starts_before_the_first_model_step_and_is_told(world: Worlds) -> None:
    at = world("immediate")
    at.create(KIDS[0], agent="eager")
    at.settle()
    kinds = [e["type"] for e in at.events() if e["type"].startswith(("run.", "child.", "message.started"))]
    assert kinds[:4] == ["run.queued", "run.started", "child.started", "message.started"]
    (row,) = registry(at)
    assert (row["reference_id"], row["name"], row["status"], row["blocking"]) == (
        "sub-1-0-1",
        "scout",
        "completed",
        False,
    )
    assert sum("has ended: completed" in one for one in heard(at)[-1]) == 1
    at.post("again")
    at.settle()
    assert len(registry(at)) == 1
    sound(at)


def test_an_immediate_child_is_made_once_though_its_first_run_is_cancelled(world: Worlds) -> None:
    at = world("cancelled first")
    at.create(KIDS[0], agent="eager")
    at.cancel()
    at.settle()
    at.post("now")
    at.settle()
    assert [row["reference_id"] for row in registry(at)] == ["sub-1-0-1"]
    sound(at)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"parameters": {"type": "object", "properties": {"city": {}}, "required": ["city"]}}, "city"),
        ({"agent": "guide"}, "Agent guide requires other arguments"),
        ({"agent": "nobody"}, "There is no agent named 'nobody'."),
    ],
)
def test_an_immediate_child_that_cannot_be_is_a_row_of_the_log(
    world: Worlds, change: Mapping[str, Any], fault: str
) -> None:
    at = world("cannot be")
    at.house.agents["eager"] = replace(at.house.agents["eager"], tools=[replace(SCOUT, **change)])
    at.create(KIDS[0], agent="eager")
    at.settle()
    (row,) = [row for row in rows(at, "tool") if row["model"] == "scout"]
    assert (row["outcome"], fault in row["result"]) == ("error", True)
    assert (registry(at), told(at)["status"]["reason"]) == ([], "stop_on_response")
    sound(at)


def test_an_agent_that_starts_itself_at_once_ends_at_the_fifth_level(world: Worlds) -> None:
    at = world("endless")
    at.house.agents["scripted"] = replace(at.house.agents["scripted"], tools=[SCOUT])
    at.create(KIDS[0])
    at.settle()
    deepest, depth = at, 0
    while below := deepest.children():
        deepest, depth = deepest.at(below[0]), depth + 1
    assert depth == 5
    assert "5 levels below its root" in rows(deepest, "tool")[0]["result"]


def test_both_sides_of_an_agent_start_theirs(world: Worlds) -> None:
    at = world("both sides")
    one = _haggles(SCOUT)
    both = Side(prompt=Prompt(name="b", model="scripted:script", tools=[replace(SCOUT, name="scout_b")]))
    at.house.agents["duel"] = replace(one, side_b=both)
    at.create(KIDS[0], agent="duel")
    at.settle()
    assert [(row["reference_id"], row["name"]) for row in registry(at)] == [
        ("sub-1-0-1", "scout"),
        ("sub-1-0-2", "scout_b"),
    ]
    reports = [m["side"] for m in told(at)["messages"] if m["silent"]]
    assert sorted(reports) == ["side_a", "side_b"]
    sound(at)
