"""Text and arguments at the border: halves of characters, pieces of streams, JSON that a model wrote."""

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chalicelib.domain import limits
from chalicelib.domain.values import CUT_MARKER, TextJoin, cut_text, dumps, parse_arguments, safe, safe_text

ROCKET = "\N{ROCKET}"
BAD = "\N{REPLACEMENT CHARACTER}"

moderate = settings(max_examples=100, deadline=None)  # a slow machine is no failure

any_text = st.text(st.characters(exclude_categories=()), max_size=20)
written_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text('aé[]{}"\\'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=4),
    max_leaves=10,
)

# ---------------------------------------------------------------- text


def one_by_one(text: str) -> str:
    """What safe text is, said in another way: pairs first, then what is left of halves."""
    joined = re.sub(
        "([\ud800-\udbff])([\udc00-\udfff])",
        lambda pair: chr(0x10000 + ((ord(pair[1]) - 0xD800) << 10) + ord(pair[2]) - 0xDC00),
        text,
    )
    return re.sub("[\ud800-\udfff\0]", BAD, joined)


halves = st.text(
    st.sampled_from(["\ud83d", "\ude80", "\udc00", "\udbff", "a", "é", ROCKET, "\0", "\u200d"]), max_size=12
)


@moderate
@given(halves | any_text)
@example("\ud83d\ude80")
@example("\ud83d\ud83d\ude80\ude80")
def test_safe_text_joins_pairs_and_replaces_each_lone_half_once(text: str) -> None:
    assert safe_text(text) == one_by_one(text)
    safe_text(text).encode()


def test_safe_text_leaves_good_text_as_it_is() -> None:
    text = "café " + ROCKET
    assert safe_text(text) is text


def joined(pieces: list[Any]) -> str:
    """All answers of a joiner."""
    join = TextJoin()
    return "".join([*map(join.feed, pieces), join.end()])


def cuts(whole: Any, places: list[int]) -> list[Any]:
    """A text or bytes in pieces."""
    at = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    return [whole[a:b] for a, b in itertools.pairwise(at)]


@moderate
@given(halves | any_text, st.lists(st.integers(0, 50), max_size=8))
def test_text_joins_to_the_same_however_it_was_cut(text: str, places: list[int]) -> None:
    assert joined(cuts(text, places)) == safe_text(text)


valid_bytes = (st.text(max_size=12) | st.text("é€\N{ROCKET}a", max_size=12)).map(str.encode)
byte_soup = st.lists(
    st.sampled_from(
        [b"a", b"\xf0", b"\x9f", b"\x9a\x80", b"\xed", b"\xa0", b"\xc3", b"\xe2\x82", b"\xff", b"\xf4\x90"]
    ),
    max_size=10,
).map(b"".join)


@moderate
@given(valid_bytes | st.binary(max_size=20) | byte_soup, st.lists(st.integers(0, 50), max_size=8))
def test_bytes_join_to_the_same_however_they_were_cut(data: bytes, places: list[int]) -> None:
    whole = joined([data])
    assert joined(cuts(data, places)) == whole
    assert joined([data[n : n + 1] for n in range(len(data))]) == whole
    if not re.search(rb"\xed[\xa0-\xbf][\x80-\xbf]", data):
        assert whole == data.decode("utf-8", "replace").replace("\0", BAD)


@moderate
@given(halves, st.lists(st.integers(0, 60), max_size=8))
def test_halves_written_as_bytes_count_as_halves(text: str, places: list[int]) -> None:
    assert joined(cuts(text.encode("utf-8", "surrogatepass"), places)) == safe_text(text)


def test_a_character_cut_between_two_pieces_is_whole_and_a_lone_half_is_replaced_once() -> None:
    pieces = ["café ", "\ud83d", "\ude80", " lone: \ud83d", " end", "\ud83d"]
    assert joined(pieces) == f"café {ROCKET} lone: {BAD} end{BAD}"
    assert joined([bytes.fromhex(h) for h in ("f09f", "9a80", "20e2", "9895")]) == ROCKET + " \N{HOT BEVERAGE}"


def test_text_after_broken_bytes_does_not_wait_for_them() -> None:
    join = TextJoin()
    assert join.feed(b"a\xf0\x9f") == "a"
    assert join.feed("b") == BAD + "b"
    assert join.end() == ""


def test_a_joiner_holds_back_only_what_may_become_whole() -> None:
    join = TextJoin()
    assert [join.feed(piece) for piece in (b"ab\xe2", b"\x82", b"\xac", "x\ud83d")] == ["ab", "", "€", "x"]
    assert join.end() == BAD
    assert join.end() == ""


@moderate
@given(any_text, st.integers(0, 40), st.sampled_from([CUT_MARKER, "", "..."]))
def test_cut_text_is_within_its_bytes_and_begins_like_the_text(text: str, room: int, marker: str) -> None:
    cut = cut_text(text, room, marker)
    assert len(cut.encode()) <= room
    if len(safe_text(text).encode()) <= room:
        assert cut == safe_text(text)
    else:
        kept = cut.removesuffix(marker)
        assert safe_text(text).startswith(kept)


def test_a_long_text_of_wide_characters_is_cut_on_a_character_with_its_marker() -> None:
    cut = cut_text(ROCKET * 1025, 4096)
    assert cut == ROCKET * 1022 + CUT_MARKER
    assert cut_text("x\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}", 9, "") == "x\N{MAN}"


# ---------------------------------------------------------------- arguments of a call


@pytest.mark.parametrize("text", ["", "  \n", "{}"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert parse_arguments(text) == ({}, None)


def test_an_object_is_taken_as_it_is_with_its_text_made_safe() -> None:
    assert parse_arguments('{"a": [1, 1.0, true], "b": "\\ud83d\\ude80 \\ud800", "n": 9007199254740993}') == (
        {"a": [1, 1.0, True], "b": f"{ROCKET} {BAD}", "n": 9007199254740993},
        None,
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"path":"a.txt", "text": "x', "character 25"),
        ('{"limit": 5,, }', "character 12"),
        ("[1,2]", "object, not [1,2]"),
        ("5", "object, not 5"),
        ("null", "object, not null"),
        ('"\\ud800"', "object, not"),
        ('{"x": NaN}', "NaN is no JSON number at character 6"),
        ('{"x": -Infinity}', "-Infinity"),
        ('{"c": 1e999}', "1e999"),
        ('{"c": ' + "9" * 5000 + "}", "digits"),
        ('{"d": ' + "[" * 32 + "]" * 32 + "}", "deeper than 32 levels at character 37"),
        ("[" * 100_000, "deeper than 32"),
        ('{"a":' * 50_000, "deeper than 32"),
        ('{"x": "' + "y" * 256 * limits.KB + '"}', "larger than 256 KB"),
        ('{"x": "\\', "not JSON"),
        ("{'x': 1}", "not JSON"),
        ('{"x": 1} {"x": 2}', "not JSON"),
        ("\ufeff{}", "not"),
        ("\0", "not JSON"),
    ],
    ids=lambda text: text[:20],
)
def test_unusable_arguments_are_refused_with_a_sentence_that_names_the_fault(text: str, named: str) -> None:
    arguments, fault = parse_arguments(text)
    assert arguments is None
    assert fault is not None
    assert named in fault
    assert fault.endswith(".")
    assert len(fault) < 200


def test_brackets_and_tokens_inside_text_are_text() -> None:
    value = {"a": "[" * 100 + '\\"{NaN' + "Infinity", "b": "NaN"}
    assert parse_arguments(json.dumps(value)) == (value, None)


pieces_of_json = st.lists(
    st.sampled_from(['{"a":', "[", "]", "}", "{", '"', "\\", "NaN", "1e999", "-", "null", ",", "\ud800", "\0", "é"]),
    max_size=12,
).map("".join)


@moderate
@given(pieces_of_json | any_text)
def test_parsing_arguments_never_raises_and_gives_either_an_object_or_a_fault(text: str) -> None:
    arguments, fault = parse_arguments(text)
    assert (arguments is None) != (fault is None)
    assert arguments is None or dumps(safe(arguments)) == dumps(arguments)


@moderate
@given(st.dictionaries(st.text("ab", max_size=3), written_values, max_size=3))
def test_arguments_that_were_written_as_json_come_back(value: dict[str, Any]) -> None:
    assert dumps(parse_arguments(json.dumps(value))[0]) == dumps(value)
