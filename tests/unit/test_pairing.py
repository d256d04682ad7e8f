"""What a provider is sent: one result directly after each call, whatever crashed, was cancelled, cut or repeated."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain.pairing import UNFINISHED, repair, window
from chalicelib.domain.values import size

Body = Mapping[str, Any]
moderate = settings(max_examples=100, deadline=None)  # a slow machine is no failure


def text(words: str) -> Body:
    """A text part."""
    return {"type": "text", "text": words}


def call(call_id: str) -> Body:
    """A call of a tool."""
    return {"type": "tool_call", "call_id": call_id, "name": "look", "arguments": {}}


def result(call_id: str, content: Any = "found", outcome: str = "ok") -> Body:
    """What a tool answered."""
    return {"type": "tool_result", "call_id": call_id, "outcome": outcome, "content": content}


def message(role: str, *parts: Body, **fields: Any) -> Body:
    """A message body with what matters here."""
    return {"role": role, "content": list(parts), **fields}


ABORTED = {"type": "tool_result", "outcome": "aborted", "content": UNFINISHED}
HELLO = message("user", text("hello"))
ASKS = message("assistant", text("let me see"), call("c1"), call("c2"), id="msg_x_r1s2", thread_id="thr_x", run_id="r1")


def shown(messages: Sequence[Body]) -> list[tuple[str, list[Any]]]:
    """Roles and the telling part of each part."""
    return [(m["role"], [p.get("call_id") or p.get("text") for p in m["content"]]) for m in messages]


def faults(messages: Sequence[Body]) -> list[str]:
    """What a strict provider would refuse."""
    found: list[str] = []
    seen: set[str] = set()
    open_calls: list[str] = []
    for one in messages:
        results = [p["call_id"] for p in one["content"] if p["type"] == "tool_result"]
        if (one["role"] == "tool") != bool(open_calls) or results != open_calls:
            found.append(f"results {results} after calls {open_calls}")
        open_calls = [p["call_id"] for p in one["content"] if p["type"] == "tool_call"]
        if open_calls and one["role"] != "assistant":
            found.append("a call of somebody else")
        found += [f"{c} is called twice" for c in open_calls if c in seen or open_calls.count(c) > 1]
        seen.update(open_calls)
        if not one["content"] or any(p["type"] == "text" and not p["text"].strip() for p in one["content"]):
            found.append("a message or a text without content")
    return found + ["a call at the end"] * bool(open_calls)


call_ids = st.sampled_from(["c1", "c2", "c3", "c4"])
parts = (
    st.sampled_from([text("x"), text(""), text(" \n"), {"type": "file", "path": "/a"}])
    | call_ids.map(call)
    | st.builds(result, call_ids, st.sampled_from(["", "r", None, {"a": 1}]))
)
conversations = st.lists(
    st.builds(
        lambda role, content: message(role, *content),
        st.sampled_from(["user", "assistant", "tool", "system"]),
        st.lists(parts, max_size=4),
    ),
    max_size=8,
)


@moderate
@given(conversations)
def test_any_conversation_comes_out_well_paired(messages: list[Body]) -> None:
    assert faults(repair(messages)) == []


@moderate
@given(conversations)
def test_a_second_repair_changes_nothing(messages: list[Body]) -> None:
    once = repair(messages)
    twice = repair(once)
    assert twice == once
    assert all(a is b for a, b in zip(once, twice, strict=True))


@moderate
@given(conversations)
def test_repair_keeps_every_call_text_and_file_and_the_first_result_told_after_its_call(messages: list[Body]) -> None:
    def told(kind: str, bodies: Sequence[Body]) -> list[Any]:
        return [p for m in bodies if m["role"] != "tool" for p in m["content"] if p["type"] == kind]

    repaired = repair(messages)
    assert [p for p in told("text", messages) if p["text"].strip()] == told("text", repaired)
    assert told("file", messages) == told("file", repaired)
    flat = [(m["role"], n, p) for n, m in enumerate(messages) for p in m["content"]]
    for part in (p for m in repaired if m["role"] == "tool" for p in m["content"]):
        at = next(
            n
            for role, n, p in flat
            if (p["type"], role) == ("tool_call", "assistant") and p["call_id"] == part["call_id"]
        )
        answers = [p for _, n, p in flat if p["type"] == "tool_result" and p["call_id"] == part["call_id"] and n > at]
        assert part == (answers[0] if answers else {**ABORTED, "call_id": part["call_id"]})


@st.composite
def paired_conversations(draw: st.DrawFn) -> list[Body]:
    """Conversations as they are stored when nothing went wrong."""
    messages: list[Body] = []
    for turn in range(draw(st.integers(0, 4))):
        messages.append(message("user", text(f"u{turn}")))
        names = [f"t{turn}c{n}" for n in range(draw(st.integers(0, 3)))]
        if names:
            messages.append(message("assistant", *[call(name) for name in names]))
            messages.append(message("tool", *[result(name, draw(st.sampled_from(["", "r"]))) for name in names]))
        messages.append(message("assistant", text("done")))
    return messages


@moderate
@given(paired_conversations())
def test_a_well_paired_conversation_is_left_as_it_is(messages: list[Body]) -> None:
    repaired = repair(messages)
    assert list(repaired) == messages
    assert all(a is b for a, b in zip(messages, repaired, strict=True))


def test_a_call_without_a_result_gets_an_aborted_one_directly_behind_it() -> None:
    repaired = repair([HELLO, ASKS, message("user", text("are you there?"))])
    assert shown(repaired) == [
        ("user", ["hello"]),
        ("assistant", ["let me see", "c1", "c2"]),
        ("tool", ["c1", "c2"]),
        ("user", ["are you there?"]),
    ]
    made = repaired[2]
    assert made["content"] == [{**ABORTED, "call_id": "c1"}, {**ABORTED, "call_id": "c2"}]
    assert (made["id"], made["thread_id"], made["run_id"]) == ("msg_x_r1t2", "thr_x", "r1")


def test_a_missing_result_is_filled_in_and_the_others_stay_in_the_order_of_the_calls() -> None:
    repaired = repair([ASKS, message("tool", result("c2"), id="m9")])
    assert repaired[1]["content"] == [{**ABORTED, "call_id": "c1"}, result("c2")]
    assert repaired[1]["id"] == "m9"


def test_results_in_several_messages_become_one_behind_their_calls() -> None:
    repaired = repair([ASKS, message("tool", result("c2")), HELLO, message("tool", result("c1"))])
    assert shown(repaired) == [("assistant", ["let me see", "c1", "c2"]), ("tool", ["c1", "c2"]), ("user", ["hello"])]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([message("tool", result("c1")), HELLO], [("user", ["hello"])]),
        ([message("tool", result("c9")), ASKS], [("assistant", ["let me see", "c1", "c2"]), ("tool", ["c1", "c2"])]),
        ([message("assistant"), HELLO, message("assistant", text(""))], [("user", ["hello"])]),
        ([message("user", text(" "), text("a"))], [("user", ["a"])]),
        ([message("user", text("a"), call("c1"))], [("user", ["a"])]),
    ],
    ids=["result before any call", "result of another call", "empty answers", "blank text", "call of a user"],
)
def test_what_no_provider_takes_is_left_out(messages: list[Body], expected: list[Any]) -> None:
    assert shown(repair(messages)) == expected


def test_a_second_result_and_a_second_call_of_the_same_id_are_left_out() -> None:
    asks = message("assistant", call("c1"))
    late = message("tool", result("c1", "late"))
    repaired = repair([asks, message("tool", result("c1", "first"), result("c1", "again")), late, asks, late])
    assert shown(repaired) == [("assistant", ["c1"]), ("tool", ["c1"])]
    assert repaired[1]["content"][0]["content"] == "first"


def test_an_empty_result_stays_empty() -> None:
    messages = [message("assistant", call("c1")), message("tool", result("c1", ""))]
    assert list(repair(messages)) == messages


# ---------------------------------------------------------------- the window


def turns(count: int) -> list[Body]:
    """Turns of a question, a call, its result and an answer."""
    return [
        one
        for n in range(count)
        for one in (
            message("user", text(f"q{n}")),
            message("assistant", call(f"c{n}")),
            message("tool", result(f"c{n}")),
            message("assistant", text(f"a{n}")),
        )
    ]


@moderate
@given(conversations, st.integers(1, 10), st.integers(1, 600))
def test_a_window_holds_the_newest_messages_within_its_bounds(messages: list[Body], count: int, room: int) -> None:
    messages = list(repair(messages))
    kept = window(messages, count, room)
    whole = 2 if messages and messages[-1]["role"] == "tool" else 1  # the newest, with the calls of results
    assert len(kept) <= max(count, whole)
    assert sum(map(size, kept)) <= max(room, sum(map(size, messages[-whole:])))
    assert list(kept[-1:]) == messages[-1:]
    if not any(m["role"] == "user" for m in messages):
        assert list(kept) == messages[len(messages) - len(kept) :]


@moderate
@given(conversations, st.integers(1, 10), st.integers(1, 600))
def test_a_window_of_a_well_paired_conversation_is_well_paired(messages: list[Body], count: int, room: int) -> None:
    assert faults(window(repair(messages), count, room)) == []
    assert faults(repair(window(messages, count, room))) == []


def test_a_window_begins_at_a_users_message() -> None:
    messages = turns(3)
    assert list(window(messages, 7, 100_000)) == messages[8:]
    assert list(window(messages, 8, 100_000)) == messages[4:]
    assert list(window(messages, 50, 100_000)) == messages
    assert list(window(messages, 50, sum(map(size, messages[5:])))) == messages[8:]


def test_a_turn_longer_than_the_window_keeps_its_question_and_its_newest_messages() -> None:
    messages = [HELLO, *turns(4)[1:4], *turns(9)[33:36]]
    kept = window(messages, 4, 100_000)
    assert list(kept) == [HELLO, *messages[-3:]]
    assert list(window(messages, 3, 100_000)) == [HELLO, messages[-1]]


def test_a_question_too_large_for_the_window_makes_room_for_the_newest() -> None:
    messages = [message("user", text("x" * 1000)), *turns(1)[1:]]
    assert list(window(messages, 3, 400)) == messages[-3:]


def test_the_newest_message_is_kept_even_if_it_is_larger_than_the_window() -> None:
    messages = [HELLO, message("user", text("x" * 1000))]
    assert list(window(messages, 10, 100)) == messages[-1:]
    assert window([], 10, 100) == ()


def test_results_too_large_for_the_window_are_kept_with_their_calls() -> None:
    messages = [HELLO, message("assistant", call("c1")), message("tool", result("c1", "x" * 1000))]
    assert list(window(messages, 10, 100)) == messages[-2:]
