"""The border where foreign values become safe: what comes out is JSON, UTF-8 and bounded, whatever went in."""

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import types
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain import limits
from chalicelib.domain.values import (
    CUT_MARKER,
    canonical,
    cut_value,
    dumps,
    loads,
    safe,
    size,
)

ROCKET = "\N{ROCKET}"
BAD = "\N{REPLACEMENT CHARACTER}"

moderate = settings(max_examples=100, deadline=None)  # a slow machine is no failure

any_text = st.text(st.characters(exclude_categories=()), max_size=20)
json_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
json_values = st.recursive(
    json_scalars.map(lambda v: v.replace("\0", "") if isinstance(v, str) else v),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc\u00e9", max_size=4), inner, max_size=4),
    max_leaves=12,
)
foreign_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | any_text
    | st.binary(max_size=8)
    | st.decimals()
    | st.datetimes()
    | st.builds(object),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(any_text | st.integers() | st.booleans() | st.none() | st.floats(), inner, max_size=3)
        | inner.map(lambda v: ValueError(v))
    ),
    max_leaves=10,
)


class Hostile:
    """Everything that asks it for text fails."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class HostileMapping(collections.UserDict[str, Any]):
    """Reading it fails."""

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no keys")


class LyingClass:
    """Claims to be text."""

    def __getattribute__(self, name: str) -> Any:
        return str if name == "__class__" else object.__getattribute__(self, name)


class NamelessMeta(type):
    """A metaclass whose classes refuse to tell their name."""

    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)


class Nameless(metaclass=NamelessMeta):
    """A value without a readable kind."""


class Model:
    """Looks like a pydantic model."""

    def model_dump(self) -> dict[str, Any]:
        """The fields."""
        return {"a": 1, "when": datetime.date(2026, 1, 2)}


class EndlessModel:
    """Its dump holds another of its kind, for ever."""

    def model_dump(self) -> dict[str, Any]:
        """One more."""
        return {"inner": EndlessModel()}


class Colour(enum.Enum):
    """An enum with a container behind it."""

    RED = ("r", 1)


class Word(enum.StrEnum):
    """An enum that is text."""

    YES = "yes"


@dataclasses.dataclass
class Point:
    """A dataclass."""

    x: float
    y: Any


def depth(value: Any) -> int:
    """How many containers are inside each other."""
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def kinds(value: Any) -> Any:
    """A value with the type of each scalar and the sign of zero, so that 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return [(key, kinds(inside)) for key, inside in value.items()]
    return [kinds(inside) for inside in value] if isinstance(value, list) else (type(value), repr(value))


def self_reference() -> list[Any]:
    """A list in itself."""
    loop: list[Any] = [1]
    loop.append(loop)
    return loop


def nested(levels: int) -> list[Any]:
    """Lists inside each other."""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


# ---------------------------------------------------------------- safe


@moderate
@given(json_values)
def test_json_values_come_out_equal_in_value_and_type(value: Any) -> None:
    assert kinds(safe(value)) == kinds(value)


@pytest.mark.parametrize(
    "value",
    [
        *(0.1, 1e-07, -0.0, 1.0, 1, True, False, None, "", [], {}, "1", 2**53 + 1, 2512292042121000001, 1e300, [[[]]]),
        *(1.2345678901234567e19, {"": "empty key"}, {"k": {"deep": [1.5, {"x": 0.25}]}}, {"$ref": "x", "N": "1"}),
        10**3000,
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_value_survives_the_border_and_its_json_text(value: Any) -> None:
    assert kinds(loads(dumps(safe(value)))) == kinds(value)


@moderate
@given(foreign_values)
def test_whatever_comes_out_is_json_and_utf8_and_a_second_pass_changes_nothing(value: Any) -> None:
    once = safe(value)
    text = dumps(once)
    text.encode()
    assert "\0" not in text
    assert depth(once) <= limits.JSON_DEPTH
    assert kinds(json.loads(text)) == kinds(once)
    assert kinds(safe(once)) == kinds(once)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, None),
        (math.inf, None),
        ([1, -math.inf], [1, None]),
        (decimal.Decimal("0.1"), 0.1),
        (decimal.Decimal("10"), 10),
        (decimal.Decimal("1E+3"), 1000),
        (decimal.Decimal("0.10000000000000000001"), "0.10000000000000000001"),
        (decimal.Decimal("1E+999999"), "1E+999999"),
        (decimal.Decimal("sNaN"), None),
        (set(), []),
        ({2, 1}, [1, 2]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ((1, (2,)), [1, [2]]),
        (collections.deque([1]), [1]),
        ({"a": 1}.values(), [1]),
        (b"\xff\x00", {"base64": "/wA="}),
        (bytearray(b"a"), {"base64": "YQ=="}),
        (datetime.datetime(2026, 1, 1), "2026-01-01T00:00:00"),
        (datetime.date(2026, 1, 1), "2026-01-01"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (Exception("x"), "Exception: x"),
        (ValueError(), "ValueError"),
        (Exception(Hostile()), "Exception: its text form raises"),
        (Word.YES, "yes"),
        (Colour.RED, ["r", 1]),
        (Point(x=1.5, y={3}), {"x": 1.5, "y": [3]}),
        (Model(), {"a": 1, "when": "2026-01-02"}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        ("bad \ud800 half and \0 nul", f"bad {BAD} half and {BAD} nul"),
        ({"k\ud83d": 1}, {f"k{BAD}": 1}),
        ({1: 2, (1, 2): 3, None: 4, 1.5: 5}, {"1": 2, "[1,2]": 3, "null": 4, "1.5": 5}),
        ({"1": "text", 1: "number", "1#2": "taken"}, {"1": "text", "1#2": "number", "1#2#2": "taken"}),
    ],
)
def test_python_values_have_a_json_form(value: Any, expected: Any) -> None:
    assert kinds(safe(value)) == kinds(expected)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (object(), "object"),
        (Hostile(), "text form raises"),
        ((n for n in "a"), "generator"),
        (HostileMapping(), "RuntimeError"),
        (LyingClass(), "LyingClass"),
        (Nameless(), "Nameless"),
        (len, "len"),
        (Point, "Point"),
        (10**5000, "integer"),
        (1j, "complex"),
    ],
    ids=["object", "hostile", "generator", "mapping", "lying", "nameless", "function", "class", "integer", "complex"],
)
def test_what_has_no_json_form_becomes_a_marker_that_says_what_it_was(value: Any, told: str) -> None:
    marker = safe({"inside": [value]})["inside"][0]
    assert list(marker) == ["unencodable"]
    assert told in marker["unencodable"]
    assert size(marker) < 250


def test_a_marker_does_not_name_an_address_in_memory() -> None:
    assert safe(object()) == safe(object())


def test_a_generator_is_not_consumed() -> None:
    numbers = iter([1, 2])
    safe([numbers])
    assert list(numbers) == [1, 2]


def test_a_value_that_holds_itself_is_marked_where_it_repeats() -> None:
    assert safe(self_reference()) == [1, {"unencodable": "a reference to itself"}]


def test_a_value_that_stands_in_two_places_is_written_twice() -> None:
    shared = [1]
    assert safe([shared, shared]) == [[1], [1]]


@pytest.mark.parametrize("levels", [31, 32])
def test_nesting_up_to_the_limit_is_kept(levels: int) -> None:
    assert safe(nested(levels)) == nested(levels)


@pytest.mark.parametrize("levels", [33, 34, 5_000])
def test_deeper_nesting_is_marked_within_the_limit(levels: int) -> None:
    made = safe(nested(levels))
    assert depth(made) == limits.JSON_DEPTH
    assert "unencodable" in dumps(made)


def test_a_dump_without_end_is_cut_at_the_limit_of_depth() -> None:
    assert depth(safe(EndlessModel())) == limits.JSON_DEPTH


def test_a_small_value_that_would_be_written_out_without_end_is_marked_as_too_large() -> None:
    bomb: Any = ["x" * 1000]
    for _ in range(25):
        bomb = [bomb, bomb]
    assert "unencodable" in safe(bomb)


def test_subclasses_of_text_and_numbers_become_plain() -> None:
    class Name(str):
        def __str__(self) -> str:
            return "another"

    class Count(int):
        pass

    made = safe({Name("a"): [Name("b"), Count(3)]})
    assert made == {"a": ["b", 3]}
    assert [type(one) for one in (*made, *made["a"])] == [str, str, int]


def test_sets_have_one_order_whatever_their_members_are() -> None:
    members = [b"x", 3, "a", None, (1, 2), 2.5, frozenset({1})]
    assert safe(set(members)) == safe(set(reversed(members)))


# ---------------------------------------------------------------- JSON text


def test_json_text_is_compact_and_keeps_the_order_of_keys() -> None:
    assert dumps({"b": [1, "é"], "a": None}) == '{"b":[1,"é"],"a":null}'
    assert canonical({"b": 1, "a": {"d": 1, "c": 2}}) == '{"a":{"c":2,"d":1},"b":1}'
    assert size("é") == 4


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a":-Infinity}'])
def test_tokens_that_are_no_json_are_neither_written_nor_read(text: str) -> None:
    with pytest.raises(ValueError, match="JSON"):
        loads(text)
    with pytest.raises(ValueError, match="JSON"):
        dumps(math.nan)


# ---------------------------------------------------------------- cut values


@moderate
@given(json_values, st.integers(2, 60))
def test_a_cut_value_has_json_within_its_bytes(value: Any, room: int) -> None:
    kept, was_cut = cut_value(value, room)
    assert size(kept) <= room
    assert was_cut == (size(value) > room)
    assert was_cut or kept == value


def test_a_cut_value_is_the_begin_of_its_json_and_a_cut_text_of_itself() -> None:
    assert cut_value({"big": "d" * 100}, 30) == ('{"big":"ddddddddd' + CUT_MARKER, True)
    assert cut_value("d" * 100, 30) == ("d" * 20 + CUT_MARKER, True)


def test_escapes_count_in_the_size_of_a_cut_value() -> None:
    kept, _ = cut_value('"\n' * 50_000, 64 * limits.KB)
    assert 64 * limits.KB - 4 < size(kept) <= 64 * limits.KB


@pytest.mark.parametrize("form", [safe, lambda value: safe([value]), lambda value: safe({"k": value})])
def test_no_attribute_of_foreign_code_can_make_the_border_raise(form: Callable[[Any], Any]) -> None:
    class Trap:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    dumps(form(Trap()))
