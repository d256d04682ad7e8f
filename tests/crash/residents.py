"""Guests that live in a thread: the scripted agent with tools, effects, endpoints and hooks of a test's own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from chalicelib.agents.scripted import scripted
from chalicelib.engine.agent import Agent, Tool
from chalicelib.engine.effects import Effect
from chalicelib.engine.endpoints import Endpoint
from chalicelib.engine.environment import Environment
from chalicelib.engine.hooks import NO_HOOKS, Hooks
from chalicelib.engine.state import ThreadState
from tests.crash.audit import log_rows
from tests.crash.faults import FAULTS, stride
from tests.crash.guests import Guests
from tests.crash.scenarios import AGAIN, call, step, text
from tests.crash.tap import Died
from tests.crash.world import World

Use = Callable[[ThreadState, Mapping[str, Any]], Any]
#: `make test` strikes every twelfth call, others for each fault; `make test-slow` strikes them all.
POINTS = [pytest.param(12, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]
#: What an audit does not know: a process that dies while its tool is at a call, and messages that code has queued.
FORGIVEN = ("a dead process called", "I1: commands")


@dataclass(kw_only=True)
class Residents(Guests):
    """The scripted agent, with tools that do what `use` does."""

    use: Use = lambda state, arguments: None
    effects_of: Sequence[Effect] = ()
    endpoints_of: Sequence[Endpoint] = ()
    hooks: Hooks = NO_HOOKS

    def agents(self) -> dict[str, Agent]:
        """The agent as it is deployed."""
        agent = super().agents()[scripted.name]
        return {scripted.name: replace(agent, effects=self.effects_of, endpoints=self.endpoints_of, hooks=self.hooks)}

    def _watched(self, tool: Tool) -> Tool:
        def run(state: ThreadState, arguments: dict[str, Any]) -> Any:
            try:
                return self.use(state, arguments)
            except Died:
                return None  # a thread of a process that is gone; its result reaches nobody
            except pytest.fail.Exception as failed:  # no Exception, so that it would end the thread without a result
                raise AssertionError(str(failed)) from None

        return replace(tool, run=run)


def settled_in(
    world: World,
    use: Use = lambda state, arguments: None,
    *,
    effects: Sequence[Effect] = (),
    endpoints: Sequence[Endpoint] = (),
    hooks: Hooks = NO_HOOKS,
) -> World:
    """A world whose agent has this code."""
    world.guests = Residents(
        stored=lambda: world.tap.stored, use=use, effects_of=effects, endpoints_of=endpoints, hooks=hooks
    )
    world.house = world.process()
    return world


def with_secrets(world: World, **secrets: str) -> World:
    """The world's processes know secrets (those that are made from now on)."""
    make = world.process

    def process(**given: Any) -> Any:
        house = make(**given)
        house.__dict__["environment"] = Environment(texts={"CITY": "Lisbon"}, secrets=secrets)
        return house

    world.__dict__["process"] = process
    world.house = process()
    return world


def run_tool(world: World, on_retry: str = "again", arguments: str = "{}") -> None:
    """A run whose tool is asked for once."""
    script = [step(*call("c1", "first", arguments), stop="tool_calls"), *[step(text("Done."))] * AGAIN]
    world.create({"script": script, "tools": {"first": {"on_retry": on_retry}}})
    world.rest()


def rows(world: World, kind: str) -> list[dict[str, Any]]:
    """Rows of the log of one kind."""
    with world.tap.outside():
        return [row for row in log_rows(world) if row["kind"] == kind]


def result(world: World) -> tuple[str, Any]:
    """Outcome and result of the one tool call."""
    (only,) = results(world).values()
    return only


def results(world: World) -> dict[str, tuple[str, Any]]:
    """Call id -> outcome and result."""
    ends = [event["data"] for event in world.events() if event["type"] == "tool.completed"]
    return {data["call_id"]: (data["outcome"], data["result"]) for data in ends}


def runs(world: World) -> list[tuple[str, str, int]]:
    """Status, reason and steps of each run."""
    with world.tap.outside():
        page = world.house.read.runs(world.principal, world.thread.id, limit=100, position=None)
    return [(run["status"], run["reason"], run["steps"]) for run in page.items]


def value(world: World, name: str) -> Any:
    """A durable value of the thread."""
    with world.tap.outside():
        return world.house.durable.get_value(world.principal, world.thread.id, name)


def said(world: World) -> list[tuple[str, str]]:
    """Role and text of each message of the conversation."""
    with world.tap.outside():
        page = world.house.read.messages(
            world.principal, world.thread.id, descending=False, silent=True, limit=100, position=None
        )
    return [(m["role"], "".join(p.get("text", "") for p in m["content"])) for m in page.items]


def wrong(found: list[str]) -> list[str]:
    """What an audit has found, without what it cannot know here."""
    return [line for line in found if not any(line.startswith(known) for known in FORGIVEN)]


def struck(world: World, fault: str, every: int, first: int = 4) -> range:
    """The calls of a schedule that a fault strikes, one in each new world."""
    every = stride(fault, every)
    return range(first + list(FAULTS).index(fault) % every, len(world.tap.calls) + 1, every)
