"""The guests: agents and their tools. Add yours here. They see `engine.agent` and `engine.state`, nothing else of the
house.
"""

from chalicelib.agents.assistant import assistant
from chalicelib.agents.debate import debate
from chalicelib.agents.scripted import scripted
from chalicelib.engine.agent import Agent

AGENTS: dict[str, Agent] = {agent.name: agent for agent in (assistant, debate, scripted)}
