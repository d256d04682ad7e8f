"""An answer as it comes: what is told of it is safe and is the beginning of what is stored, however it was cut."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain import values
from chalicelib.domain.limits import CONTENT_BYTES
from chalicelib.domain.model import Tokens
from chalicelib.domain.values import safe_text
from chalicelib.engine.speech import MAX_CALLS, Speech
from chalicelib.ports import CallArgs, CallStart, Chunk, Reasoning, Stop, Text, Usage

ROCKET = "\N{ROCKET}"
BAD = "\N{REPLACEMENT CHARACTER}"
END = Stop(reason="end")
moderate = settings(max_examples=200, deadline=None)  # a slow machine is no failure


def heard(*chunks: Chunk | None, finish: bool = True) -> Speech:
    """An answer of these chunks; None tells what is untold."""
    speech = Speech(message_id="msg_x_r1s1", run=1, attempt=2)
    for now, chunk in enumerate(chunks, start=1):
        if chunk is None:
            speech.tell(now)
        else:
            speech.take(chunk, now)
    if finish:
        speech.finish(99)
    return speech


def told(speech: Speech) -> list[tuple[str, str]]:
    """Types and texts of what was told."""
    return [(fact.type, fact.data.get("text", "")) for fact in speech.facts]


def parts(speech: Speech) -> list[Any]:
    """The stored content in short: texts, and calls by their reference."""
    calls = {call.ref: {"type": "tool_call", "call_id": call.ref} for call in speech.calls}
    return [part.get("text") or {part["call_id"]} for part in speech.content(calls)]


def start(ref: str, name: str = "look") -> CallStart:
    return CallStart(ref=ref, call_id=f"id-{ref}", name=name)


# ---------------------------------------------------------------- what is told


def test_the_first_piece_opens_the_message_once_and_in_the_name_of_the_attempt() -> None:
    speech = heard(Text(text="a"), Text(text="b"), END)
    (opened,) = speech.facts
    assert (opened.type, opened.data) == ("message.started", {"message_id": "msg_x_r1s1", "role": "assistant"})
    assert (opened.at, opened.run, opened.attempt) == (1, 1, 2)


@pytest.mark.parametrize("chunk", [Text(text="a"), Reasoning(text="a"), start("c1"), CallArgs(ref="c1", part="{")])
def test_whatever_is_said_first_opens_the_message(chunk: Chunk) -> None:
    assert told(heard(chunk))[0] == ("message.started", "")


def test_tokens_and_an_end_alone_say_nothing() -> None:
    speech = heard(Usage(mode="total", input_tokens=3, output_tokens=0), END, None)
    assert (speech.begun, speech.facts, speech.content({})) == (False, [], ())
    assert speech.stop == END


def test_deltas_hold_what_was_not_told_yet_and_nothing_twice() -> None:
    speech = heard(Text(text="a"), Text(text="b"), None, None, Text(text="c"), None, Text(text="d"), END)
    assert told(speech) == [("message.started", ""), ("message.delta", "ab"), ("message.delta", "c")]
    assert {fact.data["message_id"] for fact in speech.facts} == {"msg_x_r1s1"}
    assert parts(speech) == ["abcd"]


def test_what_is_untold_is_measured_in_bytes_until_it_is_told() -> None:
    speech = heard(Text(text="é"), Reasoning(text=ROCKET), finish=False)
    assert speech.untold_bytes == 6
    speech.tell(9)
    assert speech.untold_bytes == 0


def test_reasoning_is_told_apart_and_is_complete_when_the_text_begins() -> None:
    speech = heard(Reasoning(text="h"), None, Reasoning(text="m"), Text(text="yes"), None, END)
    assert told(speech) == [
        ("message.started", ""),
        ("reasoning.delta", "h"),
        ("reasoning.completed", "hm"),
        ("message.delta", "yes"),
    ]
    assert parts(speech) == ["yes"]


@pytest.mark.parametrize("behind", [Text(text="x"), start("c1"), END, None])
def test_reasoning_is_completed_once_whatever_follows(behind: Chunk | None) -> None:
    speech = heard(Reasoning(text="hm"), *([behind] if behind else []))
    assert [entry for entry in told(speech) if entry[0].startswith("reasoning")] == [("reasoning.completed", "hm")]


def test_each_stretch_of_reasoning_is_completed_by_itself() -> None:
    speech = heard(Reasoning(text="a"), Text(text="1"), Reasoning(text="b"), None, Text(text="2"), END)
    assert [entry for entry in told(speech) if entry[0] == "reasoning.completed"] == [
        ("reasoning.completed", "a"),
        ("reasoning.completed", "b"),
    ]


def test_a_second_finish_tells_nothing_new() -> None:
    speech = heard(Reasoning(text="a\ud83d"), Text(text="b\ud83d"))
    before = (told(speech), parts(speech))
    speech.finish(100)
    assert (told(speech), parts(speech)) == before


# ---------------------------------------------------------------- characters


def test_a_character_cut_between_two_pieces_is_told_whole() -> None:
    raw = f"a{ROCKET}".encode()
    speech = heard(Text(text=raw[:3]), None, Text(text=raw[3:]), None, END)
    assert told(speech)[1:] == [("message.delta", "a"), ("message.delta", ROCKET)]
    assert parts(heard(Text(text="\ud83d"), Text(text="\ude80"))) == [ROCKET]


def test_a_character_may_be_completed_across_reasoning() -> None:
    raw = ROCKET.encode()
    assert parts(heard(Text(text=raw[:2]), Reasoning(text="hm"), Text(text=raw[2:]))) == [ROCKET]


@pytest.mark.parametrize("end", [END, start("c1"), None])
def test_a_half_character_at_the_end_of_a_text_becomes_a_replacement_there(end: Chunk | None) -> None:
    speech = heard(Text(text=b"a\xf0\x9f"), *([end] if end else []))
    assert speech.text == f"a{BAD}"
    assert heard(Reasoning(text="a\ud83d")).facts[-1].data["text"] == f"a{BAD}"


def test_nul_and_half_characters_in_a_tools_name_are_made_safe() -> None:
    (call,) = heard(start("c1", "lo\0ok\ud83d")).calls
    assert call.name == f"lo{BAD}ok{BAD}"


# ---------------------------------------------------------------- calls


def test_calls_and_texts_are_stored_in_the_order_in_which_they_came() -> None:
    speech = heard(Text(text="a"), start("c1"), Text(text="b"), start("c2"), start("c3"), Text(text="c"), END)
    assert parts(speech) == ["a", {"c1"}, "b", {"c2"}, {"c3"}, "c"]
    assert speech.text == "abc"


def test_the_arguments_of_calls_that_come_mixed_go_to_their_own_call() -> None:
    speech = heard(
        start("c1"),
        start("c2"),
        CallArgs(ref="c1", part='{"a"'),
        CallArgs(ref="c2", part="{}"),
        CallArgs(ref="c1", part=":1}"),
    )
    assert [(call.ref, call.call_id, call.text) for call in speech.calls] == [
        ("c1", "id-c1", '{"a":1}'),
        ("c2", "id-c2", "{}"),
    ]


def test_arguments_of_a_call_that_never_began_are_a_call_without_a_name() -> None:
    speech = heard(CallArgs(ref="c1", part="{"), CallArgs(ref="c1", part="}"))
    assert [(call.call_id, call.name, call.text) for call in speech.calls] == [(None, "", "{}")]


def test_a_stored_answer_holds_the_calls_that_have_a_part_and_no_empty_text() -> None:
    speech = heard(Text(text=""), start("c1"), start("c2"), END)
    part = {"type": "tool_call", "call_id": "x", "name": "look", "arguments": {}}
    assert speech.content({"c2": part}) == (part,)


def test_calls_beyond_what_one_write_takes_are_left_out() -> None:
    speech = heard(*[start(f"c{n}") for n in range(MAX_CALLS + 5)], Text(text="done"))
    assert [call.ref for call in speech.calls] == [f"c{n}" for n in range(MAX_CALLS)]
    assert parts(speech) == [*[{f"c{n}"} for n in range(MAX_CALLS)], "done"]


# ---------------------------------------------------------------- size and tokens


@pytest.mark.parametrize(
    "chunks",
    [
        [Text(text="x" * CONTENT_BYTES)],
        [Text(text="é" * (CONTENT_BYTES // 2))],
        [start("c1"), CallArgs(ref="c1", part="x" * (CONTENT_BYTES // 2)), Text(text="x" * (CONTENT_BYTES // 2))],
        [start("c1"), CallArgs(ref="c1", part="é" * (CONTENT_BYTES // 4)), Text(text="x" * (CONTENT_BYTES // 2))],
        [Text(text="\x01" * (CONTENT_BYTES // 6)), Text(text="x" * (CONTENT_BYTES % 6))],
    ],
    ids=["ascii", "two bytes a character", "arguments and text", "two bytes in arguments", "six bytes in JSON"],
)
def test_an_answer_is_too_long_above_the_limit_of_a_messages_content(chunks: list[Chunk]) -> None:
    assert not heard(*chunks).too_long
    assert heard(*chunks, Text(text="x")).too_long


@pytest.mark.parametrize("unit", ["x", "é", "🚀", "\x01", '"'])
def test_what_is_above_the_limit_is_cut_between_characters_and_nothing_follows(unit: str) -> None:
    speech = heard(Text(text=unit * CONTENT_BYTES), Text(text="more"))
    (part,) = speech.content({})
    assert speech.too_long
    assert set(part["text"]) == {unit}
    assert CONTENT_BYTES - 6 <= values.size(part["text"]) - 2 <= CONTENT_BYTES


def test_reasoning_does_not_count_as_content() -> None:
    assert not heard(Reasoning(text="x" * (CONTENT_BYTES + 1))).too_long


def usage(mode: Any, tokens: int, cached: int = 0) -> Usage:
    return Usage(mode=mode, input_tokens=tokens, output_tokens=1, cache_read_tokens=cached)


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([], Tokens()),
        ([usage("increment", 3), usage("increment", 4, 2)], Tokens(input=7, output=2, cache_read=2)),
        ([usage("total", 3), usage("total", 9, 5)], Tokens(input=9, output=1, cache_read=5)),
        ([usage("increment", 3), usage("total", 9), usage("increment", 1)], Tokens(input=10, output=2)),
    ],
)
def test_increments_add_up_and_a_total_replaces_what_came_before(readings: list[Usage], expected: Tokens) -> None:
    assert heard(Text(text="a"), *readings, END).usage == expected


def test_an_answer_without_a_finish_reason_has_no_stop() -> None:
    assert heard(Text(text="a")).stop is None
    assert heard(Text(text="a"), Stop(reason="length")).stop == Stop(reason="length")


# ---------------------------------------------------------------- whatever comes

texts = st.text(st.sampled_from(["a", "é", ROCKET, "\ud83d", "\ude80", "\0", "\n"]), max_size=4)
cut_bytes = st.sampled_from([b"a", b"\xf0", b"\x9f\x9a", b"\x80", b"\xc3", b"\xff", ROCKET.encode()])
refs = st.sampled_from(["c1", "c2", "c3"])
chunks = st.lists(
    st.builds(Text, text=texts | cut_bytes)
    | st.builds(Reasoning, text=texts)
    | st.builds(CallStart, ref=refs, call_id=st.none(), name=texts)
    | st.builds(CallArgs, ref=refs, part=texts)
    | st.none(),
    max_size=20,
)


def safe(told_texts: Iterable[str]) -> bool:
    return all(text == safe_text(text) for text in told_texts)


@moderate
@given(chunks)
def test_the_deltas_joined_are_the_beginning_of_the_stored_text_and_always_safe(pieces: list[Chunk | None]) -> None:
    speech = heard(*pieces, END)
    deltas = [text for kind, text in told(speech) if kind == "message.delta"]
    assert safe([speech.text, *deltas])
    assert "" not in deltas
    assert speech.text.startswith("".join(deltas))
    speech.tell(100)
    assert "".join(text for kind, text in told(speech) if kind == "message.delta") == speech.text


@moderate
@given(chunks)
def test_reasoning_that_was_told_is_the_beginning_of_what_completes_it(pieces: list[Chunk | None]) -> None:
    open_deltas: list[str] = []
    for kind, text in told(heard(*pieces)):
        if kind == "reasoning.delta":
            open_deltas.append(text)
        elif kind == "reasoning.completed":
            assert text.startswith("".join(open_deltas))
            assert safe([text])
            open_deltas = []
    assert open_deltas == []


@moderate
@given(st.lists(st.binary(max_size=4) | st.sampled_from([ROCKET.encode()[:2], ROCKET.encode()[2:]]), max_size=10))
def test_a_text_of_bytes_is_stored_the_same_however_often_it_was_told_and_cut(pieces: list[bytes]) -> None:
    flushed = heard(*[chunk for piece in pieces for chunk in (Text(text=piece), None)], END)
    assert flushed.text == heard(Text(text=b"".join(pieces)), END).text
