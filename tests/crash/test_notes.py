"""Logs, values and costs under faults: whatever dies, and however often a tool or a request comes again, an entry
stands once, costs once, and a value is the one that was set last. The process dies before and after each call to AWS.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any

import pytest

from chalicelib.domain import entries
from chalicelib.domain.commands import Answer, Idempotency, Principal, WriteLog
from chalicelib.domain.errors import KeyReused, NotFound
from chalicelib.engine.notes import ENTRIES_A_CALL
from chalicelib.engine.state import ThreadState
from tests.crash.audit import audit, log_rows
from tests.crash.faults import EVERY, FAULTS
from tests.crash.residents import Use, result, rows, settled_in, value
from tests.crash.scenarios import AGAIN, call, step, text
from tests.crash.world import World

Worlds = Callable[[str], World]


def run(world: World, on_retry: str = "again", calls: int = 1) -> None:
    """A run whose tool is asked for once, or several times at once."""
    asked = [event for n in range(1, calls + 1) for event in call(f"c{n}", "first", f'{{"n": {n}}}')]
    script = [step(*asked, stop="tool_calls"), *[step(text("Done."))] * AGAIN]
    world.create({"script": script, "tools": {"first": {"on_retry": on_retry}}})
    world.rest()


def names(world: World) -> list[str]:
    return [row["model"] for row in rows(world, "app")]


def cost(world: World) -> Any:
    with world.tap.outside():
        return world.house.cost.thread_cost(world.principal, world.thread.id)


# -- tools


def _notes(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
    """Logs three entries, and sets a value twice that it reads before and after."""
    state.log({"name": "begin", "cost": 0.1})
    seen = [state.get_value("n")]
    state.set_value("n", {"set": 1})
    state.log({"name": "middle"})
    state.set_value("n", {"set": 2})
    seen.append(state.get_value("n"))
    state.log({"name": "end", "cost": 0.2})
    return seen[1]


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_tool_that_dies_at_any_call_and_runs_again_leaves_each_entry_once(
    world: Worlds, fault: str, every: int
) -> None:
    clean = settled_in(world("notes: clean"), _notes)
    run(clean)
    assert result(clean) == ("ok", {"set": 2})
    points = len(clean.tap.calls)
    for point in range(1 + list(FAULTS).index(fault) % every, points + 1, every):
        its = settled_in(world(f"notes: {fault} at {point}"), _notes)
        FAULTS[fault](its.tap, point)
        run(its)
        assert names(its) == ["begin", "middle", "end"], its.seed
        assert (cost(its)["app_cost"], value(its, "n")) == (0.3, {"set": 2}), its.seed
        assert [line for line in audit(its) if "a dead process called" not in line] == [], its.seed


def _slowly(world: World) -> Use:
    """A tool that takes its time between entries: each is stored by a write of its own before the result."""

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        for number in range(3):
            state.log({"name": f"part {number}", "cost": 0.1})
            world.clock.sleep(2)
            state.set_value("tick", number)  # a note wakes the turn, which finds that the first has waited long enough
            stored = Event()
            while len(_stored_parts(world)) <= number and not state.wait(0):
                stored.wait(0.01)
        return "done"

    return use


def _stored_parts(world: World) -> list[str]:
    """What of a tool's entries stands in the log; asked from its thread, beside the schedule."""
    with world.tap.outside():
        return [row["model"] for row in log_rows(world) if row["kind"] == "app"]


def test_what_a_slow_tool_logs_is_stored_before_its_result(world: Worlds) -> None:
    its = world("slow")
    settled_in(its, _slowly(its))
    run(its)
    assert result(its) == ("ok", "done")
    assert names(its) == ["part 0", "part 1", "part 2"]
    assert len(_stored_parts(its)) == 3
    assert all(row["created_at"] < rows(its, "tool")[0]["created_at"] for row in rows(its, "app"))
    assert audit(its) == []


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("fault", ["dies before", "dies after", "answer lost", "sent again, then dies"])
def test_a_slow_tool_that_dies_at_any_call_and_runs_again_leaves_each_entry_once(
    world: Worlds, fault: str, every: int
) -> None:
    """Some entries are stored when the process dies. The tool says all of them again; those are not stored again."""
    for point in range(5 + list(FAULTS).index(fault) % every, 12, every):
        its = world(f"slow: {fault} at {point}")
        settled_in(its, _slowly(its))
        FAULTS[fault](its.tap, point)
        run(its)
        assert names(its) == ["part 0", "part 1", "part 2"], its.seed
        assert cost(its)["app_cost"] == 0.3, its.seed


def test_entries_and_values_cost_no_call_of_their_own(world: Worlds) -> None:
    costs: list[Counter[str]] = []
    for use in (lambda state, arguments: None, _notes):
        its = settled_in(world("costs"), use)
        run(its)
        costs.append(Counter(its.tap.calls))
    silent, noting = costs
    assert noting - silent == Counter({"dynamodb.BatchGetItem": 1})  # read once from the table, once from what waits
    assert silent - noting == Counter()


def test_an_attempt_that_has_lost_its_lease_leaves_no_note(world: Worlds) -> None:
    its = world("hung")
    seen: list[str] = []

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        state.log({"name": "hung" if not seen else "again", "cost": 1})
        state.set_value("who", "hung" if not seen else "again")
        if not seen:
            seen.append("hung")
            with (
                its.tap.outside()
            ):  # before the clock moves, at which the turn would write the notes or renew the lease
                now = its.clock.now() + 40_000_000
                other = its.process(salt="other").store
                head, mine = other.take(its.thread, now=now, until=now + 30_000_000, nonce="other", takeover=True)
            assert mine, head
            its.clock.sleep(40)
        return "done"

    settled_in(its, use)
    run(its)
    assert names(its) == ["again"]
    assert (value(its, "who"), cost(its)["app_cost"]) == ("again", 1.0)


def test_a_cancelled_tool_keeps_what_it_has_noted_until_its_run_has_ended(world: Worlds) -> None:
    its = world("cancelled")
    heard = Event()

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        state.log({"name": "before the cancel", "cost": 0.5})
        its.meanwhile(lambda: its.cancel())
        its.clock.sleep(3)
        while not state.wait(0.01) or its.head.run:
            pass
        state.log({"name": "after the end"})
        heard.set()

    settled_in(its, use)
    run(its)
    assert heard.wait(10)
    assert [e["type"] for e in its.events() if e["type"].startswith("run.c")] == ["run.cancelled"]
    assert names(its) == ["before the cancel"]
    assert cost(its)["app_cost"] == 0.5
    assert audit(its) == []


def test_parallel_tools_note_side_by_side(world: Worlds) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        for n in range(5):
            state.log({"name": f"{arguments['n']}.{n}"})
        state.set_value(f"v{arguments['n']}", arguments["n"])

    its = settled_in(world("parallel"), use)
    run(its, calls=3)
    assert sorted(names(its)) == [f"{call}.{n}" for call in (1, 2, 3) for n in range(5)]
    assert [value(its, f"v{n}") for n in (1, 2, 3)] == [1, 2, 3]
    assert len({row["id"] for row in rows(its, "app")}) == 15
    assert audit(its) == []


def test_many_and_large_entries_are_stored_in_several_writes(world: Worlds) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        for n in range(150):
            state.log({"name": f"{n:03d}", "request": "r" * 20_000, "cost": 0.001})

    its = settled_in(world("many"), use)
    run(its)
    assert sorted(names(its)) == [f"{n:03d}" for n in range(150)]
    assert cost(its)["app_cost"] == 0.15
    assert audit(its) == []


def test_a_tool_that_never_stops_logging_is_cut_short_and_says_so(world: Worlds) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        for n in range(ENTRIES_A_CALL + 500):
            state.log({"name": f"{n}"})

    its = settled_in(world("endless"), use)
    run(its)
    assert len(names(its)) == ENTRIES_A_CALL + 1
    assert names(its)[-1] == "log.full"


BAD: list[Callable[[ThreadState], Any]] = [
    lambda state: state.set_value("", 1),
    lambda state: state.set_value("a b", 1),
    lambda state: state.set_value("x" * 129, 1),
    lambda state: state.set_value("../x", 1),
    lambda state: state.set_value("large", "x" * 65_536),
    lambda state: state.get_value("a/b"),
]


def test_a_bad_name_or_size_of_a_value_is_a_value_error_and_logging_never_raises(world: Worlds) -> None:
    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        odd: list[Any] = [None, {}, {"name": object()}, {"name": "x", "data": object()}, 5, {"name": "y", "cost": "no"}]
        for entry in odd:
            state.log(entry)
        refused = 0
        for wrong in BAD:
            try:
                wrong(state)
            except ValueError:
                refused += 1
        state.set_value("odd", {1: {2, 1}})
        state.set_value("full", "x" * 65_534)
        return [refused, state.get_value("none"), state.get_value("none", 7)]

    its = settled_in(world("bad"), use)
    run(its)
    assert result(its) == ("ok", [len(BAD), None, 7])
    assert sorted(names(its)) == ["unnamed"] * 4 + ["x", "y"]
    assert (value(its, "odd"), len(value(its, "full"))) == ({"1": [1, 2]}, 65_534)


def test_rows_say_what_ran_and_what_they_belong_to(world: Worlds) -> None:
    its = world("rows")

    def use(state: ThreadState, arguments: Mapping[str, Any]) -> Any:
        its.clock.sleep(0.1)
        _notes(state, arguments)
        its.clock.sleep(0.1)
        return "done"

    settled_in(its, use)
    its.guests.while_asked = lambda count: its.clock.sleep(0.1)
    run(its)
    with its.tap.outside():
        told = log_rows(its)
    answer, done = its.thread.answer(1, 1), its.thread.answer(1, 2)
    assert [(row["kind"], row["model"], row["message_id"]) for row in told] == [
        ("llm", "scripted:script", answer),
        ("app", "begin", answer),
        ("app", "middle", answer),
        ("app", "end", answer),
        ("tool", "first", answer),
        ("llm", "scripted:script", done),
    ]
    assert {row["run_id"] for row in told} == {its.thread.run(1)}
    assert (told[0]["input_tokens"], told[0]["finish_reason"], told[0]["status"]) == (3, "tool_calls", "success")
    assert (told[4]["outcome"], told[4]["call_id"], told[4]["arguments"]) == ("ok", "c1", '{"n":1}')


def test_a_model_call_that_fails_is_a_row_and_a_request_too(world: Worlds) -> None:
    its = world("retries")
    used = {"type": "usage", "mode": "total", "input": 5, "output": 1}
    cut = {"events": [text("half"), used]}
    broken = {"events": [{"type": "error", "status": 529, "detail": "busy", "retryable": True}]}
    its.create({"script": [cut, broken, step(text("whole"))]})
    its.settle()
    assert [(row["status"], row["error"], row["finish_reason"]) for row in rows(its, "llm")] == [
        ("error", "the answer ended without a finish reason", None),
        ("error", "busy", None),
        ("success", None, "end"),
    ]
    totals = cost(its)
    assert (totals["request_count"], totals["models"][0]["requests"]) == (3, 3)
    assert (totals["models"][0]["input_tokens"], totals["models"][0]["output_tokens"]) == (8, 3)
    assert audit(its) == []


# -- costs


def test_the_cost_of_several_runs_costs_two_reads_whatever_their_number(world: Worlds) -> None:
    its = world("many runs")
    its.create({"script": [step(text("x"))] * 12}, text=None)
    reads = []
    for n in range(8):
        its.post(f"m{n}")
        its.drain()
        before = len(its.tap.calls)
        assert its.house.cost.thread_cost(its.principal, its.thread.id)["request_count"] == n + 1
        reads.append(its.tap.calls[before:])
    assert reads == [["dynamodb.BatchGetItem"] * 2] * 8


def test_a_model_without_a_known_price_is_flagged_and_its_tokens_count(world: Worlds) -> None:
    its = world("unpriced")
    its.create({"script": [step(text("x"))] * 4}, text=None)
    turns = its.house.take_turn
    object.__setattr__(turns, "price", lambda model, tokens: None)
    its.post("one")
    its.drain()
    log(its, {"name": "paid", "cost": 0.25})
    totals = cost(its)
    assert totals["models"] == [
        {
            "model": "scripted:script",
            "requests": 1,
            "input_tokens": 3,
            "output_tokens": 2,
            "cache_read_tokens": 0,
            "cost_usd": None,
            "unpriced": True,
        }
    ]
    assert (totals["total_cost"], totals["app_cost"], totals["request_count"]) == (0.25, 0.25, 1)
    assert rows(its, "llm")[0]["cost_total"] is None


# -- by the front door


def log(world: World, entry: Mapping[str, Any], key: str | None = "log") -> Answer:
    """A client logs an entry, and asks again with the same key if nobody answers."""
    idem = Idempotency(key=key, fingerprint=f"{entry}".ljust(64, "0")) if key else None
    ask, at = WriteLog(body=entries.app_body(entry)), world.thread.id
    send = world.request
    return send(lambda house: house.logs.write_log(world.principal, at, ask, idem))


@pytest.mark.parametrize("fault", FAULTS)
def test_an_entry_from_outside_with_a_key_stands_once_whatever_happens(world: Worlds, fault: str) -> None:
    for point in range(1, 3):
        its = world(f"outside: {fault} at {point}")
        its.create({"script": []}, text=None)
        FAULTS[fault](its.tap, len(its.tap.calls) + point)
        answer = log(its, {"name": "x", "cost": 0.1})
        assert its.tap.struck, its.seed
        assert rows(its, "app") == [answer.body], its.seed
        assert cost(its)["app_cost"] == 0.1, its.seed
        again = log(its, {"name": "x", "cost": 0.1})
        assert (again.status, again.body, again.replayed) == (200, answer.body, True)


def test_a_key_of_another_entry_is_refused_and_without_a_key_there_are_two(world: Worlds) -> None:
    its = world("keys")
    its.create({"script": []}, text=None)
    log(its, {"name": "x"})
    with pytest.raises(KeyReused):
        log(its, {"name": "y"})
    log(its, {"name": "x"}, key=None)
    log(its, {"name": "x"}, key=None)
    assert names(its) == ["x"] * 3
    assert [e["type"] for e in its.events()] == ["thread.created"]


def test_an_entry_from_outside_hangs_on_the_newest_message(world: Worlds) -> None:
    its = world("anchors")
    its.create({"script": [step(text("a"))] * 3}, text=None)
    found = [log(its, {"name": "1"}, "1").body.get("message_id")]
    its.post("hello")
    found.append(log(its, {"name": "2"}, "2").body.get("message_id"))
    its.drain()
    found.append(log(its, {"name": "3"}, "3").body.get("message_id"))
    with its.tap.outside():
        its.house.edit.delete_message(its.principal, its.thread.id, its.thread.answer(1, 1))
    found.append(log(its, {"name": "4"}, "4").body.get("message_id"))
    user = its.thread.user_message(1)
    assert found == [None, user, its.thread.answer(1, 1), user]


def test_another_org_and_an_unknown_thread_look_alike(world: Worlds) -> None:
    its = world("tenancy")
    its.create({"script": []}, text=None)
    stranger = Principal(org="org_stranger", key_id="k", level=its.principal.level)
    ask = WriteLog(body=entries.app_body({"name": "x"}))
    listing: dict[str, Any] = {"kind": None, "level": None, "descending": False, "limit": 5, "position": None}
    calls: list[Callable[[str], Any]] = [
        lambda at: its.house.logs.write_log(stranger, at, ask, None),
        lambda at: its.house.logs.list_logs(stranger, at, **listing),
        lambda at: its.house.cost.thread_cost(stranger, at),
        lambda at: its.house.durable.get_value(stranger, at, "a"),
        lambda at: its.house.durable.put_value(stranger, at, "a", 1),
        lambda at: its.house.durable.delete_value(stranger, at, "a"),
    ]
    for send in calls:
        said = []
        for at in (its.thread.id, "thr_" + "a" * 20, "nonsense"):
            with pytest.raises(NotFound) as refused:
                send(at)
            said.append(refused.value.detail)
        assert len(set(said)) == 1
    assert names(its) == []


def test_lists_are_filtered_by_kind_and_level(world: Worlds) -> None:
    its = world("filters")
    its.create({"script": [step(text("a"))]})
    its.drain()
    for n, level in enumerate(("debug", "info", "warn", "error", "warn")):
        its.clock.sleep(0.1)
        log(its, {"name": f"{n}", "level": level}, f"{n}")

    def listed(position: Any = None, limit: int = 100, **how: Any) -> Any:
        chosen: dict[str, Any] = {"kind": None, "level": None, "descending": False, **how}
        with its.tap.outside():
            return its.house.logs.list_logs(its.principal, its.thread.id, limit=limit, position=position, **chosen)

    assert [row["model"] for row in listed(level="warn").items] == ["2", "4"]
    assert [row["kind"] for row in listed(kind="llm").items] == ["llm"]
    assert [row["model"] for row in listed(kind="app", descending=True).items] == ["4", "3", "2", "1", "0"]
    first = listed(level="warn", limit=1)
    second = listed(level="warn", limit=1, position=first.next)
    assert [row["model"] for row in (*first.items, *second.items)] == ["2", "4"]
    assert listed(level="warn", limit=1, position=second.next).items == [] if second.next else True
