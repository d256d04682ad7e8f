"""Endpoints and effects as their authors write them: a mistake is said when the code is imported, with its place."""

from typing import Any

import pytest

from chalicelib.engine.agent import Agent, DefinitionError
from chalicelib.engine.agent_tool import AgentTool
from chalicelib.engine.effects import effect
from chalicelib.engine.endpoints import Problem, Response, endpoint
from chalicelib.engine.environment import Environment
from chalicelib.engine.handoff import Handoff
from chalicelib.engine.state import ThreadState


def _function(state: ThreadState, request: Any = None) -> None:
    """Something to decorate."""


def _loose(state: ThreadState, *rest: int) -> None:
    """What cannot be an effect."""


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: endpoint(method="HEAD")(_function), "method must be one of DELETE, GET, PATCH, POST, PUT"),
        (lambda: endpoint(name="a b")(_function), "name must match"),
        (lambda: endpoint(timeout_seconds=26)(_function), "timeout_seconds must be above 0 and at most 25"),
        (lambda: effect(_loose), "parameter rest: only named parameters"),
        (lambda: effect(_loose), "test_definitions.py"),
        (lambda: effect(name="a b")(_function), "name must match"),
        (lambda: effect(timeout_seconds=841)(_function), "at most 840"),
        (lambda: Agent(name="a", endpoints=[_function]), "decorate the function with @endpoint"),  # type: ignore[list-item]
        (lambda: Agent(name="a", effects=[_function]), "decorate the function with @effect"),  # type: ignore[list-item]
        (lambda: Handoff(name="a b", agent="c"), "name must match"),
        (lambda: Handoff(name="t", agent=5), "tool t: agent must be the name of an agent, not 5"),  # type: ignore[arg-type]
        (
            lambda: Handoff(name="t", agent=""),
            "test_definitions.py:[0-9]+: tool t: agent must be the name of the agent",
        ),
        (lambda: Handoff(name="t", agent="c", optional=1), "optional must be true or false"),  # type: ignore[arg-type]
        (
            lambda: AgentTool(name="t", agent=5),  # type: ignore[arg-type]
            "test_definitions.py:[0-9]+: tool t: agent must be the name of an agent",
        ),
        (lambda: AgentTool(name="t", agent="c", blocking=1), "blocking must be true or false"),  # type: ignore[arg-type]
        (lambda: AgentTool(name="t", agent="c", max_instances=0), "max_instances must be between 1 and 50"),
        (lambda: AgentTool(name="t", agent="c", message="text"), "message names 'text', which is no argument of it"),
        (lambda: AgentTool(name="t", agent="c", immediate=True), "set blocking=False, and no approval"),
        (
            lambda: AgentTool(name="t", agent="c", blocking=False, immediate=True, requires_approval=True),
            "set blocking=False, and no approval",
        ),
        (lambda: AgentTool(name="t", agent="c", receives_messages="c"), "must be 'side_a' or 'side_b', not 'c'"),
        (lambda: Agent(name="a", tools=[Handoff(name="t", agent="c")] * 2), "two tools are named t"),
        (lambda: Agent(name="a", endpoints=[endpoint()(_function)] * 2), "two answer GET _function"),
        (lambda: Agent(name="a", effects=[effect(_function)] * 2), "two are named _function"),
    ],
)
def test_a_wrong_definition_says_where_and_what(make: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        make()


@pytest.mark.parametrize("headers", [{"Content-Type": "text/html"}, {"access-control-allow-origin": "*"}, {"é": "x"}])
def test_an_answer_has_no_header_that_is_the_houses(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be set"):
        Response(headers=headers)


def test_problems_and_answers_have_their_own_statuses() -> None:
    with pytest.raises(ValueError, match="400 to 499"):
        Problem(500, "no")
    with pytest.raises(ValueError, match="200 to 299"):
        Response(status=302)


def test_secrets_are_hidden_in_texts_keys_and_lists_the_longest_first() -> None:
    known = Environment(texts={"A": "text"}, secrets={"ONE": "abcdefgh", "TWO": "abcdefgh-more", "THREE": ""})
    hidden = known.safe({"abcdefgh": ["x abcdefgh-more y", b"bytes", 5]})
    assert hidden == {"[secret ONE]": ["x [secret TWO] y", {"base64": "Ynl0ZXM="}, 5]}
    assert known.safe(hidden) == hidden
    assert (known.values["A"], known.values["TWO"]) == ("text", "abcdefgh-more")
    assert "abcdefgh" not in repr(known)
    with pytest.raises(TypeError):
        known.values["A"] = "other"  # type: ignore[index]


def test_without_secrets_values_are_as_safe_as_ever() -> None:
    assert Environment().safe({"n": float("nan")}) == {"n": None}
