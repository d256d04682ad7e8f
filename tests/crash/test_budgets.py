"""What work may cost: AWS calls and write units, counted on the wire, at any length of the thread."""

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from tests.crash.scenarios import TWO_CALLS, call, step, text, tools
from tests.crash.world import World

Worlds = Callable[[str], World]

ACCEPT_CALLS = 3
TURN_CALLS = 7
STEP_CALLS = 3
FLUSH_BYTES = 2 * 1024
"""The first flush of a streamed answer (spec section 5); a text of that size makes one."""
TURN_UNITS, FLUSH_UNITS, INDEX_UNITS = 22, 4, 4
UNIT_BYTES = 1024
INDEX_KEYS = (("act_pk", "act_sk"), ("due_pk", "due_at"))


@pytest.mark.parametrize("turns_before", [0, 12])
@pytest.mark.parametrize("flushes", [0, 1])
def test_a_text_turn_costs_seven_calls_and_one_for_each_flush(world: Worlds, turns_before: int, flushes: int) -> None:
    its = world(f"{flushes} flushes after {turns_before} turns")
    said = step(*[text("a" * FLUSH_BYTES)] * flushes, text("b" * 400))
    its.create({"script": [said] * (turns_before + 1)}, text=None)
    for turn in range(turns_before):
        its.post(f"turn {turn}")
        its.drain()
    before = len(its.tap.calls)
    its.post("and now")
    accept = len(its.tap.calls) - before
    its.drain()
    whole = len(its.tap.calls) - before
    assert accept <= ACCEPT_CALLS, its.tap.calls[before:]
    assert whole <= TURN_CALLS + flushes, its.tap.calls[before:]


def test_a_new_thread_with_a_message_costs_what_a_message_costs(world: Worlds) -> None:
    its = world("new thread")
    its.create({"script": [step(text("hello"))]})
    assert len(its.tap.calls) <= ACCEPT_CALLS, its.tap.calls


def test_a_further_model_step_with_a_tool_costs_three_calls(world: Worlds) -> None:
    its = world("steps")
    costs = [_calls_of_a_turn(its, steps) for steps in range(4)]
    assert all(more - less <= STEP_CALLS for less, more in pairwise(costs)), costs


def test_parallel_tools_cost_no_more_than_one_call_each(world: Worlds) -> None:
    its = world("two tools")
    without = _calls_of_a_turn(its, 0)
    its.create({"script": [TWO_CALLS, step(text("done"))], "tools": tools("again")}, text=None, key="parallel")
    before = len(its.tap.calls)
    its.post("go")
    its.drain()
    assert len(its.tap.calls) - before <= without + STEP_CALLS + 1


@pytest.mark.parametrize("flushes", [0, 1, 2])
def test_a_text_turn_costs_its_write_units(world: Worlds, flushes: int) -> None:
    its = world(f"units of {flushes}")
    pieces = [text("a" * (FLUSH_BYTES if n == 0 else 16 * 1024)) for n in range(flushes)]
    its.create({"script": [step(*pieces, text("b" * (512 if not flushes else 1)))] * 2}, text=None)
    its.post("warm")
    its.drain()
    with metered(its) as meter:
        its.post("and now")
        its.drain()
    size = sum(len(piece["text"]) for piece in pieces) + 512
    print(f"{flushes} flushes, {size} B: {meter.table} table units, {meter.index} index units")
    if size <= FLUSH_BYTES:
        assert meter.table <= TURN_UNITS
    assert meter.table <= TURN_UNITS + FLUSH_UNITS * flushes + _copies(size)
    assert meter.index <= INDEX_UNITS


def _copies(size: int) -> int:
    """An answer stands in its events, in its message, and in what is streamed of it: three copies, in transactions."""
    return 0 if size <= FLUSH_BYTES else math.ceil(3 * 2 * size / UNIT_BYTES)


def _calls_of_a_turn(world: World, steps: int) -> int:
    """Calls of a turn with so many steps of one tool each."""
    script = [step(*call(f"c{n}", "first"), stop="tool_calls") for n in range(steps)]
    world.create({"script": [*script, step(text("done"))], "tools": tools("again")}, text=None, key=f"{steps} steps")
    before = len(world.tap.calls)
    world.post("go")
    world.drain()
    return len(world.tap.calls) - before


class Meter:
    """Write units as DynamoDB counts them: each KB begun, twice in a transaction; each index entry that changes."""

    def __init__(self, read: Callable[[str, Mapping[str, Any]], Mapping[str, Any]]) -> None:
        self.table = self.index = 0
        self._read = read
        self._items: dict[str, Mapping[str, Any]] = {}

    def note(self, model: Any, request: Mapping[str, Any]) -> None:
        """A write is about to be sent."""
        for table, key, _units in _written(model.name, request):
            self._items[json.dumps(key)] = self._read(table, key)

    def settle(self, model: Any, request: Mapping[str, Any]) -> None:
        """A write was done: count it."""
        for table, key, units in _written(model.name, request):
            was, now = self._items[json.dumps(key)], self._read(table, key)
            self.table += units * max(1, math.ceil(max(_size(was), _size(now)) / UNIT_BYTES))
            for names in INDEX_KEYS:
                entry, entered = ([item.get(name) for name in names] for item in (was, now))
                if entry != entered:
                    self.index += (None not in entry) + (None not in entered)


@contextmanager
def metered(world: World) -> Iterator[Meter]:
    """Counts the write units of what happens inside."""
    client = world.cloud.table.client
    outside = world.tap.outside
    sent: list[tuple[Any, Any]] = []
    measuring = False

    def read(table: str, key: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal measuring
        measuring = True
        try:
            with outside():
                item: Mapping[str, Any] = client.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item", {})
        finally:
            measuring = False
        return item

    meter = Meter(read)

    def before(model: Any, params: Any, **_: Any) -> None:
        if not measuring:
            sent.append((model, json.loads(params["body"])))
            meter.note(*sent[-1])

    def after(http_response: Any, **_: Any) -> None:
        if not measuring and http_response.status_code < 300:
            meter.settle(*sent[-1])

    client.meta.events.register("before-call.dynamodb", before)
    client.meta.events.register("after-call.dynamodb", after)
    try:
        yield meter
    finally:
        client.meta.events.unregister("before-call.dynamodb", before)
        client.meta.events.unregister("after-call.dynamodb", after)


def _written(name: str, request: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], int]]:
    """Table, key and units a KB of everything that a request writes or checks."""
    actions = (
        request.get("TransactItems", []) if name == "TransactWriteItems" else [{name.removesuffix("Item"): request}]
    )
    for action in actions:
        for kind, asked in action.items():
            if kind in ("Update", "Delete", "ConditionCheck", "Put"):
                key = asked.get("Key") or {field: asked["Item"][field] for field in ("pk", "sk")}
                yield asked["TableName"], key, 2 if name == "TransactWriteItems" else 1


def _size(item: Mapping[str, Any]) -> int:
    """Bytes of an item, by the rules of DynamoDB's item sizes."""
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(value: Mapping[str, Any]) -> int:
    ((kind, inner),) = value.items()
    if kind == "S":
        return len(inner.encode())
    if kind == "N":
        return math.ceil(len(inner.lstrip("-0.")) / 2) + 1
    if kind == "B":
        return len(base64.b64decode(inner)) if isinstance(inner, str) else len(bytes(inner))
    if kind == "M":
        return 3 + _size(inner) + len(inner)
    if kind == "L":
        return 3 + sum(1 + _value_size(one) for one in inner)
    return 1
