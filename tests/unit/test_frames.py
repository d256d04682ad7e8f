"""Frames hold the events that they were made of: all, in order, below the gateway's limit."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chalicelib.domain.errors import Fault, InvalidRequest
from chalicelib.domain.frames import (
    Follow,
    Frame,
    Leave,
    Ping,
    asked,
    caught_up_frame,
    error_frame,
    frames_of,
    gap_frame,
    live_frames,
    pong_frame,
    status_frame,
)
from chalicelib.domain.limits import FRAME_BYTES

THREAD = "thr_" + "a" * 20
UNITS = ("x", "\U0001f680", '"', "\\", "\u00e9", '\\"', "\n", "\x7f", "\u2028")
# P18: just below, at and above a frame and a gateway message, in text that grows when it is encoded.
SIZES = (1, 1_000, 15_900, 31_000, 31_700, 32_767, 32_768, 33_000, 131_071, 131_073)


@dataclass(frozen=True)
class Spelled:
    """A text by how it is made: a large one is not worth printing."""

    unit: str
    times: int = 1
    tail: str = ""

    @property
    def text(self) -> str:
        return self.unit * self.times + self.tail


texts = st.builds(
    Spelled,
    st.sampled_from(UNITS) | st.text(min_size=1, max_size=4),
    st.sampled_from(SIZES) | st.integers(0, 20_000),
    st.text(max_size=20),
)


def envelope(seq: int, text: str, *, kind: str = "message.delta") -> dict[str, Any]:
    data = {"state": text, "since": seq, "reason": None} if kind == "thread.status" else {"text": text}
    return {"schema_version": 1, "delivery_seq": seq, "type": kind, "thread_id": THREAD, "ts": seq, "data": data}


def envelopes(found: list[Spelled]) -> list[dict[str, Any]]:
    return [envelope(seq, spelled.text) for seq, spelled in enumerate(found, 1)]


def body(frame: Frame | bytes) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(frame.data if isinstance(frame, Frame) else frame)
    return parsed


def rows_of(frames: Iterable[Frame]) -> list[dict[str, Any]]:
    """What a client makes of frames: items as they come, parts joined."""
    rows: list[dict[str, Any]] = []
    pieces: list[str] = []
    for frame in map(body, frames):
        if frame["type"] == "events":
            rows += frame["items"]
        elif frame["type"] == "event_part":
            assert frame["index"] == len(pieces)
            pieces.append(frame["data"])
            if len(pieces) == frame["count"]:
                rows.append(json.loads("".join(pieces)))
                pieces = []
    assert not pieces
    return rows


@given(st.lists(texts, max_size=6))
@example([Spelled('"', 32_768), Spelled("x"), Spelled("\U0001f680", 8_192), Spelled("\\", 40_000)])
@example([Spelled("x", 500)] * 200)
def test_the_frames_of_any_events_give_back_these_events_in_order(found: list[Spelled]) -> None:
    events = envelopes(found)
    assert rows_of(frames_of(events)) == events


@given(st.lists(texts, max_size=6))
@example([Spelled('"', 200_000)])
def test_every_frame_is_below_the_limit_of_the_gateway(found: list[Spelled]) -> None:
    assert all(len(frame.data) < FRAME_BYTES for frame in frames_of(envelopes(found)))


@given(st.lists(texts, max_size=5))
def test_a_frame_covers_exactly_the_events_that_are_complete_with_it(found: list[Spelled]) -> None:
    events = envelopes(found)
    sent: list[Frame] = []
    for frame in frames_of(events):
        sent.append(frame)
        if frame.whole:
            assert rows_of(sent) == events[: frame.covers]
        else:
            assert frame.covers == body(frame)["delivery_seq"] - 1


@given(texts)
def test_an_event_is_always_cut_in_the_same_places(spelled: Spelled) -> None:
    events = envelopes([spelled])
    assert list(frames_of(events)) == list(frames_of(events))


def test_small_events_share_a_frame() -> None:
    frames = list(frames_of(envelopes([Spelled("short")] * 12)))
    assert [len(body(frame)["items"]) for frame in frames] == [12]


def test_the_parts_of_an_event_name_its_thread() -> None:
    parts = [body(frame) for frame in frames_of(envelopes([Spelled("x", 40_000)]))]
    assert [(part["type"], part["thread_id"], part["delivery_seq"], part["count"]) for part in parts] == [
        ("event_part", THREAD, 1, 2)
    ] * 2


def test_half_a_character_that_slipped_into_an_event_does_not_stop_its_frame() -> None:
    frames = list(frames_of([envelope(1, "a\ud800b")]))
    assert rows_of(frames) == [envelope(1, "a?b")]


def test_no_events_make_no_frame() -> None:
    assert list(live_frames([])) == []


def test_each_change_of_status_is_told_right_after_the_frame_that_holds_it() -> None:
    events = [
        envelope(5, "hello"),
        envelope(6, "running", kind="thread.status"),
        envelope(7, "x" * 31_500),
        envelope(8, "idle", kind="thread.status"),
        envelope(9, "running", kind="thread.status"),
    ]
    frames = list(live_frames(events))
    told = [(f["type"], f["status"]["state"] if "status" in f else None) for f in map(body, frames)]
    assert told == [
        ("events", None),
        ("thread_status", "running"),
        ("events", None),
        ("events", None),
        ("thread_status", "idle"),
        ("thread_status", "running"),
    ]
    assert [frame.covers for frame in frames] == [4, 6, 7, 7, 7, 9]
    assert [frame.whole for frame in frames] == [False, True, True, False, False, True]
    assert body(frames[1]) == {
        "type": "thread_status",
        "thread_id": THREAD,
        "status": {"state": "running", "since": 6, "reason": None},
    }


def test_a_change_that_the_snapshot_holds_already_is_not_told_again() -> None:
    events = [envelope(1, "running", kind="thread.status"), envelope(2, "idle", kind="thread.status")]
    assert [body(f).get("status", {}).get("state") for f in live_frames(events, known=1)] == [None, "idle"]
    assert [body(f)["type"] for f in live_frames(events, known=2)] == ["events"]


def test_the_small_frames_have_the_fields_of_the_contract() -> None:
    status = {"state": "idle", "since": 7, "reason": None}
    assert body(status_frame(THREAD, status)) == {"type": "thread_status", "thread_id": THREAD, "status": status}
    assert body(caught_up_frame(THREAD, 4)) == {"type": "caught_up", "thread_id": THREAD, "cursor": 4}
    assert body(caught_up_frame(THREAD, 4, more=True))["more"] is True
    assert body(gap_frame(THREAD, 1, 9)) == {"type": "gap", "thread_id": THREAD, "from": 1, "to": 9}
    assert body(pong_frame()) == {"type": "pong"}


def test_an_error_frame_holds_a_problem_and_stays_small_whatever_the_client_sent() -> None:
    faults = tuple(Fault(path="\x01" * 30_000, message="\u2028" * 30_000) for _ in range(50))
    frame = error_frame(InvalidRequest("\x01" * 30_000, faults=faults))
    assert len(frame) < FRAME_BYTES
    problem = body(frame)["problem"]
    assert (problem["type"], problem["status"]) == ("/problems/invalid-request", 400)
    assert problem["title"]
    assert problem["detail"]


@pytest.mark.parametrize(
    ("frame", "ask"),
    [
        ({"action": "ping"}, Ping()),
        ({"action": "unsubscribe", "thread_id": THREAD}, Leave(thread_id=THREAD)),
        ({"action": "subscribe", "thread_id": THREAD}, Follow(thread_id=THREAD, after=0, logs=False)),
        (
            {"action": "subscribe", "thread_id": THREAD, "after": 10**300, "logs": True},
            Follow(thread_id=THREAD, after=10**300, logs=True),
        ),
    ],
)
def test_a_good_client_frame_is_understood(frame: Any, ask: object) -> None:
    assert asked(frame) == ask


@pytest.mark.parametrize("after", ["abc", -1, 1.5, 1.0, None, [1], True, {}])
def test_a_bad_cursor_is_named(after: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        asked({"action": "subscribe", "thread_id": THREAD, "after": after})
    assert [fault.path for fault in refused.value.faults] == ["after"]


@pytest.mark.parametrize(
    ("frame", "paths"),
    [
        ([], [""]),
        ("x", [""]),
        (None, [""]),
        ({}, ["action"]),
        ({"action": "fly"}, ["action"]),
        ({"action": ["ping"]}, ["action"]),
        ({"action": "ping", "pad": "x"}, ["pad"]),
        ({"action": "subscribe"}, ["thread_id"]),
        ({"action": "subscribe", "thread_id": 5, "after": "x", "logs": 1}, ["thread_id", "after", "logs"]),
        ({"action": "subscribe", "thread_id": THREAD, "aftr": 1}, ["aftr"]),
        ({"action": "unsubscribe", "thread_id": None}, ["thread_id"]),
    ],
)  # fmt: skip
def test_all_faults_of_a_client_frame_are_named(frame: Any, paths: list[str]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        asked(frame)
    assert [fault.path for fault in refused.value.faults] == paths
