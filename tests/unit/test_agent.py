"""Agents and tools as their authors write them: a definition works, or its error says which one is wrong and how."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from chalicelib.agents import AGENTS
from chalicelib.engine.agent import MAX_SECONDS, Agent, DefinitionError, Tool, tool
from chalicelib.engine.state import ThreadState


class Wanted:
    """A flag that nobody ever sets: the result stays wanted."""

    def wait(self, seconds: float) -> bool:
        return False


STATE = ThreadState(
    thread_id="thr_x", run_id="run_x_1", call_id="c1", idempotency_token="x.1.c1", arguments={}, cancel=Wanted()
)


def echo(words: str) -> str:
    """Says it again.

    Twice if need be.
    """
    return words


def plain_tool(**changes: Any) -> Tool:
    """A tool that works but for the changes."""
    fields = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}, "run": lambda state, a: a}
    return Tool(**{**fields, **changes})


# ---------------------------------------------------------------- tools


def test_a_function_becomes_a_tool_with_its_name_its_docstring_and_its_parameters() -> None:
    made = tool(echo)
    assert (made.spec.name, made.spec.description) == ("echo", "Says it again.\n\nTwice if need be.")
    assert made.spec.parameters == {
        "type": "object",
        "properties": {"words": {"type": "string"}},
        "required": ["words"],
        "additionalProperties": False,
    }
    assert (made.timeout_seconds, made.on_retry) == (60.0, "surface")


def test_the_decorator_may_say_otherwise() -> None:
    made = tool(name="parrot", description="Repeats.", timeout_seconds=5, on_retry="again")(echo)
    assert (made.name, made.description, made.timeout_seconds, made.on_retry) == ("parrot", "Repeats.", 5, "again")


def test_a_function_without_a_docstring_is_described_by_its_name() -> None:
    @tool
    def find_it() -> None: ...

    assert find_it.description == "find_it"


def test_a_tool_gets_its_arguments_in_its_own_types_and_the_state_if_it_asks_for_it() -> None:
    @dataclass
    class Place:
        city: str

    @tool
    def where(state: ThreadState, place: Place, days: float = 1.0) -> tuple[str, Place, float]:
        return state.call_id, place, days

    assert where.run(STATE, {"place": {"city": "Lisbon"}, "days": 2}) == ("c1", Place("Lisbon"), 2.0)
    assert where.run(STATE, {"place": {"city": "Porto"}}) == ("c1", Place("Porto"), 1.0)
    assert tool(echo).run(STATE, {"words": "hi"}) == "hi"


def test_a_function_that_no_model_can_be_told_is_refused_with_its_name_its_file_and_the_parameter() -> None:
    def paint(colour: bytes) -> None: ...

    def shout(words) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(DefinitionError) as raised:
        tool(paint)
    assert raised.value.fault.startswith(f"tool paint in {__file__}: parameter colour: the type <class 'bytes'>")
    with pytest.raises(DefinitionError) as raised:
        tool(timeout_seconds=3)(shout)
    assert raised.value.fault == f"tool shout in {__file__}: parameter words: add a type hint"


@pytest.mark.parametrize("name", ["", "two words", "näher", "1st", "-x", "a.b", "x" * 65, "a\n"])
def test_a_name_that_no_provider_takes_is_refused_for_tools_and_agents(name: str) -> None:
    for make, kind in ((plain_tool, "tool"), (Agent, "agent")):
        with pytest.raises(DefinitionError) as raised:
            make(name=name)
        assert raised.value.fault.startswith(f"{kind} {name!r}: name must match [a-zA-Z_]")


@pytest.mark.parametrize("name", ["a", "_x", "get-weather_2", "X" * 64])
def test_names_of_letters_digits_dashes_and_underscores_are_fine(name: str) -> None:
    assert plain_tool(name=name).name == Agent(name=name).name == name


@pytest.mark.parametrize("seconds", [0, -1, MAX_SECONDS + 1, float("nan"), float("inf")])
def test_a_deadline_outside_of_what_a_function_lives_is_refused(seconds: float) -> None:
    with pytest.raises(
        DefinitionError, match=r"py:[0-9]+: tool look: timeout_seconds must be above 0 and at most 840$"
    ):
        plain_tool(timeout_seconds=seconds)
    with pytest.raises(
        DefinitionError, match=r"py:[0-9]+: agent guide: model_seconds must be above 0 and at most 840$"
    ):
        Agent(name="guide", model_seconds=seconds)


def test_the_longest_deadline_is_fine() -> None:
    assert plain_tool(timeout_seconds=840).timeout_seconds == Agent(name="guide", model_seconds=840).model_seconds


@pytest.mark.parametrize("rule", ["never", "", None, "adopt"])
def test_an_unknown_rule_for_retries_is_refused_with_the_known_ones(rule: Any) -> None:
    with pytest.raises(DefinitionError) as raised:
        plain_tool(on_retry=rule)
    assert raised.value.fault == 'tool look: on_retry must be "surface" or "again"'


# ---------------------------------------------------------------- agents


def test_an_agent_needs_a_name_alone() -> None:
    agent = Agent(name="guide")
    assert (agent.model, agent.max_steps, agent.model_seconds, agent.parallel_tool_calls) == (None, 50, 300.0, True)
    assert (agent.tools_for({}), agent.system_for({}), agent.kind) == ((), "", "ai_human")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"model": "gpt-4o"}, "agent guide: model must be `provider:name`, not 'gpt-4o'"),
        ({"model": ""}, "agent guide: model must be `provider:name`, not ''"),
        ({"max_steps": 0}, "agent guide: max_steps must be between 1 and 250"),
        ({"max_steps": 251}, "agent guide: max_steps must be between 1 and 250"),
        ({"tools": [tool(echo), tool(echo)]}, "agent guide: two tools are named echo"),
        ({"tools": [tool(echo), plain_tool(name="echo")]}, "agent guide: two tools are named echo"),
    ],
)
def test_a_wrong_agent_is_refused_in_words_that_name_it_and_the_field(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        Agent(name="guide", **wrong)
    assert raised.value.fault == sentence


def test_a_bare_function_among_the_tools_is_refused_with_the_way_to_mend_it() -> None:
    bare: Any = [echo]
    with pytest.raises(
        DefinitionError, match=r"py:[0-9]+: agent guide: <function echo .* is not a tool; decorate .* with @tool$"
    ):
        Agent(name="guide", tools=bare)


@pytest.mark.parametrize("steps", [1, 250])
def test_the_bounds_of_the_steps_are_fine(steps: int) -> None:
    assert Agent(name="guide", max_steps=steps).max_steps == steps


def test_an_agent_cannot_be_changed_afterwards() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Agent(name="guide").prompt = "other"  # type: ignore[misc]


def test_tools_may_depend_on_the_threads_arguments() -> None:
    def tools(arguments: Mapping[str, Any]) -> list[Tool]:
        return [plain_tool(name=name) for name in arguments["names"]]

    agent = Agent(name="guide", tools=tools)
    assert [one.name for one in agent.tools_for({"names": ["a", "b"]})] == ["a", "b"]
    assert agent.tools_for({"names": []}) == ()
    assert Agent(name="guide", tools=[plain_tool()]).tools_for({"names": ["a"]})[0].name == "look"


@pytest.mark.parametrize(
    ("prompt", "filled"),
    [
        ("Guide {name}.", "Guide Ada."),
        ("{name} and {name}", "Ada and Ada"),
        ("{days} days", "3 days"),
        ("An {unknown} stays.", "An {unknown} stays."),
        ('Answer {"like": "this"} or {} or { name }.', 'Answer {"like": "this"} or {} or { name }.'),
        ("{name", "{name"),
        ("{trick}", "{name}"),
        ("", ""),
    ],
)
def test_variables_of_the_prompt_are_filled_once_and_nothing_else_is_touched(prompt: str, filled: str) -> None:
    arguments = {"name": "Ada", "days": 3, "trick": "{name}"}
    assert Agent(name="guide", prompt=prompt).system_for(arguments) == filled


def test_the_shipped_agents_are_there() -> None:
    assert {"assistant", "scripted", "researcher", "reader", "form_filler", "operator"} <= set(AGENTS)


def test_the_decorator_works_with_and_without_parentheses() -> None:
    bare, called = tool(echo), tool()(echo)
    assert bare.spec == called.spec
