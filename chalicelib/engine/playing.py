"""Who plays a thread: its own agent, or the one that it was handed to (`engine.handoff`).

Who plays stands on the head and moves in the write that stores the last result of the step that handed over. So an
attempt that takes the thread up finds either the calls open and the agent before, or the results and the new one.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from chalicelib.domain.events import Fact
from chalicelib.domain.model import Call, Head, Outcome
from chalicelib.domain.queueing import Draft
from chalicelib.engine import children
from chalicelib.engine.agent import Agent, Tool
from chalicelib.engine.attempt import Attempt
from chalicelib.engine.handoff import Handoff

log = logging.getLogger(__name__)
PARKED = "A session cannot hand the thread over while another run waits for it."
ONE_A_STEP = "Another call of this step hands the thread over already."


def player(agents: Mapping[str, Agent], head: Head) -> tuple[Agent, str | None]:
    """The agent that plays a thread, and why it cannot. Hooks, effects and endpoints stay those of the thread's own."""
    own = agents.get(head.agent)
    if own is None:
        return _missing(head.agent), None
    if not head.played_by:
        return own, None
    fault = _unplayable(agents, head.played_by)
    if fault is not None:
        return own, f"The thread was handed over. {fault}"
    agent = agents[head.played_by]
    return replace(agent, hooks=own.hooks, effects=own.effects, endpoints=own.endpoints), None


def tools_of(
    agent: Agent, arguments: Mapping[str, Any], agents: Mapping[str, Agent]
) -> tuple[dict[str, Tool], str | None]:
    """The tools that an agent plays with, and why they could not be made."""
    try:
        tools = [*agent.tools_for(arguments), *children.tools_of(agent)]
        return {tool.name: tool for tool in tools if children.is_available(tool, agents)}, None
    except Exception as error:  # tools that depend on arguments are the author's code: their fault is the run's failure
        log.exception("tools failed", extra={"action": "tools_failed", "agent": agent.name})
        return {}, f"The tools of agent {agent.name} could not be made: {error}"


def take_over(attempt: Attempt) -> tuple[Agent, str | None]:
    """From here on the attempt plays with the agent that the head names; answers it, and why it cannot play."""
    agent, fault = player(attempt.agents, attempt.journal.head)
    tools, broken = tools_of(agent, attempt.arguments, attempt.agents)
    attempt.agent, attempt.tools = agent, tools
    attempt.model = attempt.asked_model or agent.model or attempt.default_model
    return agent, fault or broken


def refusal(attempt: Attempt, call: Call, beside: Iterable[Call]) -> str | None:
    """Why a call may not hand the thread over, or None: it may, or is no handoff. `beside`: calls of the same step."""
    tool = attempt.tools[call.name]
    if not isinstance(tool, Handoff):
        return None
    if attempt.journal.head.parked:
        return PARKED
    if any(other.id != call.id and other.started_at and _hands_over(attempt, other) for other in beside):
        return ONE_A_STEP
    return _fault(attempt, tool)


def perform(attempt: Attempt, call: Call) -> Call | None:
    """Play a call that hands the thread over; None for any other. It takes place with the last result of its step."""
    tool, now = attempt.tools[call.name], attempt.clock.now()
    if not isinstance(tool, Handoff):
        return None
    fault = _fault(attempt, tool)  # it may have started in a release that knew the agent
    if fault is not None:
        return replace(call, outcome=Outcome.ERROR, result=fault, ended_at=now)
    told = f"The agent {tool.agent} has taken over this conversation and goes on from here."
    return replace(call, outcome=Outcome.OK, result=told, ended_at=now)


def handed_over(attempt: Attempt, head: Head, calls: Iterable[Call], now: int) -> Draft:
    """What the finished calls of a step make of who plays. `head`: with their results in place."""
    done = [call for call in calls if call.outcome is Outcome.OK and _hands_over(attempt, call)]
    if not done:
        return Draft(after=head)
    tool = attempt.tools[done[0].name]
    assert isinstance(tool, Handoff)
    after = replace(head, played_by="" if tool.agent == head.agent else tool.agent, played_from=head.messages)
    data = {"played_by": tool.agent}
    told = Fact(type="thread.updated", data=data, at=now, run=head.run, attempt=head.run_attempt)
    return Draft(after=after, facts=(told,))


def _hands_over(attempt: Attempt, call: Call) -> bool:
    """True for a call that hands the thread over, unless it has failed."""
    return isinstance(attempt.tools.get(call.name), Handoff) and call.outcome in (None, Outcome.OK)


def _fault(attempt: Attempt, tool: Handoff) -> str | None:
    """Why the agent of a handoff cannot take the thread over."""
    agents, head = attempt.agents, attempt.journal.head
    if agents[head.player].cast.two_sided:
        return "An agent with two sides cannot hand its thread over."
    if tool.agent == head.player:
        return f"Agent {tool.agent} plays this thread already."
    if fault := _unplayable(agents, tool.agent):
        return fault
    agent = agents[tool.agent]
    return children.unfit(agent, attempt.arguments) or tools_of(agent, attempt.arguments, agents)[1]


def _unplayable(agents: Mapping[str, Agent], name: str) -> str | None:
    """Why this agent can play no thread of another."""
    if name not in agents:
        return f"There is no agent named {name!r}."
    if agents[name].cast.two_sided:
        return f"Agent {name} has two sides, so it cannot take a thread over."
    return None


def _missing(name: str) -> Agent:
    """The agent was removed from the code: the run fails with a sentence, the thread stays readable."""
    return Agent(name=name, description="This agent no longer exists.", model="missing:agent")
