"""The product with one more guest, for journeys: hosted by the launcher as `--app tests.journeys.guest_app`.

Everything is the product's own `app`; what is added is what its users add. The agent `guest` plays scripts and
fake tools like the shipped `scripted` agent and has tools whose results no thread argument could hold: of any size, of
any Python kind. Its
model writes each request down, if the thread's arguments name a file for it, so that a test can read what was asked.
"""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any, Literal

from app import (
    app as app,
)
from app import (
    connect as connect,
)
from app import (
    disconnect as disconnect,
)
from app import (
    fan_out as fan_out,
)
from app import (
    message as message,
)
from app import (
    provision as provision,
)
from app import (
    run_turn as run_turn,
)
from app import (
    sweep as sweep,
)
from chalicelib import bootstrap, settings
from chalicelib.agents import AGENTS
from chalicelib.engine.agent import Agent, Tool, tool
from chalicelib.engine.effects import effect
from chalicelib.engine.endpoints import Problem, Request, endpoint
from chalicelib.engine.handoff import Handoff
from chalicelib.engine.models import ModelRegistry
from chalicelib.engine.state import ThreadState
from chalicelib.ports import Cancel, Chunk, Model, ModelRequest

#: How often a deaf tool looks before it gives up by itself: a minute, longer than any test waits.
DEAF_PAUSES = 3000

Letters = Literal["ascii", "emoji", "quotes", "random"]


def written(letters: Letters, size: int, seed: int = 0) -> str:
    """A text of `size` bytes of UTF-8 (emoji: rounded down to whole ones); `random` hardly compresses."""
    if letters == "random":
        return "".join(random.Random(seed).choices("".join(map(chr, range(35, 91))), k=size))
    unit = {"ascii": "a", "emoji": "\N{ROCKET}", "quotes": '"'}[letters]
    return unit * (size // len(unit.encode()))


@tool
def write(letters: Letters, size: int, seed: int = 0) -> str:
    """A text of a size in bytes."""
    return written(letters, size, seed)


class Unreadable:
    """An object that refuses to be looked at."""

    def __str__(self) -> str:
        raise RuntimeError("not for your eyes")


def _around() -> list[Any]:
    inside: list[Any] = []
    inside.append(inside)
    return inside


#: Values that are no JSON, by name.
ODD: dict[str, Any] = {
    "nan": float("nan"),
    "infinity": float("-inf"),
    "decimal": Decimal("0.1"),
    "empty set": set(),
    "set": {2, 1},
    "bytes": b"\xff\x00",
    "datetime": datetime(2026, 1, 1),
    "exception": ValueError("x"),
    "half": "bad \ud800 half and \0 nul",
    "split": "\ud83d\ude80",
    "itself": _around(),
    "unreadable": Unreadable(),
    "keys": {1: "a", "1": "b", None: "c", (1, 2): "d"},
}


@tool
def odd(kind: str) -> Any:
    """A value that is no JSON."""
    return {"value": ODD[kind]}


@tool
def raising(kind: str) -> Any:
    """Fails with a value that is no JSON in its text."""
    raise RuntimeError(ODD[kind])


@tool
def repeat(value: Any) -> Any:
    """The argument itself."""
    return value


@tool(timeout_seconds=0.5)
def late(state: ThreadState) -> str:
    """Takes longer than it may."""
    state.wait(20)
    return "late"


@tool
def deaf(folder: str) -> str:
    """Hears no cancel: works until there is a file `go` in its folder, then leaves a file `done` there."""
    pause, pauses = Event(), 0
    while not Path(folder, "go").exists() and pauses < DEAF_PAUSES:
        pauses += 1
        pause.wait(0.02)
    Path(folder, "done").touch()
    return "much too late"


#: To another agent and, in its hands, back.
HANDOFFS = (Handoff(name="to_host", agent="host"), Handoff(name="to_guest", agent="guest"))


def _tools(arguments: Mapping[str, Any]) -> list[Tool]:
    return [*AGENTS["scripted"].tools_for(arguments), write, odd, raising, repeat, late, deaf, *HANDOFFS]


@effect
def remind(state: ThreadState, text: str) -> None:
    """Says something later."""
    state.emit("reminded", {"token": state.idempotency_token})
    state.queue_message(text)


@endpoint(method="POST", name="remind")
def plan(state: ThreadState, request: Request) -> dict[str, Any]:
    """Lets the thread be reminded."""
    if not isinstance(request.body, dict) or "text" not in request.body:
        raise Problem(422, "What of?")
    return {"effect": state.schedule_effect("remind", {"text": request.body["text"]}), "city": state.env.get("CITY")}


@endpoint(name="remind")
def planned(state: ThreadState, request: Request) -> list[dict[str, Any]]:
    """What the thread is to be reminded of."""
    return state.get_scheduled_effects()


AGENTS["guest"] = Agent(
    name="guest", model="scripted:script", tools=_tools, endpoints=[plan, planned], effects=[remind]
)
AGENTS["host"] = Agent(name="host", model="scripted:host", tools=HANDOFFS)


@dataclass(frozen=True)
class Watched:
    """A model that writes its requests down."""

    model: Model

    def stream(self, request: ModelRequest, cancel: Cancel) -> Iterator[Chunk]:
        """As the model, after a line with the messages in the file that the thread's arguments name."""
        file = request.arguments.get("watch")
        if isinstance(file, str):
            with Path(file).open("a") as lines:
                lines.write(json.dumps(list(request.messages)) + "\n")
        yield from self.model.stream(request, cancel)


@dataclass(frozen=True)
class WatchedModels:
    """The registry of the local stage, each model watched."""

    registry: ModelRegistry

    def resolve(self, name: str) -> Model:
        """The model of that name."""
        return Watched(self.registry.resolve(name))


@cache
def house() -> bootstrap.House:
    """The house of this process, with models that are watched."""
    return bootstrap.House(settings.read(), models=WatchedModels(ModelRegistry(scripted=True)))


bootstrap.house = house
