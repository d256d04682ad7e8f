"""The invariants of a thread at rest, checked on what can be seen from outside: log, rows, ledger, requests.

It must not know which faults struck. Each check answers the sentences that are wrong; none means that it holds.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chalicelib.agents import AGENTS
from chalicelib.domain.events import FIELDS, SCHEMA_VERSION, TERMINAL, is_known
from chalicelib.domain.fold import Folded, fold
from chalicelib.domain.model import RunStatus, State
from tests.crash.guests import Guests
from tests.crash.world import World

Events = Sequence[Mapping[str, Any]]

PAGE = 100


def audit(world: World) -> list[str]:
    """Everything that is wrong with a thread at rest (I1 to I8)."""
    events = world.events()
    return [
        *_contiguous(world, events),
        *_unchanged(world, events),
        *_one_turn(events),
        *_one_writer(events),
        *_one_end(events),
        *_all_closed(events),
        *_paired(world.guests, events),
        *_no_repeat(world.guests, _rules(folded(world).arguments, events)),
        *_at_rest(world),
        *_stored_as_told(world, events),
        *_spent_as_told(world),
        *_one_door(world, events),
        *(f"a dead process called {name}" for name in world.tap.after_death),
    ]


def folded(world: World) -> Folded:
    """The thread as its log tells it, large fields included."""

    def blob(ref: str) -> Any:
        return json.loads(world.house.read.blob(world.principal, world.thread.id, ref)[0])

    events = world.events()
    with world.tap.outside():
        return fold(events, blob)


def told(world: World, *, forgiving: bool = False) -> dict[str, Any]:
    """What the log tells, without what may differ: times, attempts, the thread's own id.

    `forgiving`: results that a crash left unknown stand as `?`, whatever they would have been.
    """
    state = folded(world)
    shown = {
        "agent": state.agent,
        "status": {name: state.status[name] for name in ("state", "reason")},
        "messages": [_without_times(message, forgiving) for message in state.messages],
        "pending": state.pending,
        "queue": state.queue,
        "runs": {number: _without_attempts(run) for number, run in state.runs.items()},
        "streaming": state.streaming,
        "usage": state.usage,
        "cost_usd": state.cost_usd,
        "steps": [e["data"]["step"]["label"] for e in world.events() if e["type"] == "step.recorded"],
    }
    normal: dict[str, Any] = json.loads(json.dumps(shown).replace(world.thread.token, "THREAD"))
    return normal


def _without_times(message: Mapping[str, Any], forgiving: bool) -> dict[str, Any]:
    kept = {name: value for name, value in message.items() if name not in ("created_at", "updated_at")}
    if forgiving:
        kept["content"] = [_forgiven(part) for part in kept["content"]]
    return kept


def _forgiven(part: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "tool_result", "call_id": part["call_id"]} if part["type"] == "tool_result" else part


def _without_attempts(run: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in run.items() if name != "attempts"}


def _contiguous(world: World, events: Events) -> Iterator[str]:
    """I4: numbered from 1 without a hole, ids by number, every event one of the union."""
    for number, event in enumerate(events, start=1):
        if event["delivery_seq"] != number or event["event_id"] != world.thread.event(number):
            yield f"I4: event {number} is numbered {event['delivery_seq']}, {event['event_id']}"
        if event["schema_version"] != SCHEMA_VERSION or not is_known(event["type"]):
            yield f"I4: event {number} is a {event['type']}"
        missing = [name for name in FIELDS.get(event["type"], ()) if name not in event["data"]]
        if missing and "ref" not in event["data"]:
            yield f"I4: event {number}, {event['type']}, has no {missing}"


def _unchanged(world: World, events: Events) -> Iterator[str]:
    """I4: what the log once said it says for ever."""
    for snapshot in world.snapshots:
        if list(events[: len(snapshot)]) != snapshot:
            yield f"I4: the first {len(snapshot)} events were others before"


def _one_turn(events: Events) -> Iterator[str]:
    """I2: one run at a time, in accepted order."""
    running, started = "", [0]
    for event in events:
        run = event.get("run_id", "")
        if event["type"] == "run.started":
            number = int(run.rpartition("_")[2])
            if running or number <= started[-1]:
                yield f"I2: {run} starts after {started[-1]}, while {running or 'nothing'} runs"
            running = run
            started.append(number)
        elif event["type"] == "run.resumed":
            running = run
        elif event["type"] in (*TERMINAL, "run.waiting") and run == running:
            running = ""


def _one_writer(events: Events) -> Iterator[str]:
    """I3: once an attempt has written, none before it writes again; a run starts once."""
    newest: Counter[str] = Counter()
    for event in events:
        run, attempt = event.get("run_id", ""), event.get("attempt", 0)
        if attempt and attempt < newest[run]:
            yield f"I3: attempt {attempt} writes {event['type']} after attempt {newest[run]}"
        newest[run] = max(newest[run], attempt)
    starts = Counter(event["run_id"] for event in events if event["type"] == "run.started")
    yield from (f"I3: {run} starts {times} times" for run, times in starts.items() if times > 1)


def _one_end(events: Events) -> Iterator[str]:
    """I5: exactly one terminal event a run, and nothing of the run behind it."""
    ended: set[str] = set()
    for event in events:
        run = event.get("run_id")
        if run in ended:
            yield f"I5: {event['type']} of {run} after its end"
        if run and event["type"] in TERMINAL:
            ended.add(run)
    queued = {event["run_id"] for event in events if event["type"] == "run.queued"}
    yield from (f"I5: {run} has no end" for run in queued - ended)


def _all_closed(events: Events) -> Iterator[str]:
    """I5: each opened message and tool call is closed once, before the end of its run."""
    messages: dict[str, str] = {}
    calls: dict[str, str] = {}
    for event in events:
        data, run = event["data"], event.get("run_id", "")
        match event["type"]:
            case "message.started":
                if data["message_id"] in messages:
                    yield f"I5: {data['message_id']} is started while it is open"
                messages[data["message_id"]] = run
            case "message.reset":
                messages.pop(data["message_id"], None)
            case "message.completed":
                messages.pop(data.get("message", data)["id"], None)
            case "tool.started":
                calls.setdefault(data["call_id"], run)
            case "tool.completed":
                calls.pop(data["call_id"], None)
            case kind if kind in TERMINAL:
                left = [name for name, of in {**messages, **calls}.items() if of == run]
                yield from (f"I5: {name} is open at the end of {run}" for name in left)
    results = Counter(event["data"]["call_id"] for event in events if event["type"] == "tool.completed")
    yield from (f"I5: {call} is completed {times} times" for call, times in results.items() if times > 1)


def _paired(guests: Guests, events: Events) -> Iterator[str]:
    """I6: every request has exactly one result directly after each call; ids of calls are unique."""
    for number, request in enumerate(guests.requests, start=1):
        yield from (f"I6: request {number}: {wrong}" for wrong in _unpaired(request.messages))
    asked = [
        part["call_id"]
        for event in events
        if event["type"] == "message.completed"
        for part in event["data"].get("message", {}).get("content", ())
        if part["type"] == "tool_call"
    ]
    yield from (f"I6: call id {call} is used {times} times" for call, times in Counter(asked).items() if times > 1)


def _unpaired(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    awaited: list[str] = []
    for message in messages:
        results = [part["call_id"] for part in message["content"] if part["type"] == "tool_result"]
        if results != awaited:
            yield f"{message['id']} brings results of {results}, not of {awaited}"
        awaited = [part["call_id"] for part in message["content"] if part["type"] == "tool_call"]
    if awaited:
        yield f"no results of {awaited}"


def _rules(arguments: Mapping[str, Any], events: Events) -> dict[str, str]:
    """Call id -> what its tool wants after a crash."""
    tools = arguments.get("tools", {})
    shipped = {tool.name: tool.on_retry for agent in AGENTS.values() for tool in agent.tools_for({})}
    started = [event["data"] for event in events if event["type"] == "tool.started"]
    return {
        data["call_id"]: tools.get(data["name"], {}).get("on_retry", shipped.get(data["name"], "surface"))
        for data in started
    }


def _no_repeat(guests: Guests, rules: Mapping[str, str]) -> Iterator[str]:
    """I7: what is stored is not done again; what is not follows its tool's rule."""
    yield from (f"I7: {repeat}" for repeat in guests.repeats)
    for call in {effect.call_id for effect in guests.effects}:
        effects = [effect for effect in guests.effects if effect.call_id == call]
        if any(effect.had_result for effect in effects):
            yield f"I7: {call} ran though its result was stored"
        if rules.get(call) != "again" and len(effects) > 1:
            yield f"I7: {call} ran {len(effects)} times"
        if len({effect.token for effect in effects}) > 1:
            yield f"I7: {call} ran with different tokens"


def _at_rest(world: World) -> Iterator[str]:
    """I8: nothing is queued, leased or due; no wake-up is left."""
    head = world.head
    left = {
        "run": head.run,
        "lease": head.lease_until or head.lease_nonce,
        "due": head.due_at,
        "queued": head.queued,
        "pending": head.pending + head.free_pending,
        "cancel": head.cancel,
        "open": head.open_calls + head.open_message,
    }
    yield from (f"I8: {name} is still {value!r}" for name, value in left.items() if value)
    if head.state is State.RUNNING:
        yield "I8: the thread is still running"
    if world.stuck:
        yield f"I8: {len(world.stuck)} wake-ups are still in flight"
    if world.deliver():
        yield "I8: a wake-up was left in the queue"


def _stored_as_told(world: World, events: Events) -> Iterator[str]:
    """I4: the rows say what the log says."""
    state = folded(world)
    p, thread = world.principal, world.thread.id
    with world.tap.outside():
        shown = world.house.read.thread(p, thread, frozenset())
        messages = world.house.read.messages(p, thread, descending=False, silent=True, limit=PAGE, position=None).items
        runs = world.house.read.runs(p, thread, limit=PAGE, position=None).items
    compared = {
        "messages": (messages, state.messages),
        "status": (shown["status"], state.status),
        "queue": (shown["queue"], state.queue),
        "arguments": (shown["arguments"], state.arguments),
        "played by": (shown.get("played_by"), state.thread.get("played_by")),
        "runs": ({run["id"]: _comparable(run) for run in runs}, {n: _comparable(r) for n, r in state.runs.items()}),
        "log": (world.head.seq, len(events)),
    }
    for name, (stored, said) in compared.items():
        if stored != said:
            yield f"I4: {name} stored: {stored}\n      {name} told: {said}"
    for child in shown["children"]:
        said = state.children[child["reference_id"]].get("outcome", child["status"])
        if child["status"] != said:
            yield f"I4: {child['reference_id']} is {child['status']}, told as {said}"


def _spent_as_told(world: World) -> Iterator[str]:
    """The totals of the cost are the sums of the events, and each model call that counts has one row in the log."""
    state = folded(world)
    with world.tap.outside():
        cost = world.house.cost.thread_cost(world.principal, world.thread.id)
        rows = log_rows(world)
    own = cost["threads"][0]
    sums = {name: sum(line[name] for line in cost["models"]) for name in state.usage}
    alone = len(cost["threads"]) == 1
    if (alone and sums != state.usage) or own["total_cost"] - own["app_cost"] != (state.cost_usd or 0.0):
        yield f"cost: {cost} was counted, {state.usage} and {state.cost_usd} USD told"
    calls = [row["id"] for row in rows if row["kind"] == "llm"]
    if len(calls) != own["request_count"] or len(calls) != world.head.model_calls:
        yield f"cost: {own['request_count']} requests, {world.head.model_calls} model calls, {len(calls)} rows"
    if cost["request_count"] != sum(one["request_count"] for one in cost["threads"]):
        yield f"cost: the tree is not the sum of its threads: {cost}"
    results = Counter(row["call_id"] for row in rows if row["kind"] == "tool")
    yield from (f"log: {call} has {times} rows" for call, times in results.items() if times > 1)


def log_rows(world: World) -> list[dict[str, Any]]:
    """The whole log of the thread, as clients see it."""
    found: list[dict[str, Any]] = []
    position = None
    while True:
        page = world.house.logs.list_logs(
            world.principal, world.thread.id, kind=None, level=None, descending=False, limit=PAGE, position=position
        )
        found += page.items
        position = page.next
        if position is None:
            return found


def _comparable(run: Mapping[str, Any]) -> dict[str, Any]:
    return {name: run.get(name) for name in ("status", "reason", "usage", "cost_usd", "command_id")}


def _one_door(world: World, events: Events) -> Iterator[str]:
    """I1: each accepted request is one command, and no command comes from nowhere."""
    named = {answer.body["command"]["id"] for answer in world.answers if answer.body.get("command")}
    accepted = {name for name in named if world.thread.token in name}
    with world.tap.outside():
        rows = world.house.store.commands(world.thread, after=0, before=world.head.commands + 1, limit=PAGE)
    every = {world.thread.command(row.number): row for row in rows}
    stored = {
        name for name, row in every.items() if row.key or name in accepted
    }  # children send none, clients mostly do
    if stored != accepted:
        yield f"I1: commands {sorted(stored)} were stored for the answers {sorted(accepted)}"
    unfinished = [row.number for row in rows if row.is_run and not RunStatus(row.status).ended]
    yield from (f"I1: the run of command {number} never ended" for number in unfinished)
