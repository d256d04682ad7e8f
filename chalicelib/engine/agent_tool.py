"""An agent as a tool: what its author writes. `engine.children` plays it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.limits import LIVE
from chalicelib.domain.relations import Reporting
from chalicelib.engine.agent import Tool
from chalicelib.engine.definitions import check_type, wrong
from chalicelib.engine.prompts import SIDE_A, SIDE_B
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

    An `immediate` one is called before the first model step of a thread, by the thread itself, with those of the
    thread's arguments that are parameters of it; it cannot be `blocking`, nor need an approval.

    `receives_messages` (`side_a` or `side_b`) of an agent with two sides: users' messages to the child are the turn of
    that side, and the other is not shown them.
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
    immediate: bool = False
    receives_messages: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        what = f"tool {self.name}"
        check_type(what, "agent", self.agent, str, "the name of an agent")
        for name in ("blocking", "resumable", "optional", "immediate"):
            check_type(what, name, getattr(self, name), bool, "true or false")
        check_type(what, "max_instances", self.max_instances, int, "a whole number")
        if not 1 <= self.max_instances <= LIVE:
            raise wrong(what, f"max_instances must be between 1 and {LIVE}")
        if self.message is not None and self.message not in self.parameters.get("properties", {}):
            raise wrong(what, f"message names {self.message!r}, which is no argument of it; name one of its parameters")
        if self.immediate and (self.blocking or self.requires_approval):
            raise wrong(what, "an immediate call has nobody who waits for it: set blocking=False, and no approval")
        if self.receives_messages not in (None, SIDE_A, SIDE_B):
            raise wrong(what, f"receives_messages must be {SIDE_A!r} or {SIDE_B!r}, not {self.receives_messages!r}")
