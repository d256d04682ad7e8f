"""Logs, cost and values on the running product: through the client, a socket and plain HTTP."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from websockets.sync.client import connect

from chalicelib.client import InvalidRequest, NotFound, TooLarge, Turnlog
from tests.journeys.product import Product, together, until

TOOLS = {"noisy": {"returns": 1, "logs": [{"name": "from.code", "cost": 0.0004}, {"level": "loud"}]}}
USED = {"type": "usage", "mode": "total", "input": 10, "output": 2}
SCRIPT = [
    {
        "events": [
            {"type": "call_start", "id": "c1", "name": "noisy"},
            {"type": "call_args", "id": "c1", "part": "{}"},
            USED,
            {"type": "stop", "reason": "tool_calls"},
        ]
    },
    {"events": [{"type": "text", "text": "done"}, USED, {"type": "stop", "reason": "end"}]},
]


@pytest.fixture
def thread(turnlog: Turnlog) -> str:
    return turnlog.create_thread("scripted", arguments={"script": SCRIPT, "tools": TOOLS})["thread"]["id"]


def play(turnlog: Turnlog, thread: str) -> None:
    """One turn, to its end."""
    turnlog.say(thread, "go")
    until(lambda: turnlog.thread(thread)["status"]["state"] == "idle" and list(turnlog.runs(thread)), "the end")


def test_a_turn_leaves_its_rows_and_its_cost_and_an_entry_from_outside_stands_beside(
    turnlog: Turnlog, thread: str
) -> None:
    play(turnlog, thread)
    row = turnlog.log(thread, {"name": "billed", "status": "error", "cost": 0.0001}, idempotency_key=f"{thread}-billed")
    again = turnlog.log(
        thread, {"name": "billed", "status": "error", "cost": 0.0001}, idempotency_key=f"{thread}-billed"
    )
    assert again == row
    rows = list(turnlog.logs(thread))
    assert [(r["kind"], r["model"]) for r in rows] == [
        ("llm", "scripted:script"),
        ("app", "from.code"),
        ("app", "unnamed"),
        ("tool", "noisy"),
        ("llm", "scripted:script"),
        ("app", "billed"),
    ]
    assert [r["created_at"] for r in rows] == sorted(r["created_at"] for r in rows)
    assert list(turnlog.logs(thread, order="desc")) == rows[::-1]
    assert [r["model"] for r in turnlog.logs(thread, level="error")] == ["billed"]
    cost = turnlog.cost(thread)
    assert (cost["total_cost"], cost["app_cost"], cost["request_count"]) == (0.0005, 0.0005, 2)
    assert [(m["model"], m["input_tokens"], m["output_tokens"]) for m in cost["models"]] == [("scripted:script", 20, 4)]
    assert [t["thread_id"] for t in cost["threads"]] == [thread]
    assert not [e.type for e in turnlog.events(thread).items if e.type.startswith("log")]


def test_forty_entries_at_once_are_forty_rows_and_one_sum(turnlog: Turnlog, thread: str) -> None:
    together(*[lambda n=n: turnlog.log(thread, {"name": f"{n}", "cost": 0.001}) for n in range(40)])
    assert sorted(r["model"] for r in turnlog.logs(thread)) == sorted(f"{n}" for n in range(40))
    assert turnlog.cost(thread)["app_cost"] == 0.04


def test_one_key_at_once_is_one_row(turnlog: Turnlog, thread: str) -> None:
    sent = [lambda: turnlog.log(thread, {"name": "once", "cost": 1}, idempotency_key=f"{thread}-once")] * 20
    rows = together(*sent)
    assert list(turnlog.logs(thread)) == [rows[0]]
    assert rows == [rows[0]] * 20
    assert turnlog.cost(thread)["app_cost"] == 1.0


def test_entries_while_a_turn_is_played_hold_neither_up(turnlog: Turnlog, thread: str) -> None:
    jobs: list[Callable[[], object]] = [lambda: play(turnlog, thread)]
    jobs += [lambda n=n: turnlog.log(thread, {"name": f"o{n}", "cost": 0.01}) for n in range(15)]  # type: ignore[misc]
    together(*jobs)
    names = [r["model"] for r in turnlog.logs(thread)]
    assert sorted(n for n in names if n.startswith("o")) == sorted(f"o{n}" for n in range(15))
    assert turnlog.cost(thread)["request_count"] == 2


def test_a_socket_that_asks_for_logs_gets_each_new_row(product: Product, turnlog: Turnlog, thread: str) -> None:
    turnlog.log(thread, {"name": "before"})
    with connect(turnlog.ticket()["url"], proxy=None) as socket:
        socket.send(json.dumps({"action": "subscribe", "thread_id": thread, "after": 0, "logs": True}))
        read(socket, lambda frame: frame["type"] == "caught_up")
        row = turnlog.log(thread, {"name": "live", "request": "r" * 60_000})
        frame = read(socket, lambda frame: frame["type"] == "log")["row"]
        assert (frame["id"], frame["truncated"]) == (row["id"], ["app_request"])
        play(turnlog, thread)
        seen: list[str] = []
        while len(seen) < 5:
            seen.append(read(socket, lambda frame: frame["type"] == "log")["row"]["model"])
        assert sorted(seen) == sorted(["scripted:script", "from.code", "unnamed", "noisy", "scripted:script"])


def read(socket: Any, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The next frame that is wanted."""
    while True:
        frame: dict[str, Any] = json.loads(socket.recv(timeout=20))
        if wanted(frame):
            return frame


VALUES: list[Any] = [None, 0.1, 1, 1.0, True, "", [], {}, 2512292042121000001, 1e300, {"": "é\U0001f680"}, [[[]]]]


def test_values_come_back_as_they_went_in_and_go(turnlog: Turnlog, thread: str) -> None:
    for value in (VALUES, {"x": None}, None):
        turnlog.set_value(thread, "a.b:c-d_e", value)
        assert repr(turnlog.get_value(thread, "a.b:c-d_e")) == repr(value)
    turnlog.delete_value(thread, "a.b:c-d_e")
    for gone in (turnlog.get_value, turnlog.delete_value):
        with pytest.raises(NotFound):
            gone(thread, "a.b:c-d_e")
    with pytest.raises(TooLarge):
        turnlog.set_value(thread, "large", "x" * 65_536)
    for name in ("-a", "x" * 129, "a~b"):
        with pytest.raises(InvalidRequest):
            turnlog.set_value(thread, name, 1)


def test_nothing_of_a_thread_is_seen_or_written_by_another_org(product: Product, turnlog: Turnlog, thread: str) -> None:
    turnlog.set_value(thread, "a", 1)
    with Turnlog(product.url, product.other_key) as other:
        calls: list[Callable[[str], object]] = [
            lambda at: other.log(at, {"name": "x"}),
            lambda at: list(other.logs(at)),
            lambda at: other.cost(at),
            lambda at: other.get_value(at, "a"),
            lambda at: other.set_value(at, "a", 2),
            lambda at: other.delete_value(at, "a"),
        ]
        for call in calls:
            said = []
            for at in (thread, "thr_" + "a" * 20):
                with pytest.raises(NotFound) as refused:
                    call(at)
                said.append(str(refused.value))
            assert said[0] == said[1]
    assert turnlog.get_value(thread, "a") == 1
    assert list(turnlog.logs(thread)) == []
