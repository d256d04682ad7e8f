"""The bounded JSON parser: what it takes comes back equal in value and type, what it refuses is a Refusal, always."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chalicelib.domain.errors import Fault, InvalidRequest, Refusal, TooLarge
from chalicelib.doors.body import parse, raw_bytes

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
WHOLE = st.integers(min_value=-(10**308), max_value=10**308)
VALUES = st.recursive(
    st.none() | st.booleans() | WHOLE | DOUBLES | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)
BROKEN_TEXT = st.text(st.characters())  # half characters and NUL among them
BROKEN = st.recursive(
    st.none() | st.floats() | st.integers() | BROKEN_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(BROKEN_TEXT, inner, max_size=4),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Equal in value and type, all the way down: 1 is neither 1.0 nor True, and -0.0 is not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


def outcome(raw: bytes) -> Any:
    """The value of a body, or the refusal of it as a value. Anything else that is raised fails the test."""
    try:
        return parse(raw)
    except Refusal as refused:
        return refused


def texts(value: Any) -> Iterator[str]:
    """All text in a value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)


def refusal(raw: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse(raw)
    return caught.value


def fault(raw: bytes) -> Fault:
    """The first fault of a body that is not valid."""
    refused = refusal(raw)
    assert isinstance(refused, InvalidRequest)
    return refused.faults[0]


@given(VALUES, st.booleans())
def test_what_passes_comes_back_equal_in_value_and_type(value: Any, ascii_only: bool) -> None:
    assert same(parse(json.dumps(value, ensure_ascii=ascii_only).encode()), value)


@given(st.binary(max_size=200))
@example(b'"' * 100)
@example(b'"\\' * 100)
@example(b"\\" * 100)
@example(b"]" * 50 + b"[" * 50)
def test_any_bytes_are_a_value_or_a_refusal(raw: bytes) -> None:
    told = outcome(raw)
    if isinstance(told, Refusal):
        assert told.status in (400, 413)
        assert told.faults
    else:
        json.dumps(told, ensure_ascii=False, allow_nan=False).encode()


@given(st.text(alphabet='{}[]",:\\0e1.-ntu \n\ud800', max_size=60))
def test_any_text_of_json_characters_is_a_value_or_a_refusal(text: str) -> None:
    told = outcome(text.encode("utf-8", "surrogatepass"))
    assert not isinstance(told, Refusal) or told.status == 400


@given(BROKEN)
def test_what_passes_is_always_finite_and_valid_utf_8_without_nul(value: Any) -> None:
    told = outcome(json.dumps(value).encode())
    if isinstance(told, Refusal):
        assert all(fault.path.encode() is not None for fault in told.faults)
    else:
        assert not any("\0" in text for text in texts(told))
        json.dumps(told, ensure_ascii=False, allow_nan=False).encode()


NUMBERS: list[Any] = [0.1, 1e-07, 1.0, 1, 0, -1, -0.0, 9007199254740993, 2512292042121000001, 1e300, 10**308]
SHAPES: list[Any] = [12345678901234567000.5, True, None, "", "1", [], {}, [[[]]], {"": "x"}, {"$ref": "x", "S": "y"}]


@pytest.mark.parametrize("value", [*NUMBERS, *SHAPES])
def test_numbers_and_odd_shapes_survive(value: Any) -> None:
    assert same(parse(json.dumps({"v": value}).encode()), {"v": value})


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 309, "-" + "9" * 309])
def test_a_number_that_no_double_holds_is_refused_where_it_stands(token: str) -> None:
    assert fault(b'{"a": [1, {"b": %s}]}' % token.encode()).path == "a.1.b"


def test_ten_thousand_digits_are_refused_and_not_computed() -> None:
    assert fault(b'{"n": ' + b"1" * 10_000 + b"}").path == "n"


@pytest.mark.parametrize("depth", [33, 40, 1_000, 10_000, 300_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_is_refused_before_anything_is_built(depth: int, opening: bytes, closing: bytes) -> None:
    fits = min(depth, 1_000_000 // (len(opening) + 1))
    for raw in (opening * fits + b"1" + closing * fits, opening * fits):
        assert "deeper than 32" in fault(raw).message


@pytest.mark.parametrize("raw", [b"[" * 32 + b"]" * 32, b'{"a":' * 32 + b"1" + b"}" * 32])
def test_depth_32_passes(raw: bytes) -> None:
    assert parse(raw)


def test_brackets_inside_strings_are_no_depth() -> None:
    text = '[{"' * 1_000 + '\\"[[['
    assert parse(json.dumps({text: [text]}).encode()) == {text: [text]}


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b'{"a": 1, "a": 1}', "a"),
        (b'{"x": [{"a": 1, "b": 2, "a": 3}]}', "x.0.a"),
        (b'{"a": 1, "\\u0061": 2}', "a"),
        (b'{"": 1, "": 2}', ""),
    ],
)
def test_a_key_twice_is_refused_with_its_path(raw: bytes, path: str) -> None:
    assert fault(raw) == Fault(path=path, message="the key is there twice")


@pytest.mark.parametrize("bad", ["\\ud800", "\\udfff", "\\ud83d x", "\\ude80\\ud83d", "\\u0000"])
def test_text_that_is_no_text_is_refused_in_values_and_keys(bad: str) -> None:
    assert fault(b'{"a": ["ok", "%s"]}' % bad.encode()).path == "a.1"
    assert "the key has a" in fault(b'{"a": {"%s": 1}}' % bad.encode()).message


def test_two_halves_that_fit_are_a_character() -> None:
    assert parse(b'"\\ud83d\\ude80"') == "\U0001f680"


@pytest.mark.parametrize("text", ["\ufeffbom", "\u202eright", "\U0010ffff", "line\u2028sep", "\ufffe"])
def test_odd_but_valid_characters_pass(text: str) -> None:
    assert parse(json.dumps(text).encode()) == text


@pytest.mark.parametrize("raw", [b"\xff", b"\xed\xa0\xbd", b"\xc0\x80", "{}".encode("utf-16"), b'"\xf0\x9f\x9a"'])
def test_bytes_that_are_not_utf_8_are_refused(raw: bytes) -> None:
    assert "not UTF-8" in fault(raw).message


def test_a_body_at_the_limit_passes_and_one_byte_more_is_too_large() -> None:
    assert len(parse(b'"' + b"x" * (1_048_576 - 2) + b'"')) == 1_048_574
    refused = refusal(b'"' + b"x" * (1_048_576 - 1) + b'"')
    assert isinstance(refused, TooLarge)


def test_all_faults_are_named_in_the_order_of_the_text_up_to_twenty() -> None:
    assert [each.path for each in refusal(b'{"a": NaN, "b": {"c": "\\u0000"}, "d": 1e999}').faults] == ["a", "b.c", "d"]
    assert len(refusal(b"[" + b"NaN," * 100_000 + b"1]").faults) == 20


def test_a_path_is_readable_text_of_bounded_length() -> None:
    raw = json.dumps({"\ud800" + "k" * 1_000: "\ud800"}).encode()
    for told in refusal(raw).faults:
        assert len(told.path.encode()) < 300


@given(st.binary(max_size=100))
def test_a_body_comes_back_as_it_was_sent_in_base64(raw: bytes) -> None:
    assert raw_bytes({"body": base64.b64encode(raw).decode(), "isBase64Encoded": True}) == raw


@given(st.text(max_size=50))
def test_a_body_that_claims_base64_is_bytes_or_a_refusal(text: str) -> None:
    try:
        decoded = raw_bytes({"body": text, "isBase64Encoded": True})
    except InvalidRequest:
        return
    assert base64.b64encode(decoded).decode() == text


@pytest.mark.parametrize("event", [{}, {"body": None}, {"body": "", "isBase64Encoded": True}])
def test_no_body_is_no_bytes(event: dict[str, Any]) -> None:
    assert raw_bytes(event) == b""


def test_a_body_of_text_is_its_utf_8_and_half_characters_do_not_become_others() -> None:
    assert raw_bytes({"body": '"é"', "isBase64Encoded": False}) == '"é"'.encode()
    assert "not UTF-8" in fault(raw_bytes({"body": '"\ud800"', "isBase64Encoded": False})).message
