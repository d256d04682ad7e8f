"""Prompts and sides as they are written: what is refused, in which words, and how parts are joined."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agents.debate import debate
from chalicelib.engine.agent import Agent, DefinitionError, tool
from chalicelib.engine.fitting import faults_of_arguments
from chalicelib.engine.prompt_tool import PromptTool
from chalicelib.engine.prompts import Prompt, Side

Wrong = Callable[[], Any]
PLAIN = Prompt(name="plain")
ANY: Any = None


def _any(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (lambda: Agent(name=_any(1)), "agent: name must be a text, not 1"),
        (lambda: Agent(name="a", tools=ANY), "agent a: tools must be a list of tools or a function, not None"),
        (lambda: Agent(name="a", kind="solo"), 'agent a: kind must be "ai_human" or "dual_ai", not \'solo\''),
        (lambda: Agent(name="a", kind="dual_ai"), "agent a: a dual_ai agent needs side_a and side_b"),
        (lambda: Agent(name="a", max_steps=_any("5")), "agent a: max_steps must be a whole number, not '5'"),
        (lambda: Agent(name="a", max_turns=251), "agent a: max_turns must be between 1 and 250"),
        (lambda: Agent(name="a", side_a=Side(human=True)), "agent a: human: one side at least must have a prompt"),
        (lambda: Agent(name="a", side_a=_any("text")), "agent a: side_a must be a Side, not 'text'"),
        (lambda: Side(), "side: prompt: give a side either a prompt or human=True"),
        (lambda: Side(prompt=PLAIN, stop_tool="x"), "side: stop_tool 'x' is no tool of its prompt"),
        (lambda: Side(prompt=PLAIN, response_property="x"), "side: response_property needs a stop_tool"),
        (lambda: Side(prompt=PLAIN, max_steps=0), "side: max_steps must be between 1 and 250"),
        (lambda: Prompt(name="p", parts=_any("text")), "prompt p: parts must be a list, not 'text'"),
        (lambda: Prompt(name="p", tool_choice="x"), "prompt p: tool_choice must be one of auto, none, required"),
        (lambda: Prompt(name="p", reasoning="hard"), "prompt p: reasoning must be one of low, medium, high"),
        (
            lambda: Agent(name="a", required=_any("x")),
            "agent a: required must be a JSON Schema of the arguments, not 'x'",
        ),
        (
            lambda: Agent(name="a", required={"type": "list"}),
            "agent a: required must have the type \"object\", not 'list'",
        ),
        (lambda: Prompt(name="p", required={"required": "x"}), "prompt p: required is no JSON Schema: 'x' is not of"),
        (lambda: Prompt(name="p", required={"properties": {"a": {"pattern": "("}}}), "prompt p: required is no JSON"),
        (lambda: Prompt(name="p", model="gpt"), "prompt p: model must be `provider:name`, not 'gpt'"),
    ],
)
def test_a_wrong_definition_is_refused_in_words_with_its_file_and_line(wrong: Wrong, fault: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        wrong()
    assert raised.value.fault.startswith(fault)
    assert f"{__file__}:" in str(raised.value)


def test_parts_and_included_prompts_are_one_text_and_variables_are_filled() -> None:
    rules = Prompt(name="rules", parts=["Be kind to {who}."])
    agent = Agent(name="a", side_a=Side(prompt=Prompt(name="p", parts=[rules, "Be brief."])))
    assert agent.voice("side_a").system_for({"who": "all"}) == "Be kind to all.\n\nBe brief."


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
DAYS = {"properties": {"trip": {"type": "object", "properties": {"days": {"type": "integer", "maximum": 9}}}}}


def test_what_an_agent_requires_is_what_its_prompts_and_those_in_them_require() -> None:
    inner = Prompt(name="inner", parts=["{trip}"], required=DAYS)
    side = Side(prompt=Prompt(name="outer", parts=[inner, "In {city}."], required=CITY))
    agent = Agent(name="a", kind="dual_ai", side_a=side, side_b=Side(human=True))
    assert agent.required_of_arguments == (CITY, DAYS)
    assert Agent(name="a", required=CITY).required_of_arguments == (CITY,)
    assert Agent(name="a").required_of_arguments == ()


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({"city": "Lisbon", "trip": {"days": 3}}, []),
        ({}, ["arguments.city"]),
        ({"city": 5}, ["arguments.city"]),
        ({"city": "Lisbon", "trip": {"days": 10}}, ["arguments.trip.days"]),
        ({"trip": []}, ["arguments.city", "arguments.trip"]),
    ],
)
def test_arguments_that_do_not_fit_are_told_with_their_paths(arguments: dict[str, Any], paths: list[str]) -> None:
    assert [fault.path for fault in faults_of_arguments([CITY, DAYS], arguments)] == paths


def test_each_side_of_the_debate_has_its_own_prompt_and_tools() -> None:
    voices = [debate.voice(side) for side in ("side_a", "side_b")]
    assert [len(voice.tools_for({})) for voice in voices] == [0, 1]
    assert "against" in voices[1].prompt


def guide(name: str) -> Any:
    """What the code of the guide that makes it makes."""
    page = Path(__file__).parents[2] / "docs" / "agents.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if f"{name} = Agent(" in block]
    made: dict[str, Any] = {"__name__": "guide"}
    exec(code, made)
    return made[name]


def test_the_agents_of_the_guide_are_whole_ones() -> None:
    haggle = guide("haggle")
    assert set(haggle.sides) == {"side_a", "side_b"}
    assert haggle.voice("side_b").system_for({"thing": "a boat"}).startswith("You haggle over a boat.")
    (summarise,) = guide("editor").tools_for({})
    assert set(summarise.parameters["properties"]) == {"audience", "text"}


# -- prompts as tools


@tool(on_retry="again")
def _look(place: str) -> str:
    """Look at a place."""
    return place


@tool
def _act() -> None:
    """Do something once."""


ADVICE = Prompt(name="advice", parts=["You advise."])


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"prompt": "You advise."}, "prompt must be a Prompt, not 'You advise.'"),
        ({"message": "question"}, "message names 'question', which is no argument of it"),
        ({"prompt": replace(ADVICE, tools=[_act])}, 'on_retry: "again" would run _act again too'),
        (
            {"prompt": replace(ADVICE, tools=[replace(_look, requires_approval=True)])},
            "_look must be a function tool that needs no approval",
        ),
        (
            {"prompt": replace(ADVICE, tools=[PromptTool(name="deep", prompt=ADVICE)])},
            "deep must be a function tool that needs no approval",
        ),
        ({"timeout_seconds": 841}, "at most 840"),
    ],
)
def test_a_wrong_prompt_tool_says_where_and_what(given: dict[str, Any], fault: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        PromptTool(**_any({"name": "advise", "prompt": ADVICE} | given))
    assert fault in str(raised.value)
    assert "test_prompts.py" in str(raised.value)


def test_a_prompt_tool_takes_what_its_prompt_requires_else_a_message() -> None:
    required = {"properties": {"topic": {"type": "string"}}, "required": ["topic"]}
    assert PromptTool(name="advise", prompt=replace(ADVICE, required=required)).parameters == required
    assert PromptTool(name="advise", prompt=ADVICE).parameters["required"] == ["message"]
    surfaced = PromptTool(name="advise", prompt=replace(ADVICE, tools=[_act, _look]), on_retry="surface")
    assert [inner.name for inner in surfaced.prompt.tools] == ["_act", "_look"]


def test_only_a_model_can_call_a_prompt_tool() -> None:
    advise: Any = PromptTool(name="advise", prompt=ADVICE)
    with pytest.raises(ValueError, match="only a model can call this tool"):
        advise.run(None, {})
