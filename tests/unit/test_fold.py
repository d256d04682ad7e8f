"""Events -> state: the log alone gives the conversation, the runs and the status that are stored."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain.fold import Fold, Folded, LogGap, fold

Body = dict[str, Any]
THREAD = "thr_x"
ZERO = {"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0}
moderate = settings(max_examples=60, deadline=None)  # a slow machine is no failure


def log(*entries: tuple[Any, ...]) -> list[Body]:
    """Envelopes of (type, data) or (type, data, run) or (type, data, run, attempt)."""
    events = []
    for seq, (kind, data, *more) in enumerate(entries, start=1):
        run = {"run_id": more[0]} if more and more[0] else {}
        attempt = {"attempt": more[1]} if len(more) > 1 else {}
        events.append(
            {"delivery_seq": seq, "type": kind, "thread_id": THREAD, "ts": seq, "data": data, **run, **attempt}
        )
    return events


def said(number: int, run: str | None = None, words: str = "hi", **more: Any) -> Body:
    """The body of a user's message of a command."""
    named = {"run_id": run} if run else {}
    return {"id": f"msg_x_c{number}", **named, "role": "user", "content": [{"type": "text", "text": words}], **more}


def answered(name: str, run: str, *parts: Body, role: str = "assistant") -> Body:
    """The body of a message of a run."""
    return {"id": name, "run_id": run, "role": role, "content": list(parts)}


def ids(folded: Folded) -> list[str]:
    """Ids of the messages in their order."""
    return [message["id"].removeprefix("msg_x_") for message in folded.messages]


CREATED = ("thread.created", {"agent": "assistant", "arguments": {"a": 1}, "title": "t", "tags": ["x"]})
RUNNING = ("thread.status", {"state": "running", "since": 4, "reason": None})
IDLE = ("thread.status", {"state": "idle", "since": 11, "reason": "stop_on_response"})
STARTED = {"agent": "assistant", "model": "offline:echo", "version": "7"}
DONE = {"reason": "stop_on_response", "usage": ZERO, "cost_usd": 0.0}


def queued(run: str) -> tuple[str, Body, str]:
    """The queueing of a run."""
    return ("run.queued", {"command_id": run.replace("run", "cmd"), "delivery": "join"}, run)


def usage(run: str, tokens: int, cost: float | None) -> tuple[str, Body, str, int]:
    """A reading of a model step."""
    data = {"model": "m", "input_tokens": tokens, "output_tokens": 1, "cost_usd": cost}
    return ("usage.updated", data, run, 1)


TEXT_TURN = log(
    CREATED,
    ("message.completed", {"message": said(1, "run_1")}, "run_1"),
    queued("run_1"),
    RUNNING,
    ("run.started", STARTED, "run_1", 1),
    ("message.started", {"message_id": "msg_x_r1s1", "role": "assistant"}, "run_1", 1),
    ("message.delta", {"message_id": "msg_x_r1s1", "text": "hel"}, "run_1", 1),
    ("message.completed", {"message": answered("msg_x_r1s1", "run_1", {"type": "text", "text": "hello"})}, "run_1", 1),
    usage("run_1", 3, 0.000002),
    ("step.recorded", {"step": {"n": 1, "kind": "done", "label": "hello", "at": 10}}, "run_1", 1),
    ("run.completed", DONE, "run_1", 1),
    IDLE,
)


def test_a_text_turn_folds_to_its_thread_its_messages_and_its_run() -> None:
    folded = fold(TEXT_TURN)
    assert (folded.agent, folded.title, folded.tags, folded.arguments) == ("assistant", "t", ["x"], {"a": 1})
    assert folded.status == {"state": "idle", "since": 11, "reason": "stop_on_response"}
    assert folded.messages == [TEXT_TURN[1]["data"]["message"], TEXT_TURN[7]["data"]["message"]]
    assert folded.queue == {"pending": 0, "runs": 0}
    assert folded.streaming == {}
    assert folded.runs["run_1"] == {
        "id": "run_1",
        "command_id": "cmd_1",
        "status": "completed",
        "reason": "stop_on_response",
        "agent": "assistant",
        "model": "offline:echo",
        "version": "7",
        "attempts": 1,
        "usage": {"input_tokens": 3, "output_tokens": 1, "cache_read_tokens": 0},
        "cost_usd": 0.000002,
    }
    assert (folded.seq, folded.cost_usd, folded.usage) == (12, 0.000002, folded.runs["run_1"]["usage"])


def test_a_new_thread_is_idle_since_its_creation() -> None:
    assert fold(log(CREATED)).status == {"state": "idle", "since": 1, "reason": None}


def test_a_message_takes_its_place_when_its_run_starts_and_waits_at_the_end_until_then() -> None:
    events = log(
        CREATED,
        ("message.completed", {"message": said(1, "run_1")}, "run_1"),
        queued("run_1"),
        ("run.started", STARTED, "run_1", 1),
        ("message.completed", {"message": said(2, "run_2")}, "run_2"),
        queued("run_2"),
        ("message.completed", {"message": answered("msg_x_r1s1", "run_1")}, "run_1", 1),
        ("run.completed", DONE, "run_1", 1),
        ("run.started", STARTED, "run_2", 1),
        ("message.completed", {"message": answered("msg_x_r2s1", "run_2")}, "run_2", 1),
    )
    assert ids(fold(events[:2])) == ["c1"]
    assert ids(fold(events[:7])) == ["c1", "r1s1", "c2"]
    assert fold(events[:7]).queue == {"pending": 0, "runs": 1}
    assert ids(fold(events)) == ["c1", "r1s1", "c2", "r2s1"]


def test_a_message_whose_run_never_started_takes_its_place_when_the_run_ends() -> None:
    events = log(
        CREATED,
        ("message.completed", {"message": said(1, "run_1")}, "run_1"),
        queued("run_1"),
        ("message.completed", {"message": said(2, "run_2")}, "run_2"),
        queued("run_2"),
        ("run.cancelled", {"reason": "aborted_by_user", "finished_calls": []}, "run_2"),
        ("run.started", STARTED, "run_1", 1),
    )
    assert ids(fold(events)) == ["c2", "c1"]
    assert fold(events).runs["run_2"]["status"] == "cancelled"


def test_a_pending_join_stands_last_until_it_is_injected() -> None:
    join = said(2, metadata={"queued": True})
    injected = said(2, "run_1", metadata={})
    events = log(
        CREATED,
        ("message.completed", {"message": said(1, "run_1")}, "run_1"),
        queued("run_1"),
        ("run.started", STARTED, "run_1", 1),
        ("message.queued", {"message": join}),
        ("message.completed", {"message": answered("msg_x_r1s1", "run_1")}, "run_1", 1),
        ("message.completed", {"message": injected}, "run_1", 1),
    )
    before = fold(events[:6])
    assert (ids(before), before.pending, before.queue) == (
        ["c1", "r1s1", "c2"],
        ["msg_x_c2"],
        {"pending": 1, "runs": 0},
    )
    assert before.messages[-1] == join
    after = fold(events)
    assert (ids(after), after.pending) == (["c1", "r1s1", "c2"], [])
    assert after.messages[-1] == injected


def test_what_waits_is_listed_by_the_number_of_its_command_and_not_as_text() -> None:
    events = log(
        CREATED,
        ("message.queued", {"message": said(10)}),
        ("message.queued", {"message": said(9)}),
        ("message.completed", {"message": said(11, "run_11")}, "run_11"),
        queued("run_11"),
    )
    assert ids(fold(events)) == ["c9", "c10", "c11"]
    assert fold(events).pending == ["msg_x_c9", "msg_x_c10"]


def test_a_silent_message_and_a_withdrawn_join_belong_to_no_run_and_are_placed_at_once() -> None:
    events = log(
        CREATED,
        ("message.queued", {"message": said(2)}),
        ("message.completed", {"message": said(3, silent=True)}),
        ("message.completed", {"message": said(2)}),
    )
    assert ids(fold(events)) == ["c3", "c2"]
    assert fold(events).pending == []


def test_an_update_replaces_a_message_where_it_stands() -> None:
    edited = said(1, "run_1", "edited", updated_at=13)
    events = [*TEXT_TURN, {**TEXT_TURN[-1], "delivery_seq": 13, "type": "message.updated", "data": {"message": edited}}]
    assert fold(events).messages == [edited, TEXT_TURN[7]["data"]["message"]]


@pytest.mark.parametrize(("gone", "left"), [("msg_x_r1s1", ["c1", "r1s2"]), ("msg_x_r1s2", ["c1", "r1s1", "r1t1"])])
def test_a_deleted_message_takes_the_results_of_its_calls_along(gone: str, left: list[str]) -> None:
    calls = {"type": "tool_call", "call_id": "c", "name": "n", "arguments": {}}
    results = {"type": "tool_result", "call_id": "c", "outcome": "ok", "content": 1}
    events = log(
        CREATED,
        ("message.completed", {"message": said(1, "run_1")}, "run_1"),
        queued("run_1"),
        ("run.started", STARTED, "run_1", 1),
        ("message.completed", {"message": answered("msg_x_r1s1", "run_1", calls)}, "run_1", 1),
        ("message.completed", {"message": answered("msg_x_r1t1", "run_1", results, role="tool")}, "run_1", 1),
        ("message.completed", {"message": answered("msg_x_r1s2", "run_1")}, "run_1", 1),
        ("message.deleted", {"message_id": gone}),
    )
    assert ids(fold(events)) == left


def test_streamed_text_is_dropped_by_a_reset_and_gone_when_the_message_is_whole() -> None:
    def delta(words: str) -> tuple[str, Body, str, int]:
        return ("message.delta", {"message_id": "m", "text": words}, "run_1", 1)

    events = log(
        CREATED,
        queued("run_1"),
        ("run.started", STARTED, "run_1", 1),
        ("message.started", {"message_id": "m", "role": "assistant"}, "run_1", 1),
        delta("first"),
        ("message.reset", {"message_id": "m", "reason": "truncated"}, "run_1", 1),
        delta("sec"),
        delta("ond"),
        ("message.completed", {"message": answered("m", "run_1")}, "run_1", 1),
    )
    assert [fold(events[:n]).streaming for n in (5, 6, 8, 9)] == [{"m": "first"}, {"m": ""}, {"m": "second"}, {}]


def test_usage_is_the_sum_of_the_model_steps_and_an_unknown_price_makes_the_cost_unknown() -> None:
    known = log(CREATED, queued("run_1"), usage("run_1", 1, 0.1), usage("run_1", 2, 0.2))
    folded = fold(known)
    assert folded.runs["run_1"]["usage"] == {"input_tokens": 3, "output_tokens": 2, "cache_read_tokens": 0}
    assert (folded.runs["run_1"]["cost_usd"], folded.cost_usd) == (0.3, 0.3)
    unknown = fold(log(CREATED, usage("run_1", 1, 0.1), usage("run_2", 2, None)))
    assert (unknown.runs["run_1"]["cost_usd"], unknown.runs["run_2"]["cost_usd"], unknown.cost_usd) == (0.1, None, None)
    assert unknown.usage == {"input_tokens": 3, "output_tokens": 2, "cache_read_tokens": 0}


def test_a_run_that_waits_resumes_and_fails_tells_its_last_reason_attempt_and_error() -> None:
    error = {"type": "model_error", "detail": "no", "retryable": False}
    events = log(
        CREATED,
        queued("run_1"),
        ("run.started", STARTED, "run_1", 1),
        ("run.waiting", {"reason": "awaiting_human", "on": ["q"]}, "run_1", 1),
        ("run.resumed", {"reason": "awaiting_human", "on": ["q"]}, "run_1", 2),
        ("run.reconciling", {"adopted": 0}, "run_1", 3),
        ("run.failed", {"reason": "model_error", "error": error}, "run_1", 3),
    )
    told = [(run["status"], run["reason"]) for run in (fold(events[:n]).runs["run_1"] for n in (2, 3, 4, 5, 7))]
    assert told == [
        ("queued", None),
        ("running", None),
        ("waiting", "awaiting_human"),
        ("running", None),
        ("failed", "model_error"),
    ]
    assert (fold(events).runs["run_1"]["attempts"], fold(events).runs["run_1"]["error"]) == (3, error)


def test_a_superseded_run_marks_its_messages() -> None:
    events = [
        *TEXT_TURN[:10],
        *[{**TEXT_TURN[10], "type": "run.cancelled", "data": {"reason": "aborted_by_user", "superseded": True}}],
    ]
    assert [message["superseded"] for message in fold(events).messages] == [True, True]


def test_files_children_and_the_thread_itself_are_as_last_told() -> None:
    def changed(path: str, change: str, size: int) -> tuple[str, Body]:
        return ("file.changed", {"path": path, "change": change, "bytes": size, "sha256": "s"})

    child = {"reference_id": "r", "kind": "thread", "thread_id": "thr_y", "name": "kid", "blocking": True}
    folded = fold(
        log(
            CREATED,
            ("thread.updated", {"title": None, "tags": ["y"]}),
            changed("/a", "created", 1),
            changed("/b", "created", 2),
            changed("/a", "updated", 3),
            changed("/b", "deleted", 0),
            ("child.started", child),
            ("child.updated", {"reference_id": "r", "status": "running"}),
            ("child.completed", {"reference_id": "r", "outcome": "done"}),
            ("custom.note", {"anything": 1}),
            ("thread.terminated", {}),
        )
    )
    assert (folded.title, folded.tags, folded.thread["terminated_at"]) == (None, ["y"], 11)
    assert folded.files == {"/a": {"bytes": 3, "sha256": "s"}}
    assert folded.children == {"r": {**child, "status": "running", "outcome": "done"}}


def test_a_thread_is_played_by_whom_it_was_handed_to_until_it_is_handed_back() -> None:
    over, back = ("thread.updated", {"played_by": "desk"}), ("thread.updated", {"played_by": "assistant"})
    assert fold(log(CREATED, over)).thread["played_by"] == "desk"
    assert fold(log(CREATED, over)).agent == "assistant"
    assert "played_by" not in fold(log(CREATED, over, back)).thread


# ---------------------------------------------------------------- pages, repeats, holes, blobs


@moderate
@given(st.lists(st.integers(0, len(TEXT_TURN)), max_size=4), st.integers(0, 3))
def test_folding_page_by_page_with_repeats_equals_folding_at_once(places: list[int], repeats: int) -> None:
    paged = Fold()
    for begin, end in itertools.pairwise([0, *sorted(places), len(TEXT_TURN)]):
        paged.feed(TEXT_TURN[max(0, begin - repeats) : end])
    assert paged.folded() == fold(TEXT_TURN)


def test_a_hole_in_the_log_is_an_error() -> None:
    with pytest.raises(LogGap, match="event 3 is missing before 4"):
        fold(TEXT_TURN[:2] + TEXT_TURN[3:])
    with pytest.raises(LogGap, match="event 1 is missing"):
        fold(TEXT_TURN[1:])


def test_a_state_that_was_handed_out_does_not_change_when_the_fold_goes_on() -> None:
    going = Fold().feed(TEXT_TURN[:8])
    early = going.folded()
    going.feed(TEXT_TURN)
    assert early == fold(TEXT_TURN[:8])


BLOBS: Mapping[str, Any] = {
    "args": {"large": True},
    "parts": [{"type": "text", "text": "hello"}],
    "created": CREATED[1],
    "message": said(1, "run_1"),
}


def stored(ref: str) -> Body:
    """What stands for a large field."""
    return {"ref": ref, "bytes": 40_000, "sha256": "0" * 64, "content_type": "application/json"}


@pytest.mark.parametrize(
    ("first", "second", "arguments"),
    [
        ({**CREATED[1], "arguments": stored("args")}, {"message": stored("message")}, {"large": True}),
        (stored("created"), {"message": {**said(1, "run_1"), "content": stored("parts")}}, {"a": 1}),
    ],
    ids=["a field of the data", "the data, a field of the message"],
)
def test_large_fields_are_read_through_their_reference(first: Body, second: Body, arguments: Body) -> None:
    folded = fold(log(("thread.created", first), ("message.completed", second, "run_1")), BLOBS.__getitem__)
    assert folded.arguments == arguments
    assert folded.messages[0]["content"] in (BLOBS["parts"], said(1)["content"])


def test_without_a_reader_of_blobs_the_reference_stays_and_an_artifacts_reference_is_never_read() -> None:
    assert fold(log(("thread.created", {**CREATED[1], "arguments": stored("args")}))).arguments == stored("args")
    artifact = ("artifact.created", {"artifact_id": "a", "name": "n", **stored("missing")})
    assert fold(log(CREATED, artifact), BLOBS.__getitem__).seq == 2
