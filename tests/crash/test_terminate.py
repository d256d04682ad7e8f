"""A thread that is terminated with a long queue: one write ends it, and what waits is taken back whatever dies."""

from collections.abc import Callable

import pytest

from chalicelib.domain.commands import Delivery
from chalicelib.services.cancel import WITHDRAWN_A_WRITE
from tests.crash.audit import audit, told
from tests.crash.residents import settled_in
from tests.crash.scenarios import AGAIN, call, step, text
from tests.crash.tap import Died, Moment
from tests.crash.world import World

Worlds = Callable[[str], World]
SCRIPT = {"script": [step(text("So be it."))] * AGAIN}
#: More than two writes take back; every third is a message that joins the run in flight.
WAITING = 2 * WITHDRAWN_A_WRITE + 3


def queued(world: World) -> World:
    """A run that no runner has taken yet, and a long queue behind it."""
    world.create(SCRIPT)
    with world.tap.outside():
        for number in range(WAITING):
            world.post(f"and {number}", Delivery.ENQUEUE if number % 3 else Delivery.JOIN)
    return world


def all_ended(world: World) -> bool:
    """True if everything has ended without an answer, and everything that was said stands once, in order."""
    shown = told(world)
    ends = {(run["status"], run["reason"]) for run in shown["runs"].values()}
    assert ends == {("cancelled", "terminated")}
    assert shown["status"] == {"state": "idle", "reason": "terminated"}
    assert sorted(m["content"][0]["text"] for m in shown["messages"]) == sorted(
        ["hello", *(f"and {number}" for number in range(WAITING))]
    )
    return not world.head.queued and not world.head.pending and not world.head.closing and not world.guests.requests


def test_one_write_ends_it_and_the_same_request_takes_the_rest_back(world: Worlds) -> None:
    at = queued(world("at once"))
    before = len(at.tap.calls)
    heads = []
    for number in range(1, 12):
        at.tap.at(before + number, Moment.AFTER, lambda: heads.append(at.head))
    assert at.terminate().body["thread"]["status"]["reason"] == "terminated"
    changed = [head for head in heads if head.terminated_at]
    assert heads[0].terminated_at == 0
    assert changed[0].queued + changed[0].pending > WITHDRAWN_A_WRITE
    assert not at.head.queued
    assert not at.head.pending
    at.rest()
    assert audit(at) == []
    assert all_ended(at)


@pytest.mark.parametrize("every", [pytest.param(9, id="some"), pytest.param(2, id="all", marks=pytest.mark.slow)])
def test_what_a_crash_leaves_is_taken_back_by_the_sweep(world: Worlds, every: int) -> None:
    clean = queued(world("clean"))
    before = len(clean.tap.calls)
    clean.terminate()
    for number in range(1, len(clean.tap.calls) - before + 1, every):
        at = queued(world(f"dies after {number}"))
        at.tap.at(len(at.tap.calls) + number, Moment.AFTER, at.tap.die)
        with pytest.raises(Died):
            at.house.cancel.terminate(at.principal, at.thread.id, None)
        at.revive(died=True)
        if not at.head.terminated_at:
            at.terminate()
        at.rest()
        assert audit(at) == [], number
        assert all_ended(at), number


def test_a_tool_that_ends_its_thread_ends_what_is_queued_with_it(world: Worlds) -> None:
    at = settled_in(world("by a tool"), lambda state, arguments: state.terminate())
    script = [step(*call("c1", "first"), stop="tool_calls"), *[step(text("No."))] * AGAIN]
    at.create({"script": script, "tools": {"first": {"on_retry": "again"}}})
    for number in range(4):
        at.post(f"and {number}", Delivery.ENQUEUE)
    at.deliver()
    assert at.head.closing
    at.rest()
    assert audit(at) == []
    assert {run["reason"] for run in told(at)["runs"].values()} == {"terminated"}
