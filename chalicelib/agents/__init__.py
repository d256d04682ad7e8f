"""The guests: agents and their tools. Add yours here. They see `engine.agent`, `engine.agent_tool` and `engine.state`,
nothing else of the house. docs/samples.md walks through the ones that are shipped.
"""

from chalicelib.agents.assistant import assistant
from chalicelib.agents.debate import debate
from chalicelib.agents.form_filler import form_filler
from chalicelib.agents.operator import operator
from chalicelib.agents.researcher import reader, researcher
from chalicelib.agents.scripted import scripted
from chalicelib.engine.agent import Agent

AGENTS: dict[str, Agent] = {
    agent.name: agent for agent in (assistant, scripted, researcher, reader, debate, form_filler, operator)
}
