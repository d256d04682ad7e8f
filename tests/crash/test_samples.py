"""The shipped agents on the offline model: what each is there to show happens, and happens once, whatever dies.

`make test` strikes some points, others for each fault; in `make test-slow` the process dies at every call.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.agents import AGENTS
from tests.crash.audit import audit, told
from tests.crash.faults import FAULTS, struck
from tests.crash.residents import value
from tests.crash.scenarios import Scenario
from tests.crash.world import World

Worlds = Callable[[str], World]
SOME = 32
POINTS = [pytest.param(SOME, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]

NOTES = """\
/save_note {"name": "tea", "text": "Green tea: 80 degrees."}

/save_note {"name": "sum", "text": "none"}

/calculate {"expression": "6 * 7"}

/list_notes

/read_note {"name": "${4.notes.1}"}
"""
SCALE = '/check_service {"service": "web"}\n\n/scale_service {"service": "web", "replicas": 0}\n\n/list_services'
NAME, EMAIL, DAY, GUESTS = "Ada", "ada@example.org", "Friday", 3
FORM = {"name": NAME, "email": EMAIL, "day": DAY, "guests": GUESTS}
QUESTION = "Shall we move the meeting to Monday?"


def _note(world: World) -> None:
    world.create({}, text=NOTES, agent="assistant")
    world.rest()


def _research(world: World) -> None:
    world.create({}, text=QUESTION, agent="researcher")
    world.rest()


def _fill(world: World) -> None:
    """The name is known, the first number of guests is none."""
    world.create({}, text=f'Please fill form, name is "{NAME}".', agent="form_filler")
    for answer in (EMAIL, DAY, "many", GUESTS):
        world.rest()
        world.answer(answer)
    world.rest()


def _operate(world: World) -> None:
    world.create({}, text=SCALE, agent="operator")
    world.rest()
    world.decide(approve=True)
    world.rest()


def file(world: World, path: str) -> str:
    """A file of the thread, as clients read it."""
    with world.tap.outside():
        shown = world.house.files.get_file(world.principal, world.thread.id, path)
    assert shown.data is not None
    return shown.data.decode()


def results(world: World) -> list[tuple[str, Any]]:
    """Outcome and result of each call, in the order of the calls."""
    parts = [part for message in told(world)["messages"] for part in message["content"]]
    return [(part["outcome"], part["content"]) for part in parts if part["type"] == "tool_result"]


def _with_files(*paths: str) -> Callable[[World], Any]:
    def outcome(world: World) -> Any:
        return {"told": told(world), "files": [file(world, path) for path in paths]}

    return outcome


def _research_outcome(world: World) -> Any:
    """Reports of children land in an order of their own; what was made of them does not."""
    kids = [told(world.at(ref))["status"] for ref in world.children()]
    return {"results": results(world), "state": told(world)["status"], "kids": kids, "file": file(world, "/report.md")}


def _form_outcome(world: World) -> Any:
    return {"told": told(world), "file": file(world, "/registration.json"), "value": value(world, "registration")}


def _scaled_outcome(world: World) -> Any:
    return {"told": told(world), "value": value(world, "replicas")}


def _debate(world: World) -> None:
    world.create({}, text="Tea is better than coffee.", agent="debate")
    world.rest()


PLAYS = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="assistant", play=_note, outcome=_with_files("/notes/tea.md"), first=4),
        Scenario(name="researcher", play=_research, outcome=_research_outcome, first=4),
        Scenario(name="form_filler", play=_fill, outcome=_form_outcome, first=4),
        Scenario(name="debate", play=_debate, first=4),
        Scenario(name="operator", play=_operate, outcome=_scaled_outcome, first=4),
    )
}


@pytest.mark.parametrize("every", POINTS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", PLAYS)
def test_a_fault_at_any_call_of_a_sample_costs_at_most_a_retry(
    world: Worlds, name: str, fault: str, every: int
) -> None:
    offset = 3 * list(PLAYS).index(name) + list(FAULTS).index(fault)
    wrong = struck(world, PLAYS[name], fault, every, offset)
    # A tool dies on a thread of its own; the turn's thread learns of it by its own next call.
    wrong = [line for line in wrong if "a dead process called" not in line]
    assert wrong == [], "\n".join(wrong)


def test_every_sample_has_a_play() -> None:
    """`reader` is in that of the researcher, `scripted` in all other scenarios; `guest` and `host` are the journeys'
    own, there when one of them was loaded before.
    """
    assert set(PLAYS) == set(AGENTS) - {"reader", "scripted", "guest", "host"}


def played(worlds: Worlds, name: str) -> World:
    at = worlds(f"{name} is played")
    PLAYS[name].play(at)
    assert audit(at) == []
    return at


def test_the_assistant_keeps_notes_in_files_and_finds_them_again(world: Worlds) -> None:
    at = played(world, "assistant")
    assert results(at)[2:] == [("ok", 42), ("ok", {"notes": ["sum", "tea"], "truncated": False}),
                               ("ok", "Green tea: 80 degrees.")]  # fmt: skip


def test_the_researcher_has_its_readers_at_work_side_by_side_and_writes_what_they_found(world: Worlds) -> None:
    at = played(world, "researcher")
    kinds = [event["type"] for event in at.events()]
    assert kinds.index("child.completed") > max(n for n, kind in enumerate(kinds) if kind == "child.started")
    assert len(at.children()) == 2
    report = file(at, "/report.md")
    assert report.startswith(f"# {QUESTION}\n")
    assert report.count("## Finding") == 2
    assert "What speaks against it?" in report


def test_the_form_filler_asks_only_for_what_is_missing_and_again_for_what_does_not_fit(world: Worlds) -> None:
    at = played(world, "form_filler")
    asked = [event["data"]["question"] for event in at.events() if event["type"] == "question.requested"]
    assert [question.split("?")[0] for question in asked] == [
        "Where can we write to you",
        "On which day will you come",
        "How many are you",
        "How many are you",
    ]
    assert "whole number" in asked[-1]
    assert json.loads(file(at, "/registration.json")) == value(at, "registration") == FORM


def test_the_form_filler_gives_up_a_field_that_is_answered_wrongly_too_often(world: Worlds) -> None:
    at = world("a stubborn user")
    at.create({}, text=f'Please fill form, name is "{NAME}".', agent="form_filler")
    for answer in ("one", "two", "three"):
        at.rest()
        at.answer(answer)
    at.rest()
    ((outcome, told_why),) = results(at)
    assert outcome == "error"
    assert "no mail address" in told_why
    assert audit(at) == []


def test_the_operator_waits_for_a_person_before_it_stops_a_service(world: Worlds) -> None:
    at = played(world, "operator")
    kinds = [event["type"] for event in at.events()]
    assert kinds.count("approval.requested") == 1
    assert results(at)[-1] == ("ok", {"web": 0, "worker": 2, "database": 1})


def test_the_operator_changes_nothing_when_it_is_refused_and_asks_nobody_for_what_is_small(world: Worlds) -> None:
    at = world("a refusal")
    at.create({}, text=SCALE, agent="operator")
    at.rest()
    at.decide(approve=False)
    at.rest()
    at.post('/scale_service {"service": "worker", "replicas": 3}')
    at.rest()
    outcomes = [outcome for outcome, _ in results(at)]
    assert outcomes == ["ok", "refused", "ok", "ok"]
    assert value(at, "replicas") == {"web": 3, "worker": 3, "database": 1}
    assert audit(at) == []
