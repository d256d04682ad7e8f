"""A prompt as a tool: asked once beside the conversation, its answer is the result, and what it cost is counted."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from chalicelib.engine.agent import Agent
from chalicelib.engine.attempt import WATCH_SECONDS
from chalicelib.ports import Cancel, Chunk, Model, ModelRequest, Text, Usage
from tests.crash.audit import audit
from tests.crash.guests import ADVISE, GIVEN_UP_SECONDS, Guests
from tests.crash.residents import results, rows
from tests.crash.scenarios import ADVICE, AGAIN, SCENARIOS, call, step, text
from tests.crash.tap import Moment
from tests.crash.world import World

Worlds = Callable[[str], World]
ENDS = [step(text("So be it."))] * AGAIN


def asked(world: World, arguments: Mapping[str, Any], *, count: int = 1) -> World:
    """A run that asks for advice, each time with these arguments."""
    calls = [event for n in range(1, count + 1) for event in call(f"c{n}", "advise", json.dumps(arguments))]
    world.create({"script": [step(*calls, stop="tool_calls"), *ENDS * count], "who": "me"}, agent="adviser")
    world.rest()
    return world


def spent(world: World) -> dict[str, int]:
    """Model -> its requests."""
    with world.tap.outside():
        cost = world.house.cost.thread_cost(world.principal, world.thread.id)
    return {line["model"]: line["requests"] for line in cost["models"]}


def test_the_answer_is_the_result_and_no_message(world: Worlds) -> None:
    at = world("advice")
    SCENARIOS["prompts as tools"].play(at)
    assert audit(at) == []
    (_, advice), (outcome, weighed) = results(at).values()
    assert (advice, outcome, weighed["text"]) == ("Green, of course.", "ok", "All.")
    assert [weight["outcome"] for weight in weighed["calls"]] == ["ok", "ok", "error"]
    assert [weight["arguments"] for weight in weighed["calls"]] == [{"grams": 5}, {"grams": 5}, {"grams": -1}]
    assert weighed["calls"][2]["result"] == "Nothing weighs less than nothing."
    assert len({weight["result"]["token"] for weight in weighed["calls"][:2]}) == 2
    asides = [request for request in at.guests.requests if request.messages[0]["id"].startswith("aside_")]
    assert [request.system for request in asides] == ["You advise me on tea.", ""]
    assert asides[0].messages[0]["content"][0]["text"] == "Which?"
    assert [[spec.name for spec in request.tools] for request in asides] == [[], ["scale"]]


def test_what_it_uses_is_counted_with_its_model_and_stands_in_the_log(world: Worlds) -> None:
    at = world("counted")
    SCENARIOS["prompts as tools"].play(at)
    assert spent(at) == {"scripted:script": 2, "scripted:advice": 2}
    assert [(row["model"], row["error"]) for row in rows(at, "llm")] == [
        ("scripted:script", None),
        ("scripted:advice", None),
        ("scripted:advice", None),
        ("scripted:script", None),
    ]


def test_a_model_that_fails_for_a_moment_is_asked_again_and_one_that_fails_for_good_is_an_error(world: Worlds) -> None:
    def fails(retryable: bool) -> dict[str, Any]:
        return {"events": [{"type": "error", "status": 503, "detail": "overloaded", "retryable": retryable}]}

    at = asked(world("for a moment"), {"script": [fails(True), step(text("Better."))]})
    assert results(at) == {"c1": ("ok", "Better.")}
    assert [row["error"] for row in rows(at, "llm")] == [None, "overloaded", None, None]
    assert audit(at) == []
    at = asked(world("for good"), {"script": [fails(False), step(text("Never."))]})
    assert results(at) == {"c1": ("error", "The model gave no answer: overloaded")}
    assert audit(at) == []


def test_a_truncated_answer_is_asked_for_again(world: Worlds) -> None:
    at = asked(world("cut"), {"script": [{"events": [text("Gre")]}, step(text("Green."))]})
    assert results(at) == {"c1": ("ok", "Green.")}
    assert spent(at)["scripted:advice"] == 2


@dataclass(kw_only=True)
class Stalling(Guests):
    """A model that begins to answer, and is heard no further."""

    begun: Callable[[], None] = lambda: None

    def agents(self) -> dict[str, Agent]:
        found = super().agents()
        prompt = replace(ADVISE.prompt, model="scripted:stalls")
        return found | {"adviser": replace(found["adviser"], tools=[replace(ADVISE, prompt=prompt)])}

    def resolve(self, name: str) -> Model:
        return self if name == "scripted:stalls" else super().resolve(name)

    def stream(self, request: ModelRequest, cancel: Cancel) -> Iterator[Chunk]:
        yield Usage(mode="total", input_tokens=7, output_tokens=1)
        yield Text(text="Gre")
        self.begun()
        cancel.wait(GIVEN_UP_SECONDS)


@pytest.mark.parametrize("ending", ["late", "cancelled"])
def test_an_answer_that_is_given_up_is_counted_as_far_as_it_went(world: Worlds, ending: str) -> None:
    at = world(f"given up: {ending}")

    def begun() -> None:
        if ending == "cancelled":
            at.meanwhile(at.cancel)
        at.clock.sleep(WATCH_SECONDS if ending == "cancelled" else ADVISE.timeout_seconds)

    at.guests = Stalling(stored=lambda: at.tap.stored, begun=begun)
    at.house = at.process()
    asked(at, ADVICE)
    assert audit(at) == []
    outcome, said = results(at)["c1"]
    if ending == "late":
        assert (outcome, said) == ("error", "The tool gave no result in 300 s and was given up.")
    else:
        assert outcome == "aborted"
    given_up = [row for row in rows(at, "llm") if row["model"] == "scripted:stalls"]
    assert [row["error"] for row in given_up] == ["The answer was given up before it was whole."]
    assert given_up[0]["input_tokens"] == 7


def test_a_call_that_a_dead_runner_had_begun_is_asked_again_and_both_are_counted(world: Worlds) -> None:
    at = world("lost")
    at.guests.while_asked = lambda count: (
        at.tap.at(len(at.tap.calls) + 1, Moment.BEFORE, at.tap.die) if count == 2 else None
    )
    asked(at, ADVICE)
    assert audit(at) == []
    assert results(at) == {"c1": ("ok", "Green, of course.")}
    lost, whole = [row for row in rows(at, "llm") if row["model"] == "scripted:advice"]
    assert (lost["error"], whole["error"]) == ("The attempt was lost before the answer was whole.", None)
    assert spent(at)["scripted:advice"] == 2
