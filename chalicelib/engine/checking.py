"""What is wrong between the definitions of a module, beyond what each says when it is made: names that lead nowhere.

Importing the module is the first half of the check: a definition that is wrong by itself raises there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

from chalicelib.engine.agent import Agent
from chalicelib.engine.agent_tool import AgentTool
from chalicelib.engine.definitions import DefinitionError
from chalicelib.engine.handoff import Handoff


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The agents of a module, one row each (name, kind, number of tools), and all faults in words."""

    agents: tuple[tuple[str, str, int], ...] = ()
    faults: tuple[str, ...] = ()


def check(module: str) -> Checked:
    """Import a module with `AGENTS` and look at what its agents say of each other. Raises nothing."""
    try:
        agents = import_module(module).AGENTS
    except DefinitionError as error:
        return Checked(faults=(str(error),))
    except AttributeError:
        return Checked(faults=(f"{module} has no AGENTS: a dict of its agents by name",))
    except Exception as error:  # noqa: BLE001 - whatever the author's module does when it is imported
        return Checked(faults=(f"{module} cannot be imported: {type(error).__name__}: {error}",))
    rows = tuple((agent.name, agent.kind, len(_tools(agent))) for agent in agents.values())
    return Checked(agents=rows, faults=tuple(_faults(module, agents)))


def _faults(module: str, agents: Mapping[str, Agent]) -> Iterator[str]:
    for name, agent in agents.items():
        if name != agent.name:
            yield f"{module}: AGENTS[{name!r}] is the agent {agent.name!r}; key it by its name"
        for other in agent.subagents:
            if other not in agents:
                yield f"agent {agent.name}: subagents names {other!r}, which is no agent of AGENTS"
        for tool in _tools(agent):
            if isinstance(tool, AgentTool):
                yield from _faults_of_agent_tool(agent, tool, agents)
            if isinstance(tool, Handoff):
                yield from _faults_of_handoff(agent, tool, agents)


def _faults_of_agent_tool(agent: Agent, tool: AgentTool, agents: Mapping[str, Agent]) -> Iterator[str]:
    what, child, hears = f"agent {agent.name}: tool {tool.name}", agents.get(tool.agent), tool.receives_messages
    if child is None:
        if not tool.optional:
            yield f"{what} needs the agent {tool.agent!r}, which is none of AGENTS; add it, or set optional=True"
    elif hears is not None and not child.cast.two_sided:
        yield f"{what}: receives_messages is {hears!r}, and the agent {tool.agent!r} has one side; leave it out"
    elif hears is not None and child.cast.sides[hears].human:
        yield f"{what}: receives_messages is {hears!r}, and that side of {tool.agent!r} is human; name the other"


def _faults_of_handoff(agent: Agent, tool: Handoff, agents: Mapping[str, Agent]) -> Iterator[str]:
    what, taker = f"agent {agent.name}: tool {tool.name}", agents.get(tool.agent)
    if agent.cast.two_sided:
        yield f"{what} is a handoff, and an agent with two sides hands nothing over; use an AgentTool"
    if taker is None and not tool.optional:
        yield f"{what} hands over to {tool.agent!r}, which is none of AGENTS; add it, or set optional=True"
    if taker is not None and taker.cast.two_sided:
        yield f"{what} hands over to {tool.agent!r}, which has two sides; use an AgentTool, or name an ai_human agent"


def _tools(agent: Agent) -> tuple[object, ...]:
    """Tools that are known without a thread."""
    return () if callable(agent.tools) and not agent.sides else agent.tools_for({})
