"""What is played under faults: small conversations with the scripted agent, and what must have become of each."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from chalicelib.domain.commands import Delivery
from chalicelib.domain.ids import ThreadRef
from chalicelib.engine.registry import registry
from tests.crash.audit import told
from tests.crash.tap import Moment
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
    sweeps: int = 0
    """How often the sweep must come before all is done, without a fault."""
    first: int = 1
    """The first call that faults strike. The calls before it only set the stage, and other scenarios have them."""


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
#: A script is played by the number of model calls that left a trace: asked again after a flush is the next step.
AGAIN = 6


LONG_TEXT: Mapping[str, Any] = {"script": [step(text("a" * LONG), text("b" * LONG))] * AGAIN}


def _two_tools_script(on_retry: str) -> dict[str, Any]:
    return {"script": [TWO_CALLS, *[step(text("Both are done."))] * AGAIN], "tools": tools(on_retry)}


def _plain(arguments: Mapping[str, Any]) -> Callable[[World], None]:
    def play(world: World) -> None:
        world.create(arguments)
        world.rest()

    return play


def _large(world: World) -> None:
    large = {"large": {"returns": "r" * LARGE, "on_retry": "again"}}
    script = [step(*call("c1", "large"), stop="tool_calls"), *[step(text("That was much."))] * AGAIN]
    world.create({"script": script, "tools": large}, text="t" * LARGE)
    world.rest()


def _second_message(world: World) -> None:
    world.create({"script": [step(text("one")), *[step(text("two"))] * AGAIN]})
    world.rest()
    world.post("and then?")
    world.rest()


def _joins_in_flight(world: World) -> None:
    """Ten messages come while the model is first asked."""

    def while_asked(count: int) -> None:
        if count == 1:
            world.meanwhile(lambda: [world.post(words) for words in JOINS])

    world.guests.while_asked = while_asked
    world.create({"script": [step(text("answer"))] * AGAIN})
    world.rest()


def _resets(world: World) -> None:
    """The first answer breaks off, the second is whole."""
    cut = {"events": [text("c" * LONG)]}
    world.create({"script": [cut, *[step(text("whole"))] * AGAIN]})
    world.rest()


def _broken_tools(world: World) -> None:
    """What the thread declares as a tool is none."""
    world.create({"script": [step(text("never said"))], "tools": {"broken": 5}})
    world.rest()


def _failing_model(world: World) -> None:
    """The model fails for good, after it has said something, while a message waits."""
    error = {"type": "error", "status": 400, "detail": "no", "retryable": False}
    world.create({"script": [{"events": [text("d" * LONG), error]}] * AGAIN})
    world.post("wait for me")
    world.rest()


def _lost(script: Mapping[str, Any], call: int) -> Callable[[World], None]:
    """A first attempt has died after one of its calls; faults strike whoever takes the run up."""

    def play(world: World) -> None:
        world.sweeps_count = True
        world.create(script)
        world.tap.at(len(world.tap.calls) + call, Moment.AFTER, world.tap.die)
        world.rest()

    return play


def _cancelled_while_lost(world: World) -> None:
    """An attempt has died in the middle of its answer; a client cancels the run. Another run waits behind it."""
    world.sweeps_count = True
    world.create(LONG_TEXT)
    world.post("next", Delivery.ENQUEUE)
    world.tap.at(len(world.tap.calls) + 3, Moment.AFTER, world.tap.die)
    world.deliver()
    world.cancel()
    world.rest()


def _cancelled_when_lost_for_long(world: World) -> None:
    """As before, but the lease is over when the client cancels: the cancel settles the run itself."""
    world.sweeps_count = True
    world.create(LONG_TEXT)
    world.post("next", Delivery.ENQUEUE)
    world.tap.at(len(world.tap.calls) + 3, Moment.AFTER, world.tap.die)
    world.deliver()
    world.clock.sleep(40)
    world.cancel()
    world.rest()


def _withdrawn(world: World) -> None:
    """A client stops everything, before anything began."""
    world.create(LONG_TEXT)
    world.post("next", Delivery.ENQUEUE)
    world.post("join")
    world.stop_everything()
    world.rest()


ASKS_BOTH = step(*call("c1", "pay"), *call("c2", "ask"), *call("c3", "look"), stop="tool_calls")
PEOPLE: Mapping[str, Any] = {
    "pay": {"returns": "paid", "requires_approval": True, "on_retry": "again"},
    "ask": {"asks": {"question": "Which?", "options": ["a", "b"]}, "on_retry": "again"},
    "look": {"returns": "seen", "on_retry": "again"},
}
ASKING = {"script": [ASKS_BOTH, *[step(text("Thank you."))] * AGAIN], "tools": PEOPLE}


def _decided(world: World) -> None:
    """A run waits for an approval and an answer; both come, and it goes on."""
    world.create(ASKING)
    world.rest()
    world.answer("a")
    world.decide(approve=True)
    world.rest()


def _superseded(world: World) -> None:
    """A message comes in the place of both."""
    world.create(ASKING)
    world.rest()
    world.post("never mind")
    world.rest()


def _cancelled_while_waiting(world: World) -> None:
    """The waiting run is cancelled; another runs behind it."""
    world.create(ASKING)
    world.rest()
    world.post("next", Delivery.ENQUEUE)
    world.cancel()
    world.rest()


def _terminated(world: World) -> None:
    """A thread with a run in flight that has lost its attempt, one queued and a join pending, is ended for good."""
    world.sweeps_count = True
    world.create(LONG_TEXT)
    world.post("next", Delivery.ENQUEUE)
    world.post("join")
    world.tap.at(len(world.tap.calls) + 3, Moment.AFTER, world.tap.die)
    world.deliver()
    world.terminate()
    world.rest()


def spawning(*kids: Mapping[str, Any], tool: str = "subagent_create") -> dict[str, Any]:
    """A model step that makes a child for each of these arguments."""
    parts: list[Event] = []
    for number, arguments in enumerate(kids, start=1):
        given = {"name": f"kid {number}", "arguments": arguments} if tool == "subagent_create" else arguments
        parts += call(f"k{number}", tool, json.dumps(given))
    return step(*parts, stop="tool_calls")


def kid(*script: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a child that plays this."""
    return {"script": list(script)}


KIDS = [kid(*[step(text(f"kid {number} is done"))] * AGAIN) for number in (1, 2)]
FAMILY = {"script": [spawning(*KIDS), *[step(text("I see."))] * 2 * AGAIN]}
WITH_HELPER = {"script": [spawning(KIDS[0], tool="helper"), *[step(text("I see."))] * AGAIN]}
PLACED = (
    *call("s1", "child_session_create", '{"idempotency_key": "a", "prompt": "do a"}'),
    *call("s2", "child_session_create", '{"idempotency_key": "b", "prompt": "do b"}'),
)
GATHERED = call("g", "child_session_gather", '{"ids": ["${s1.reference_id}", "${s2.reference_id}"]}')
SESSIONS = {
    "script": [
        step(*PLACED, stop="tool_calls"),
        step(*GATHERED, stop="tool_calls"),
        *[step(text("That is it."))] * 3 * AGAIN,
    ]
}


def _sided(agent: str, *script: Mapping[str, Any]) -> Callable[[World], None]:
    def play(world: World) -> None:
        rules = {name: {"on_retry": "again"} for name in ("reply", "stop", "fail")}  # as the audit reads them
        world.create({"script": list(script), "tools": rules}, agent=agent)
        world.rest()

    return play


#: What each prompt that is a tool is answered, in the arguments of its call.
ADVICE = {"topic": "tea", "question": "Which?", "script": [step(text("Green, "), text("of course."))]}
WEIGHTS = [event for grams in (5, 5, -1) for event in call(f"w{grams}", "scale", json.dumps({"grams": grams}))]
SCALES = {"script": [step(text("All."), *WEIGHTS)]}
ADVISED = step(*call("c1", "advise", json.dumps(ADVICE)), *call("c2", "weigh", json.dumps(SCALES)), stop="tool_calls")

REPLIES = step(*call("r1", "reply", '{"text": "That is settled."}'), stop="tool_calls")
STOPS = step(text("Enough."), *call("e1", "stop"), stop="tool_calls")
FAILS = step(*call("f1", "fail"), stop="tool_calls")


def _advised(world: World) -> None:
    world.create({"script": [ADVISED, *[step(text("So be it."))] * AGAIN], "who": "me"}, agent="adviser")
    world.rest()


HANDS_OVER = step(*call("t1", "first", '{"after": "h1"}'), *call("h1", "to_desk"), stop="tool_calls")
HANDS_BACK = step(*call("b1", "back"), stop="tool_calls")


def _handed_over(world: World) -> None:
    """A thread is handed over beside a tool, is played by the other in a second run too, and handed back in it."""
    answers = [step(text("The desk.")), HANDS_BACK, *[step(text("The front."))] * AGAIN]
    world.create({"script": [HANDS_OVER, *answers], "tools": tools("again")}, agent="front")
    world.rest()
    world.post("and then?")
    world.rest()


def _talked(world: World) -> None:
    """A side that is human speaks twice, and is answered twice."""
    world.create({"script": [step(text("hello to you"))] * AGAIN}, agent="talk")
    world.rest()
    world.post("and then?")
    world.rest()


def _family(world: World) -> None:
    world.create(FAMILY)
    world.rest()


def _scouted(world: World) -> None:
    """An immediate child."""
    world.create(KIDS[0], agent="eager")
    world.rest()


def _helped(world: World) -> None:
    world.create(WITH_HELPER, agent="boss")
    world.rest()


def _gathered(world: World) -> None:
    world.create(SESSIONS)
    world.rest()


def _tree_terminated(world: World) -> None:
    """A parent is ended while its children are queued."""
    world.sweeps_count = True
    world.create(FAMILY)
    world.deliver()
    world.terminate()
    world.rest()


def outcomes(world: World) -> Any:
    """Whatever died: each child is told once, in its true state, and what it said stands once in the parent."""
    shown = told(world)
    events = world.events()
    ends = [event["data"] for event in events if event["type"] == "child.completed"]
    said = json.dumps([m for m in shown["messages"] if m["role"] != "assistant"])
    kids = [audit_of(world, ref) for ref in world.children()]
    return {
        "ends": sorted((end["reference_id"], end["outcome"]) for end in ends),
        "said": {number: said.count(f"kid {number} is done") for number in (1, 2)},
        "state": shown["status"],
        "kids": kids,
    }


def audit_of(world: World, ref: ThreadRef) -> Any:
    """The child's own log tells the same story."""
    return told(world.at(ref))["status"]


def _all_taken_in(world: World) -> Any:
    """Whatever died: all messages stand once, in order, and the last answer was given in sight of all of them."""
    shown = told(world)
    said = [m["content"][0]["text"] for m in shown["messages"] if m["role"] == "user"]
    seen = [m["content"][0]["text"] for m in world.guests.requests[-1].messages if m["role"] == "user"]
    ends = [(run["status"], run["reason"]) for run in shown["runs"].values()]
    return {"said": said, "seen": seen, "last": shown["messages"][-1]["role"], "ends": ends}


def _runs_and_ends(world: World) -> Any:
    """Whatever died: the same runs came to the same ends, and each session was told once."""
    shown = told(world)
    ends = [event["data"] for event in world.events() if event["type"] == "child.completed"]
    gathered = [m["content"] for m in shown["messages"] if m["role"] == "tool"][-1:]
    return {"runs": shown["runs"], "ends": [(end["reference_id"], end["outcome"]) for end in ends], "told": gathered}


def _ended_tree(world: World) -> Any:
    """Whatever died: parent and children are at rest and terminated, if they were made; the registry says so."""
    with world.tap.outside():
        rows = registry(world.house.store, world.thread)
        heads = [world.house.store.open(ref).head for ref in world.children()]
    restless = [head for head in heads if head and (head.run or not head.terminated_at)]
    return {"parent": told(world)["status"], "restless": restless, "rows": {row.reference: row.status for row in rows}}


def _told_with_models(world: World) -> Any:
    """Whatever died: each answer is of the same model."""
    models = [event["data"]["model"] for event in world.events() if event["type"] == "usage.updated"]
    return {"told": told(world), "models": models}


def players(world: World) -> Any:
    """Whatever died: the same agents have played, with their own prompts, models and tools, and were told once."""
    events = world.events()
    models = [event["data"]["model"] for event in events if event["type"] == "usage.updated"]
    moves = [event["data"] for event in events if event["type"] == "thread.updated"]
    return {"told": told(world), "models": models, "moves": moves, "by": [world.head.played_by, world.head.played_from]}


def _forgiving(world: World) -> Any:
    return told(world, forgiving=True)


SHORT_TEXT = {"script": [step(text("Hello. "), text("How are you?"))] * AGAIN}
AGAIN_SCRIPT, SURFACE_SCRIPT = _two_tools_script("again"), _two_tools_script("surface")

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="short text", play=_plain(SHORT_TEXT)),
        Scenario(name="long text", play=_plain(LONG_TEXT)),
        Scenario(name="large", play=_large),
        Scenario(name="two tools again", play=_plain(AGAIN_SCRIPT)),
        Scenario(name="two tools surface", play=_plain(SURFACE_SCRIPT), outcome=_forgiving),
        Scenario(name="second message", play=_second_message),
        Scenario(name="ten joins", play=_joins_in_flight, outcome=_all_taken_in),
        Scenario(name="an answer that breaks off", play=_resets),
        Scenario(name="broken tools", play=_broken_tools),
        Scenario(name="a failing model", play=_failing_model),
        Scenario(name="withdrawn", play=_withdrawn),
        Scenario(name="decided", play=_decided, first=4),
        Scenario(name="superseded", play=_superseded, first=10),
        Scenario(name="cancelled while waiting", play=_cancelled_while_waiting, first=10),
        Scenario(name="terminated", play=_terminated, sweeps=1, first=12),
        Scenario(name="a stop tool", play=_sided("replier", step(text("hm")), REPLIES), first=4),
        Scenario(name="a session that fails", play=_sided("replier", FAILS), first=4),
        Scenario(name="two sides", play=_sided("duel", step(text("a")), step(text("b")), STOPS), first=4),
        Scenario(name="turns are over", play=_sided("duel", *[step(text("so"))] * AGAIN), first=4),
        Scenario(name="a side replies by a tool", play=_sided("duel", REPLIES, STOPS), first=4),
        Scenario(
            name="each side has its model",
            play=_sided("voices", *[step(text("so"))] * AGAIN),
            outcome=_told_with_models,
            first=4,
        ),
        Scenario(name="a human side", play=_talked, first=4),
        Scenario(name="prompts as tools", play=_advised, first=4),
        Scenario(name="handed over and back", play=_handed_over, outcome=players, first=4),
        Scenario(name="two children", play=_family, outcome=outcomes, first=4),
        Scenario(name="a blocking child", play=_helped, outcome=outcomes, first=4),
        Scenario(name="an immediate child", play=_scouted, outcome=outcomes, first=4),
        Scenario(name="sessions gathered", play=_gathered, outcome=_runs_and_ends, first=6),
        Scenario(name="a tree is terminated", play=_tree_terminated, outcome=_ended_tree, sweeps=2, first=9),
        Scenario(name="lost while it answered", play=_lost(LONG_TEXT, 3), sweeps=1, first=8),
        Scenario(name="lost when it had asked for tools", play=_lost(AGAIN_SCRIPT, 3), sweeps=1, first=7),
        Scenario(name="lost between two tools", play=_lost(SURFACE_SCRIPT, 4), outcome=_forgiving, sweeps=1, first=8),
        Scenario(name="cancelled while lost", play=_cancelled_while_lost, sweeps=2, first=10),
        Scenario(name="cancelled when lost for long", play=_cancelled_when_lost_for_long, sweeps=1, first=10),
    )
}
