"""What is played under faults: small conversations with the scripted agent, and what must have become of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.crash.audit import told
from tests.crash.world import World

JOINS = tuple(f"join {number}" for number in range(1, 11))
#: A delta is flushed at 2 KB (spec section 5), an event's large field goes to the bucket above 32 KB.
LONG, LARGE = 3 * 1024, 40 * 1024

Event = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A conversation. `play` is everything up to rest; `outcome` is what a fault must not change."""

    name: str
    play: Callable[[World], None]
    outcome: Callable[[World], Any] = told


def step(*events: Event, stop: str = "end") -> dict[str, Any]:
    """A model step of the script, with tokens and a finish reason."""
    return {"events": [*events, usage(3, 2), {"type": "stop", "reason": stop}]}


def text(words: str) -> Event:
    """A piece of text."""
    return {"type": "text", "text": words}


def usage(given: int, said: int) -> Event:
    """Tokens of an answer."""
    return {"type": "usage", "mode": "total", "input": given, "output": said}


def call(call_id: str, name: str, arguments: str = "{}") -> tuple[Event, Event]:
    """A tool call."""
    return (
        {"type": "call_start", "id": call_id, "name": name},
        {"type": "call_args", "id": call_id, "part": arguments},
    )


def tools(on_retry: str) -> dict[str, Any]:
    """Two tools that answer at once."""
    return {name: {"returns": {"said": name}, "on_retry": on_retry} for name in ("first", "second")}


#: The second call lands after the first is stored, so that the calls of a schedule are the same each time.
TWO_CALLS = step(*call("c1", "first"), *call("c2", "second", '{"after": "c1"}'), stop="tool_calls")
#: A script is played by the number of model calls that left a trace: what is asked again after a flush is the next step.
AGAIN = 6


def _to_rest(world: World) -> None:
    world.settle()
    world.redeliver_all()


def _short_text(world: World) -> None:
    world.create({"script": [step(text("Hello. "), text("How are you?"))] * AGAIN})
    _to_rest(world)


def _long_text(world: World) -> None:
    world.create({"script": [step(text("a" * LONG), text("b" * LONG))] * AGAIN})
    _to_rest(world)


def _large(world: World) -> None:
    large = {"large": {"returns": "r" * LARGE, "on_retry": "again"}}
    script = [step(*call("c1", "large"), stop="tool_calls"), *[step(text("That was much."))] * AGAIN]
    world.create({"script": script, "tools": large}, text="t" * LARGE)
    _to_rest(world)


def _two_tools(on_retry: str) -> Callable[[World], None]:
    def play(world: World) -> None:
        script = [TWO_CALLS, *[step(text("Both are done."))] * AGAIN]
        world.create({"script": script, "tools": tools(on_retry)})
        _to_rest(world)

    return play


def _second_message(world: World) -> None:
    world.create({"script": [step(text("one")), *[step(text("two"))] * AGAIN]})
    _to_rest(world)
    world.post("and then?")
    _to_rest(world)


def _joins_in_flight(world: World) -> None:
    """Ten messages come while the model is first asked."""

    def while_asked(count: int) -> None:
        if count == 1:
            with world.tap.outside():
                for words in JOINS:
                    world.post(words, house=world.process(salt=words))

    world.guests.while_asked = while_asked
    world.create({"script": [step(text("answer"))] * AGAIN})
    _to_rest(world)


def _all_taken_in(world: World) -> Any:
    """Whatever died: all messages stand once, in order, and the last answer was given in sight of all of them."""
    shown = told(world)
    said = [m["content"][0]["text"] for m in shown["messages"] if m["role"] == "user"]
    seen = [m["content"][0]["text"] for m in world.guests.requests[-1].messages if m["role"] == "user"]
    ends = [(run["status"], run["reason"]) for run in shown["runs"].values()]
    return {"said": said, "seen": seen, "last": shown["messages"][-1]["role"], "ends": ends}


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="short text", play=_short_text),
        Scenario(name="long text", play=_long_text),
        Scenario(name="large", play=_large),
        Scenario(name="two tools again", play=_two_tools("again")),
        Scenario(
            name="two tools surface", play=_two_tools("surface"), outcome=lambda world: told(world, forgiving=True)
        ),
        Scenario(name="second message", play=_second_message),
        Scenario(name="ten joins", play=_joins_in_flight, outcome=_all_taken_in),
    )
}
