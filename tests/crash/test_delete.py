"""Deletion on the emulator: nothing is left but the tombstone, whatever was under way, and nothing comes back."""

from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.domain.errors import NotFound
from chalicelib.domain.ids import ThreadRef
from tests.crash.faults import EVERY
from tests.crash.scenarios import FAMILY, LARGE, step, text
from tests.crash.tap import Moment
from tests.crash.world import World

Worlds = Callable[[str], World]
LATER = 20 * 60.0
"""Seconds after which nothing that was under way can still be alive."""


def left_of(world: World, *refs: ThreadRef) -> list[str]:
    """Rows and objects that still name one of these threads, tombstones apart."""
    tokens = [ref.token for ref in refs or (world.thread,)]
    with world.tap.outside():
        client, found = world.cloud.table.client, []
        page: dict[str, Any] = client.scan(TableName=world.cloud.table.name)
        rows = [(item["pk"]["S"], item["sk"]["S"]) for item in page["Items"]]
        s3 = world.cloud.clients.client("s3")
        objects = s3.list_objects_v2(Bucket=world.cloud.resources.bucket, Prefix=world.thread.org).get("Contents", [])
    for token in tokens:
        found += [f"{pk} {sk}" for pk, sk in rows if token in pk and sk != "head"]
        found += [one["Key"] for one in objects if token in one["Key"]]
    return found


def purged(world: World) -> None:
    """Let the sweep do its work, the second look included."""
    world.sweep()
    world.drain()
    world.sweep(LATER)
    world.drain()
    world.sweep()
    assert world.head.due_at == 0


def everything() -> dict[str, Any]:
    large = {"large": {"returns": "r" * LARGE, "logs": [{"name": "seen"}]}}
    asks = [{"type": "call_start", "id": "c1", "name": "large"}, {"type": "call_args", "id": "c1", "part": "{}"}]
    return {"script": [step(*asks, stop="tool_calls"), *[step(text("So be it."))] * 6], "tools": large}


def test_nothing_is_left_of_a_thread_that_had_everything(world: Worlds) -> None:
    at = world("everything")
    at.create(everything(), text="t" * LARGE)
    at.settle()
    with at.tap.outside():
        at.house.durable.put_value(at.principal, at.thread.id, "v", 1)
        at.house.files.put_file(at.principal, at.thread.id, "/a.txt", b"bytes", "text/plain")
        cost = at.house.cost.thread_cost(at.principal, at.thread.id)
    assert left_of(at)
    at.delete()
    purged(at)
    assert left_of(at) == []
    with at.tap.outside():
        kept = at.house.cost.thread_cost(at.principal, at.thread.id)
    assert kept == {"total_cost": cost["total_cost"], "deleted_at": at.head.deleted_at}


def test_a_deleted_thread_is_unknown_to_every_service(world: Worlds) -> None:
    at = world("unknown")
    at.create({"script": []})
    at.settle()
    at.delete()
    p, thread = at.principal, at.thread.id
    with at.tap.outside():
        house = at.house
        for ask in (
            lambda: house.read.thread(p, thread, frozenset()),
            lambda: house.read.events(p, thread, after=0, limit=10, wait=0),
            lambda: house.read.run(p, at.thread.run(1)),
            lambda: house.cancel.terminate(p, thread, None),
            lambda: house.delete.delete_thread(p, thread),
            lambda: house.durable.put_value(p, thread, "v", 1),
            lambda: house.files.put_file(p, thread, "/a.txt", b"x", "text/plain"),
            lambda: house.people.list_inquiries(p, thread, open_only=False, limit=5, position=None),
        ):
            with pytest.raises(NotFound):
                ask()
        listed = house.read.threads(p, agent=None, tag=None, state=None, q=None, limit=10, position=None)
    assert listed.items == []


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_a_deletion_at_any_call_of_a_turn_leaves_nothing(world: Worlds, moment: Moment, every: int) -> None:
    clean = world("no deletion")
    clean.create(everything())
    first = len(clean.tap.calls) + 1
    clean.drain()
    for point in range(first, len(clean.tap.calls) + 1, every):
        at = world(f"{moment.value} {point}")
        at.tap.at(point, moment, lambda at=at: at.meanwhile(at.delete))  # type: ignore[misc]
        at.create(everything())
        at.drain()
        purged(at)
        assert left_of(at) == [], point


@pytest.mark.parametrize("every", EVERY)
def test_the_sweep_dies_at_any_call_and_another_goes_on(world: Worlds, every: int) -> None:
    clean = world("no death")
    clean.sweeps_count = True
    clean.create(everything())
    clean.drain()
    clean.delete()
    first = len(clean.tap.calls) + 1
    clean.sweep()
    for point in range(first, len(clean.tap.calls) + 1, every * 3):
        at = world(f"dies at {point}")
        at.sweeps_count = True
        at.tap.at(point, Moment.AFTER, at.tap.die)
        at.create(everything())
        at.drain()
        at.delete()
        at.sweep()
        assert at.deaths == 1
        purged(at)
        assert left_of(at) == [], point


def test_children_go_with_their_parent_even_while_they_work(world: Worlds) -> None:
    at = world("a family")
    at.create(FAMILY)
    at.deliver()
    children = at.children()
    assert len(children) == 2
    at.delete()
    at.drain()
    purged(at)
    at.sweep(LATER)
    at.sweep(LATER)
    assert left_of(at, at.thread, *children) == []
    for ref in children:
        assert at.at(ref).head.deleted_at
