"""What follows a model step, as a table."""

from typing import Any

import pytest

from chalicelib.domain.model import RunStatus
from chalicelib.engine.agent import Tool
from chalicelib.engine.prompts import Prompt, Side
from chalicelib.engine.stops import Cast, Next, Result, after_answer, after_calls, before_step

TOOLS = [
    Tool(name=name, description=name, parameters={}, run=lambda state, given: None)
    for name in ("reply", "stop", "fail", "look")
]
PROMPT = Prompt(name="p", tools=TOOLS)
RULES = Side(prompt=PROMPT, stop_tool="reply", response_property="text", session_stop="stop", session_fail="fail")
ONE = Cast(sides={"side_a": RULES})
TWO = Cast(sides={"side_a": RULES, "side_b": RULES}, max_turns=3)
HUMAN = Cast(sides={"side_a": Side(human=True), "side_b": RULES})
TALKS_ON = Cast(sides={"side_a": Side(prompt=PROMPT, stop_on_response=False)})


def _result(name: str, outcome: str = "ok", content: Any = None) -> Result:
    return Result(name=name, outcome=outcome, content=content)


@pytest.mark.parametrize(
    ("cast", "side", "turns", "then"),
    [
        (ONE, "side_a", 0, Next(side="side_a", reason="stop_on_response", gives_way=True)),
        (TALKS_ON, "side_a", 0, Next(side="side_a")),
        (TWO, "side_a", 0, Next(side="side_b", passes=True)),
        (TWO, "side_b", 1, Next(side="side_a", passes=True)),
        (TWO, "side_a", 2, Next(side="side_b", passes=True, reason="max_turns")),
        (HUMAN, "side_b", 0, Next(side="side_a", passes=True, reason="awaiting_human")),
    ],
)
def test_what_follows_an_answer_without_calls(cast: Cast, side: str, turns: int, then: Next) -> None:
    assert after_answer(cast, side, turns=turns) == then


@pytest.mark.parametrize(
    ("cast", "results", "then"),
    [
        (ONE, [_result("look")], Next(side="side_a")),
        (ONE, [_result("reply", "error")], Next(side="side_a")),
        (ONE, [_result("reply", content={"text": "so"})], Next(side="side_a", reason="stop_tool", said="so")),
        (ONE, [_result("reply", content={"else": "so"})], Next(side="side_a", reason="stop_tool")),
        (ONE, [_result("reply", content="so")], Next(side="side_a", reason="stop_tool")),
        (ONE, [_result("reply"), _result("stop")], Next(side="side_a", reason="session_stop")),
        (
            ONE,
            [_result("stop"), _result("fail")],
            Next(side="side_a", reason="session_fail", status=RunStatus.FAILED),
        ),
        (TWO, [_result("reply", content={"text": 5})], Next(side="side_b", passes=True, said="5")),
        (TWO, [_result("look")], Next(side="side_a")),
    ],
)
def test_what_follows_results(cast: Cast, results: list[Result], then: Next) -> None:
    assert after_calls(cast, "side_a", results, turns=0) == then


def test_a_step_is_refused_at_the_limit_and_to_a_human() -> None:
    assert before_step(ONE, "side_a", steps=1, limit=2) is None
    assert before_step(ONE, "side_a", steps=2, limit=2) == Next(side="side_a", reason="max_steps")
    assert before_step(HUMAN, "side_a", steps=0, limit=2) == Next(side="side_a", reason="awaiting_human")


def test_no_run_begins_with_the_turn_of_a_human() -> None:
    assert HUMAN.speaker("", begins=True) == "side_b"
    assert HUMAN.speaker("side_a") == "side_a"
    assert TWO.speaker("side_b", begins=True) == "side_b"
    assert TWO.speaker("a side that is gone", begins=True) == "side_a"


def test_a_message_is_the_turn_of_the_side_that_it_is_for() -> None:
    assert TWO.speaker("side_a", begins=True, hears="side_b") == "side_b"
    assert TWO.speaker("side_b", begins=True, hears="a side that is gone") == "side_b"
    assert HUMAN.speaker("", begins=True, hears="side_a") == "side_b"
