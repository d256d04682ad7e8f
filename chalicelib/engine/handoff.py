"""A handoff: another agent takes the thread over. What its author writes; `engine.playing` plays it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from chalicelib.engine.agent import Tool
from chalicelib.engine.agent_tool import by_the_turn
from chalicelib.engine.definitions import check_type, wrong
from chalicelib.engine.state import ThreadState

_MESSAGE = {"type": "object", "properties": {"message": {"type": "string"}}}


@dataclass(frozen=True, kw_only=True)
class Handoff(Tool):
    """An `ai_human` agent as a tool: a call makes it play this thread from the next model step on.

    It reads the whole conversation, the arguments of the call included, and plays with its own prompt, model, tools and
    limits until it hands the thread on, in later runs too. An `optional` tool is left out where its agent does not
    exist.
    """

    agent: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: _MESSAGE)
    run: Callable[[ThreadState, dict[str, Any]], Any] = by_the_turn
    by_the_turn: bool = True
    optional: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_type(f"tool {self.name}", "agent", self.agent, str, "the name of an agent")
        if not self.agent:
            raise wrong(f"tool {self.name}", "agent must be the name of the agent that takes over")
        check_type(f"tool {self.name}", "optional", self.optional, bool, "true or false")
