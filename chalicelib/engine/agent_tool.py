"""An agent as a tool: what its author writes. `engine.children` plays it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.limits import LIVE
from chalicelib.domain.relations import Reporting
from chalicelib.engine.agent import DefinitionError, Tool
from chalicelib.engine.state import ThreadState

#: Parameters of a tool that takes one text.
MESSAGE = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}


def by_the_turn(state: ThreadState, arguments: dict[str, Any]) -> Any:
    """Stands for the code of a tool that has none."""
    raise ValueError("only a model can call this tool: the turn plays it itself")


@dataclass(frozen=True, kw_only=True)
class AgentTool(Tool):
    """An agent as a tool: a call makes a child thread that the agent plays.

    `blocking`: the call's result is the child's outcome; else it is the child's reference, and the outcome comes as a
    message (`reporting` implicit) or only as what the child says by `notify_parent` (explicit). A `resumable` child
    takes further messages (`subagent_message`). At most `max_instances` are at work at once. `message` names the
    argument that is the child's first message; without it that is the arguments as JSON. An `optional` tool is left out
    where its agent does not exist.
    """

    agent: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: MESSAGE)
    run: Callable[[ThreadState, dict[str, Any]], Any] = by_the_turn
    by_the_turn: bool = True
    blocking: bool = True
    resumable: bool = False
    max_instances: int = LIVE
    reporting: Reporting = Reporting.IMPLICIT
    message: str | None = None
    optional: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_instances <= LIVE:
            raise DefinitionError(f"tool {self.name}: max_instances must be between 1 and {LIVE}")
        if self.message is not None and self.message not in self.parameters.get("properties", {}):
            raise DefinitionError(f"tool {self.name}: message names {self.message!r}, which is no argument of it")
