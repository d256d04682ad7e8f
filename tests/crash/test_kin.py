"""What code does with the family of its thread: it looks at it, speaks to the parent once, labels and ends itself."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from chalicelib.engine.state import ThreadState
from tests.crash.audit import told
from tests.crash.faults import FAULTS
from tests.crash.residents import POINTS, result, said, settled_in, struck
from tests.crash.scenarios import AGAIN, call, kid, spawning, step, text
from tests.crash.world import World

Worlds = Callable[[str], World]
ENDS = [step(text("Done."))] * 4 * AGAIN
TOOL = {"first": {"on_retry": "again"}}
CHILD = {**kid(step(*call("c1", "first"), stop="tool_calls"), *ENDS), "tools": TOOL}


def with_child(world: World) -> None:
    world.create({"script": [spawning(CHILD), *ENDS]})
    world.rest()


def notes(world: World) -> list[str]:
    return [words for _, words in said(world) if "says:" in words]


def _speaks_up(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
    told_it = state.notify_parent("half of it is done")
    state.set_status("halfway")
    return told_it


def test_a_child_speaks_to_its_parent_and_labels_itself(world: Worlds) -> None:
    its = settled_in(world("speaks up"), _speaks_up)
    with_child(its)
    assert notes(its) == ["Subagent kid 1 (sub-1-1-1) says:\nhalf of it is done"]
    with its.tap.outside():
        (row,) = its.house.read.children(its.principal, its.thread.id, limit=5, position=None).items
    assert (row["label"], row["status"]) == ("halfway", "completed")
    (shown,) = [m for m in told(its)["messages"] if "says:" in json.dumps(m)]
    assert (shown["silent"], shown["subagent_id"], shown["subagent_name"]) == (True, "sub-1-1-1", "kid 1")


@pytest.mark.parametrize("every", POINTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_note_is_heard_once_whatever_dies(world: Worlds, fault: str, every: int) -> None:
    clean = settled_in(world("note: clean"), _speaks_up)
    with_child(clean)
    for point in struck(clean, fault, every, first=9):
        its = settled_in(world(f"note: {fault} at {point}"), _speaks_up)
        FAULTS[fault](its.tap, point)
        with_child(its)
        assert len(notes(its)) == 1, its.seed


def test_a_child_knows_its_parent_and_a_parent_its_children(world: Worlds) -> None:
    seen: dict[str, Any] = {}

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        parent = state.get_parent_thread()
        if parent is None:
            seen["children"] = state.children
            child = state.get_child_thread(state.children[0]["reference_id"])
            seen["said"] = [m["role"] for m in child.get_messages()]
            with pytest.raises(LookupError):
                state.get_child_thread("sub-9-9-9")
            state.set_status("nothing")
            seen["heard"] = state.notify_parent("hello?")
        else:
            seen["parent"] = (parent.thread_id, parent.status()["state"])
        return None

    its = settled_in(world("family"), use)
    script = [spawning(CHILD), step(text("I wait.")), step(*call("p1", "first"), stop="tool_calls"), *ENDS]
    its.create({"script": script, "tools": TOOL})
    its.settle()
    assert seen["parent"] == (its.thread.id, "idle")
    assert [row["name"] for row in seen["children"]] == ["kid 1"]
    assert seen["said"][0] == "user"
    assert seen["heard"] is False


def test_code_that_ends_its_own_thread_cancels_its_run(world: Worlds) -> None:
    its = settled_in(world("ends itself"), lambda state, arguments: state.terminate())
    its.create({"script": [step(*call("c1", "first"), stop="tool_calls"), *ENDS], "tools": TOOL})
    its.post("next")
    its.settle()
    assert told(its)["status"] == {"state": "idle", "reason": "terminated"}
    assert {run["status"] for run in told(its)["runs"].values()} == {"cancelled"}
    assert result(its)[0] == "aborted"
    assert its.head.terminated_at
