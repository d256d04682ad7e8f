"""The guests of a schedule: the real agents and their models, watched from outside.

The ledger is the world outside the house: what a tool did there stays done whatever dies. Every request that a model is
sent is kept, and checked while the answer is asked for: what is stored must not be asked again.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chalicelib.agents import AGENTS
from chalicelib.agents.debate import debate
from chalicelib.agents.scripted import scripted
from chalicelib.engine.agent import Agent, Tool, ToolFailure, tool
from chalicelib.engine.agent_tool import AgentTool
from chalicelib.engine.handoff import Handoff
from chalicelib.engine.models import ModelRegistry
from chalicelib.engine.models.offline import Offline
from chalicelib.engine.prompt_tool import PromptTool
from chalicelib.engine.prompts import Prompt, Side
from chalicelib.engine.state import ThreadState
from chalicelib.ports import Cancel, Chunk, Model, ModelRequest
from tests.crash.tap import Died

#: How long a worker waits for the turn's own thread before a test is given up (real seconds).
GIVEN_UP_SECONDS = 60.0
#: A child whose outcome is the call's result.
HELPER = AgentTool(name="helper", agent="scripted", parameters={"type": "object"}, on_retry="again")

TO_GUIDE = AgentTool(name="to_guide", agent="guide", parameters={"type": "object"})

TO_SECOND = AgentTool(
    name="to_second",
    agent="duel",
    parameters={"type": "object"},
    blocking=False,
    resumable=True,
    receives_messages="side_b",
)

SCOUT = AgentTool(
    name="scout",
    agent="scripted",
    parameters={"type": "object", "properties": {"script": {"type": "array"}}},
    blocking=False,
    immediate=True,
)


@tool(on_retry="again")
def scale(state: ThreadState, grams: int) -> dict[str, Any]:
    """Put something on the scale."""
    if grams < 0:
        raise ToolFailure("Nothing weighs less than nothing.")
    return {"grams": grams, "token": state.idempotency_token}


#: Prompts as tools; their answers are scripted by the arguments of each call.
ADVISE = PromptTool(
    name="advise",
    prompt=Prompt(name="advice", parts=["You advise {who} on {topic}."], model="scripted:advice"),
    parameters={"type": "object", "properties": {"question": {"type": "string"}}},
    message="question",
)
WEIGH = PromptTool(
    name="weigh",
    prompt=Prompt(name="weighing", model="scripted:advice", tools=[scale]),
    parameters={"type": "object"},
)

#: What the agent `front` hands over with: to the agent that the name says, where there is one that may play.
HANDOFFS = [
    Handoff(name="to_desk", agent="desk"),
    Handoff(name="ask_for_desk", agent="desk", requires_approval=True),
    Handoff(name="to_replier", agent="replier"),
    Handoff(name="to_front", agent="front"),
    Handoff(name="to_duel", agent="duel"),
    Handoff(name="to_guide", agent="guide"),
    Handoff(name="to_broken", agent="broken"),
    Handoff(name="to_nobody", agent="nobody"),
    Handoff(name="to_none", agent="nobody", optional=True),
]
#: What the agent `guide` requires of its threads.
CITY = {"properties": {"city": {"type": "string"}}, "required": ["city"]}


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a tool did once: the call that it was for and the token that it was given."""

    call_id: str
    token: str
    had_result: bool
    """True if a result of this very call was stored already: then it must not have run."""


@dataclass(kw_only=True)
class Guests:
    """Ledger and model log of one schedule. `stored` answers the ids of the calls and answers that are stored now."""

    stored: Callable[[], set[str]]
    effects: list[Effect] = field(default_factory=list)
    requests: list[ModelRequest] = field(default_factory=list)
    repeats: list[str] = field(default_factory=list)
    """Model calls that asked for what was stored."""

    while_asked: Callable[[int], None] = lambda count: None
    """Called on the model's thread with the number of this model call, before it answers."""

    def agents(self) -> dict[str, Agent]:
        """The shipped agents with their tools watched, and one more that has a scripted child as a tool."""

        def tools(arguments: Mapping[str, Any]) -> list[Tool]:
            return [self._watched(tool) for tool in scripted.tools_for(arguments)]

        def with_helper(arguments: Mapping[str, Any]) -> list[Tool]:
            return [*tools(arguments), HELPER, TO_GUIDE, TO_SECOND]

        def with_scout(arguments: Mapping[str, Any]) -> list[Tool]:
            return [*tools(arguments), SCOUT]

        eager = replace(scripted, name="eager", tools=with_scout)
        boss = replace(scripted, name="boss", tools=with_helper)
        samples = {name: self._sample(agent) for name, agent in AGENTS.items()}
        plain = {**samples, scripted.name: replace(scripted, tools=tools), boss.name: boss, eager.name: eager}
        return plain | {agent.name: agent for agent in (*self._sided(), *self._handing(tools))}

    def _handing(self, tools: Callable[[Mapping[str, Any]], list[Tool]]) -> list[Agent]:
        """Agents that hand their threads over, played by the script in the thread's arguments."""

        def broken(arguments: Mapping[str, Any]) -> list[Tool]:
            raise RuntimeError("no tools today")

        back = [Handoff(name="back", agent="front")]
        return [
            replace(scripted, name="front", prompt="The front.", tools=lambda given: [*tools(given), *HANDOFFS]),
            Agent(name="desk", prompt="The desk.", model="scripted:desk", tools=back, options={"seed": 7}),
            Agent(name="broken", tools=broken),
        ]

    def _sided(self) -> list[Agent]:
        """Agents whose sides stop on tools, played by the script in the thread's arguments."""
        ends = [
            self._watched(Tool(name=name, description=name, parameters={}, run=_given, on_retry="again"))
            for name in ("reply", "stop", "fail")
        ]
        prompt = Prompt(name="scripted", model="scripted:script", tools=ends)
        rules = Side(
            prompt=prompt, stop_tool="reply", response_property="text", session_stop="stop", session_fail="fail"
        )
        other = replace(prompt, model="scripted:other")
        talks_on = replace(rules, stop_on_response=False, max_steps=4)
        human = Side(human=True)
        return [
            replace(debate, model="offline:demo"),
            Agent(name="guide", model="scripted:script", required=CITY),
            Agent(name="adviser", model="scripted:script", tools=[ADVISE, WEIGH], parallel_tool_calls=False),
            Agent(name="replier", side_a=talks_on),
            Agent(name="duel", kind="dual_ai", side_a=rules, side_b=rules, max_turns=5),
            Agent(name="voices", kind="dual_ai", side_a=rules, side_b=replace(rules, prompt=other), max_turns=4),
            Agent(name="talk", kind="dual_ai", side_a=human, side_b=rules),
        ]

    def resolve(self, name: str) -> Model:
        """The model of that name, as `ports.Models` has it."""
        model = ModelRegistry(scripted=True).resolve(name)
        return _Recorded(model=replace(model, pause_seconds=0) if isinstance(model, Offline) else model, guests=self)

    def note(self, request: ModelRequest) -> None:
        """A model is asked."""
        self.requests.append(request)
        if (name := request.messages[0]["id"]).startswith("aside_"):
            if name.removeprefix("aside_") in self.stored():
                self.repeats.append(f"{name} was asked while its call had a result")
        else:
            self._check_shown(request)
        self.while_asked(len(self.requests))

    def _check_shown(self, request: ModelRequest) -> None:
        shown = {message["id"] for message in request.messages}  # of two sides, the other is shown as a user
        shown |= {re.sub("d([0-9]+)$", r"s\1", name) for name in shown}  # what a stop tool said stands for its step
        thread = request.messages[0]["id"].split("_")[1]
        answers = [name for name in self.stored() if name.startswith(f"msg_{thread}_r")]
        stored = {name for name in answers if "s" in name.rpartition("_")[2]}
        if stored - shown:
            self.repeats.append(f"asked with {sorted(shown)} while {sorted(stored)} were stored")

    def _sample(self, agent: Agent) -> Agent:
        """A shipped agent, on the model that explains; what the turn plays itself is not for watching."""
        if agent.sides:
            return replace(agent, model="offline:demo")
        tools = [tool if tool.by_the_turn else self._watched(_patient(tool)) for tool in agent.tools_for({})]
        return replace(agent, tools=tools, model="offline:demo")

    def _watched(self, tool: Tool) -> Tool:
        def run(state: ThreadState, arguments: dict[str, Any]) -> Any:
            had_result = state.call_id in self.stored()
            effect = Effect(call_id=state.call_id, token=state.idempotency_token, had_result=had_result)
            self.effects.append(effect)
            if after := arguments.get("after"):
                self._wait_for(after, state.cancel)
            return tool.run(state, arguments)

        return replace(tool, run=run)

    def _wait_for(self, call_id: str, cancel: Cancel) -> None:
        """Parallel calls land in the order that the script asks for, so that a schedule repeats itself."""
        pause, waited = 0.002, 0.0
        while call_id not in self.stored() and not cancel.wait(pause):
            waited += pause
            assert waited < GIVEN_UP_SECONDS, f"no result of {call_id} was ever stored"


def _given(state: ThreadState, arguments: dict[str, Any]) -> Any:
    return arguments


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    model: Model
    guests: Guests

    def stream(self, request: ModelRequest, cancel: Cancel) -> Iterator[Chunk]:
        self.guests.note(request)
        yield from self.model.stream(request, cancel)


def _patient(tool: Tool) -> Tool:
    """The tool asks a store that did not answer again. If its process dies, its result reaches nobody."""

    def run(state: ThreadState, arguments: dict[str, Any]) -> Any:
        try:
            try:
                return tool.run(state, arguments)
            except OSError:
                if state.asker:
                    state.asker.given = 0  # it begins anew, and so do the answers
                return tool.run(state, arguments)
        except Died:
            return None

    return replace(tool, run=run)
