"""Kinds of fault that other systems had, played over the running product (tests/cases/README.md has the whole table).

Each test is about the kind: a tool that hears no cancel, a model that never learns, values of every form on every way
through, results of every size, a worker that is killed.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from chalicelib.client import Event, Turnlog
from chalicelib.domain.limits import TOOL_RESULT_BYTES
from tests.journeys.audit import assert_sound
from tests.journeys.guest_app import ODD, written
from tests.journeys.product import (
    Body,
    Product,
    Talk,
    asking,
    call,
    pause,
    run_of,
    step,
    text,
    text_of,
    until,
)
from tests.journeys.test_product_stream import FRAME_BYTES, Line, canonical

DEFAULT_MAX_STEPS = 50
#: A lease, a sweep and a restart of the app process.
RECOVERY_SECONDS = 120.0


@pytest.fixture
def http(product: Product) -> Iterator[httpx.Client]:
    with product.http() as client:
        yield client


@pytest.fixture
def line(turnlog: Turnlog) -> Iterator[Line]:
    """A websocket that reads JSON as strictly as a browser does."""
    opened = Line(turnlog)
    yield opened
    opened.socket.close()


def strict(raw: str | bytes) -> Any:
    """JSON as a browser reads it: NaN and the infinities are no tokens, and the text is good UTF-8 throughout."""

    def refuse(token: str) -> Any:
        raise AssertionError(f"{token} is no JSON")

    value = json.loads(raw, parse_constant=refuse)
    json.dumps(value, ensure_ascii=False).encode()  # raises where half a character is left
    return value


def typed(value: Any) -> Any:
    """A value with the type of each scalar, so that 1, 1.0, True and "1" differ, and so do the zeros."""
    if isinstance(value, dict):
        return {key: typed(inside) for key, inside in value.items()}
    return [typed(inside) for inside in value] if isinstance(value, list) else (type(value).__name__, repr(value))


def shown_everywhere(http: httpx.Client, line: Line, talk: Talk) -> None:
    """Every place that shows the thread speaks strict JSON, and the socket says what HTTP says."""
    assert_sound(talk)
    paths = [f"/threads/{talk.id}{path}" for path in ("", "/messages", "/events", "/runs", "?include=messages,runs")]
    for path in paths:
        strict(http.get(path).content)
    line.subscribe(talk).caught_up(talk)
    for frame in line.frames:
        strict(json.dumps(frame, ensure_ascii=False))
    assert [canonical(event) for event in line.events] == [canonical(event) for event in talk.log]


# -- P01, P16: a tool that hears no cancel


@pytest.mark.parametrize("ending", ["cancel", "stop"])
def test_what_a_tool_returns_after_its_cancel_changes_nothing(
    begin: Callable[..., Talk], tmp_path: Path, ending: str
) -> None:
    """Two calls that go on working after their run has ended; a new message meanwhile is answered."""
    folders = [tmp_path / name for name in ("c1", "c2")]
    for folder in folders:
        folder.mkdir()
    calls = [call(folder.name, "deaf", json.dumps({"folder": str(folder)})) for folder in folders]
    talk = begin([asking(*calls), *[step(text("Here."))] * 3], message="start")
    talk.event("tool.started", "c2")
    run = run_of(talk.sent[0])
    if ending == "cancel":
        talk.turnlog.cancel(run)
    else:
        talk.turnlog.stop(talk.id)
    assert talk.end(run)["type"] == "run.cancelled"
    assert not [folder for folder in folders if (folder / "done").exists()]
    talk.turn("are you there?")
    assert_sound(talk)
    log = list(talk.log)
    for folder in folders:
        (folder / "go").touch()
    until(lambda: all((folder / "done").exists() for folder in folders), "the return of both tools")
    talk.turn("and now?")
    assert_sound(talk)
    assert talk.log[: len(log)] == log
    assert "much too late" not in json.dumps([talk.log, talk.messages(), talk.asked()])
    assert {name: part["outcome"] for name, part in talk.results().items()} == {"c1": "aborted", "c2": "aborted"}
    assert [event["data"]["outcome"] for event in talk.of("tool.completed")] == ["aborted"] * 2


# -- P02: a model that never learns

NONSENSE: Mapping[str, list[Body]] = {
    "cut": call("c", "list_notes", '{"limit": '),
    "a list": call("c", "list_notes", "[{}]"),
    "unknown": call("c", "no_such_tool"),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_a_model_that_only_ever_asks_for_nonsense_is_stopped_by_the_limit_of_steps(
    begin: Callable[..., Talk], kind: str
) -> None:
    talk = begin([asking(NONSENSE[kind])] * (DEFAULT_MAX_STEPS + 20), {"list_notes": {"returns": []}}, "go")
    thread = assert_sound(talk)
    assert (thread["status"]["state"], thread["status"]["reason"]) == ("idle", "max_steps")
    assert talk.of("tool.started") == []
    assert len(talk.asked()) == DEFAULT_MAX_STEPS
    assert {part["outcome"] for part in talk.results().values()} == {"error"}
    assert len(talk.results()) == DEFAULT_MAX_STEPS


@pytest.mark.parametrize("returns", ["", " \n", [], {}, None, 0, False])
def test_an_empty_result_is_a_result_and_the_model_goes_on(begin: Callable[..., Talk], returns: Any) -> None:
    talk = begin([asking(call("c1", "empty")), step(text("none"))], {"empty": {"returns": returns}}, "go")
    assert_sound(talk)
    assert typed(talk.results()["c1"]["content"]) == typed(returns)
    assert [run["status"] for run in talk.runs()] == ["completed"]


# -- P13, P19: values on their way through

NUMBERS: list[Any] = [0, 1, -1, 0.1, 1.0, -0.0, 1e-7, 1e300, 5e-324, 2**53 + 1, -(2**63), 10**30, 0.1 + 0.2, 1.2e19]
VALUES: list[Any] = [
    *NUMBERS,
    *(True, False, None, "", "1", "NaN", [], {}, [[]], [{}], "\U0001f680", "\u2028", "\x7f\x01"),
    {"": "no name", "1": 1, "a.b": {"$": [NUMBERS, {"x": None}]}},
]


def test_values_come_back_as_they_went_in_from_arguments_results_and_metadata(
    begin: Callable[..., Talk], http: httpx.Client, line: Line
) -> None:
    """Through tool arguments and back as a result, as the result of a declared tool, and as metadata."""
    argued = [call(f"a{n}", "repeat", json.dumps({"value": value})) for n, value in enumerate(VALUES)]
    declared = {f"d{n}": {"returns": value} for n, value in enumerate(VALUES)}
    talk = begin([asking(*argued), asking(*[call(name, name) for name in declared]), step(text("ok"))], declared)
    metadata = {f"m{n}": value for n, value in enumerate(VALUES)}
    talk.say("go", metadata=metadata)
    shown_everywhere(http, line, talk)
    wanted = {**{f"a{n}": value for n, value in enumerate(VALUES)}, **{n: d["returns"] for n, d in declared.items()}}
    results = {name: part["content"] for name, part in talk.results().items()}
    assert typed(results) == typed(wanted)
    arguments = {f"a{n}": {"value": value} for n, value in enumerate(VALUES)}
    for place in (talk.whole(), talk.messages(), talk.asked()[-1]):
        assert typed(_arguments(place)) == typed(arguments)
    message = strict(http.get(f"/threads/{talk.id}/messages").content)["items"][0]
    assert typed(message["metadata"]) == typed(metadata)


def _arguments(place: Any) -> dict[str, Any]:
    """Call id -> arguments of the `repeat` calls that are told in these messages or events."""
    messages = [one.get("data", {}).get("message", one) for one in place]
    parts = [part for message in messages for part in message.get("content", ()) if part["type"] == "tool_call"]
    return {part["call_id"]: part["arguments"] for part in parts if part["name"] == "repeat"}


@pytest.mark.parametrize("name", ["odd", "raising"])
def test_whatever_a_tool_hands_over_is_told_as_json_and_the_run_goes_on(
    begin: Callable[..., Talk], http: httpx.Client, line: Line, name: str
) -> None:
    """Values that are no JSON, halves of characters, objects that refuse to be looked at: returned or raised."""
    calls = [call(f"c{n}", name, json.dumps({"kind": kind})) for n, kind in enumerate(ODD)]
    talk = begin([asking(*calls), step(text("all seen"))], message="go")
    shown_everywhere(http, line, talk)
    assert [run["status"] for run in talk.runs()] == ["completed"]
    outcome = {"odd": "ok", "raising": "error"}[name]
    results = {kind: talk.results()[f"c{n}"] for n, kind in enumerate(ODD)}
    assert {part["outcome"] for part in results.values()} == {outcome}
    told = json.dumps(results["split"]["content"], ensure_ascii=False)
    assert "\N{ROCKET}" in told
    assert "\N{REPLACEMENT CHARACTER}" not in told
    lone = json.dumps(results["half"]["content"], ensure_ascii=False)
    assert lone.count("\N{REPLACEMENT CHARACTER}") == 2  # the lone half and the NUL, one each


# -- P18: results of every size

SIZES = [100, 32 * 1024 - 1, 32 * 1024, 64 * 1024, 128 * 1024 - 1, 128 * 1024, 128 * 1024 + 1, 400_000, 1_500_000]


@pytest.mark.parametrize("letters", ["ascii", "emoji", "quotes", "random"])
@pytest.mark.parametrize("sizes", [SIZES, [7_000_000]], ids=["up to 1.5 MB", "7 MB"])
def test_a_result_of_any_size_leaves_no_hole_and_can_be_had_whole(
    begin: Callable[..., Talk], line: Line, http: httpx.Client, letters: Any, sizes: list[int]
) -> None:
    calls = [call(f"c{size}", "write", json.dumps({"letters": letters, "size": size})) for size in sizes]
    talk = begin([asking(*calls), step(text("that was much"))])
    line.subscribe(talk).caught_up(talk)
    talk.say("go")
    assert_sound(talk)
    assert [run["status"] for run in talk.runs()] == ["completed"]
    line.up_to(len(talk.log))
    assert [canonical(event) for event in line.events] == [canonical(event) for event in talk.log]
    assert line.largest < FRAME_BYTES
    artifacts = {event["data"]["call_id"]: event["data"] for event in talk.of("artifact.created")}
    told = {event["data"]["call_id"]: event["data"]["result"] for event in talk.whole() if "result" in event["data"]}
    for size in sizes:
        everything, name = written(letters, size), f"c{size}"
        if len(json.dumps(everything, ensure_ascii=False).encode()) <= TOOL_RESULT_BYTES:
            assert told[name] == everything
            assert name not in artifacts
        else:
            assert len(json.dumps(told[name], ensure_ascii=False).encode()) <= TOOL_RESULT_BYTES
            assert everything.startswith(told[name][:1000])
            ref = artifacts[name]["ref"]
            answer = http.get(f"/threads/{talk.id}/blobs/{ref}", follow_redirects=True)
            assert strict(answer.content) == everything
            assert artifacts[name]["bytes"] == len(answer.content)


# -- P10, P16: a worker that is killed


@pytest.mark.slow
def test_a_run_whose_worker_is_killed_is_taken_up_and_every_view_says_the_same(
    begin: Callable[..., Talk], product: Product
) -> None:
    script = [step(text("x" * 3000), pause(3000), text("end")), *[step(text("whole"))] * 5]
    talk = begin(script, message="0")
    talk.event("message.delta")
    os.kill(product.app_process(), signal.SIGKILL)
    with Turnlog(product.url, product.key, retries=10) as patient:
        again = Talk(patient, talk.id, talk.watch)
        again.end(run_of(talk.sent[0]), RECOVERY_SECONDS)
        again.settled(RECOVERY_SECONDS)
        thread = assert_sound(again)
        assert [event["type"] for event in again.of("run.reconciling", "message.reset")] == [
            "run.reconciling",
            "message.reset",
        ]
        (answer,) = [message for message in again.messages() if message["role"] == "assistant"]
        assert text_of(answer) == "whole"
        (listed,) = [one for one in patient.threads(agent="guest") if one["id"] == talk.id]
        roots = [root["thread"] for root in patient.latest_runs() if root["thread"]["id"] == talk.id]
        follower = Line(patient).subscribe(again).caught_up(again)
        snapshot = follower.frames[0]["status"]
        follower.socket.close()
        assert [listed["status"], *(root["status"] for root in roots), snapshot] == [thread["status"]] * 3
        assert [Event.parse(event).type for event in follower.events] == [event["type"] for event in again.log]
        again.turn("and now?")
        assert_sound(again)
