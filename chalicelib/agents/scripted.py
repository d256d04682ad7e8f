"""The `scripted` agent: plays the script in the thread's arguments, so that runs can be made reproducible from outside.

Only in local and test stages. `arguments.script` is what the model says, `arguments.tools` declares fake tools.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from chalicelib.engine.agent import MAX_SECONDS, Agent, Tool, ToolFailure
from chalicelib.engine.state import ThreadState

if TYPE_CHECKING:
    from chalicelib.engine.models.scripted import FakeTool


def _tool(fake: "FakeTool") -> Tool:
    def run(state: ThreadState, arguments: dict[str, Any]) -> Any:
        for entry in fake.logs:
            state.log(entry)
        if fake.takes_ms:
            state.wait(fake.takes_ms / 1000)
        if fake.raises is not None:
            raise ToolFailure(fake.raises)
        if fake.asks is not None:
            return state.ask(fake.asks["question"], fake.asks["options"], fake.asks["expires_in"])
        return fake.returns

    return Tool(
        name=fake.name,
        description=f"A fake tool named {fake.name}.",
        parameters=fake.parameters,
        run=run,
        timeout_seconds=MAX_SECONDS,
        on_retry=fake.on_retry,
        requires_approval=fake.requires_approval,
    )


def _tools(arguments: Mapping[str, Any]) -> list[Tool]:
    from chalicelib.engine.models.scripted import fake_tools  # a list of agents needs no model

    return [_tool(fake) for fake in fake_tools(arguments)]


scripted = Agent(
    name="scripted",
    title="Scripted",
    description="Plays the script in its arguments.",
    model="scripted:script",
    tools=_tools,
    subagents=("scripted",),
    child_sessions=True,
)
