"""The order of events, binding (spec section 5): a text turn on a new thread, a tool step, a message that had to wait.

The transcripts are written out here, field by field, as a client sees them; the schedules are played on the emulator.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tests.crash.scenarios import call, step, text, tools
from tests.crash.world import World

Worlds = Callable[[str], World]

TEXT_TURN = """
thread.created      scripted
message.completed   user: hello
run.queued          join
thread.status       running
run.started         scripted
message.started     assistant
message.delta       {long}
message.completed   assistant: {long}!
usage.updated       3 + 2 tokens
step.recorded       done: {label}
run.completed       stop_on_response
thread.status       idle
"""

TOOL_STEP = """
thread.created      scripted
message.completed   user: hello
run.queued          join
thread.status       running
run.started         scripted
message.started     assistant
message.completed   assistant: c1 c2
usage.updated       3 + 2 tokens
tool.started        c1 first
tool.started        c2 second
tool.completed      c1 first ok
tool.completed      c2 second ok
message.completed   tool: c1 c2
message.started     assistant
message.completed   assistant: Both are done.
usage.updated       3 + 2 tokens
step.recorded       done: Both are done.
run.completed       stop_on_response
thread.status       idle
"""

WAITING_JOIN = """
message.queued      user: and this
message.completed   user: and this
"""


def test_a_text_turn_on_a_new_thread(world: Worlds) -> None:
    long = "a" * 2100
    turn = _played(world("text"), {"script": [step(text(long), text("!"))]})
    assert turn == TEXT_TURN.format(long=long, label=long[:200]).split("\n")[1:-1]


def test_a_step_with_two_parallel_tools(world: Worlds) -> None:
    calls = step(*call("c1", "first"), *call("c2", "second", '{"after": "c1"}'), stop="tool_calls")
    script = [calls, step(text("Both are done."))]
    assert _played(world("tools"), {"script": script, "tools": tools("again")}) == TOOL_STEP.split("\n")[1:-1]


def test_a_message_that_waits_is_queued_and_completed_under_one_id(world: Worlds) -> None:
    its = world("join")
    its.guests.while_asked = lambda count: its.meanwhile(lambda: its.post("and this")) if count == 1 else None
    _played(its, {"script": [step(text("one")), step(text("two"))]})
    both = [event for event in its.events() if "and this" in str(event["data"])]
    assert [_line(event) for event in both] == WAITING_JOIN.split("\n")[1:-1]
    assert len({event["data"]["message"]["id"] for event in both}) == 1
    assert [event["data"]["message"]["metadata"] for event in both] == [{"queued": True}, {}]


def _played(world: World, arguments: Mapping[str, Any]) -> list[str]:
    world.create(arguments)
    world.settle()
    return [_line(event) for event in world.events()]


def _line(event: Mapping[str, Any]) -> str:
    return f"{event['type']:<19} {_said(event['type'], event['data'])}"


def _said(kind: str, data: Mapping[str, Any]) -> str:
    if kind.startswith("message.") and "message" in data:
        return f"{data['message']['role']}: {' '.join(_part(part) for part in data['message']['content'])}"
    if kind == "usage.updated":
        return f"{data['input_tokens']} + {data['output_tokens']} tokens"
    if kind == "step.recorded":
        return f"{data['step']['kind']}: {data['step']['label']}"
    if kind.startswith("tool."):
        return " ".join([data["call_id"], data["name"], *([data["outcome"]] if "outcome" in data else [])])
    shown = {"message.started": "role", "message.delta": "text", "thread.status": "state", "run.queued": "delivery"}
    field = shown.get(kind, "agent" if "agent" in data else "reason")
    return str(data[field])


def _part(part: Mapping[str, Any]) -> str:
    return str(part["text"] if part["type"] == "text" else part["call_id"])
