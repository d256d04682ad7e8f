"""Schemas from type hints: what a model is told of a function, what it may then send, and what the function gets."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Optional, TypedDict, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from chalicelib.engine.schema import SchemaError, parameters_of
from chalicelib.engine.state import ThreadState

moderate = settings(max_examples=100, deadline=None)  # a slow machine is no failure


class Room(enum.Enum):
    """Kinds of rooms."""

    SINGLE = "single"
    DOUBLE = "double"


class Floor(enum.IntEnum):
    """Floors."""

    GROUND = 0
    FIRST = 1


@dataclass
class Guest:
    """Somebody who sleeps here."""

    name: str
    age: int | None = None
    wishes: list[str] = field(default_factory=list)


@dataclass
class Booking:
    """Guests in a room."""

    guests: list[Guest]
    room: Room
    price: float = 0.0


class Address(TypedDict):
    """Where to."""

    street: str
    number: int


class Hints(TypedDict, total=False):
    """What may help."""

    note: str


class Plain:
    """A class that says nothing of its fields."""


def taking(hint: Any) -> Callable[..., None]:
    """A function with one parameter `a` of this type."""

    def function(a: Any) -> None: ...

    function.__annotations__["a"] = hint
    return function


def schema_of(hint: Any) -> Any:
    """What a model is told of a parameter of this type."""
    return parameters_of(taking(hint)).schema["properties"]["a"]


def converted(hint: Any, value: Any) -> Any:
    """What the function gets for a JSON value."""
    return parameters_of(taking(hint)).convert({"a": value})["a"]


def faults(function: Callable[..., Any], arguments: Mapping[str, Any]) -> list[str]:
    """Paths of what does not fit a function's schema."""
    errors = Draft202012Validator(parameters_of(function).schema).iter_errors(arguments)
    return sorted("/".join(map(str, error.absolute_path)) for error in errors)


# ---------------------------------------------------------------- the schema


def test_a_function_is_an_object_of_its_parameters_and_a_default_makes_one_optional() -> None:
    def forecast(city: str, days: int = 1, *, exact: bool, unit: str | None = None) -> str:
        return city

    assert parameters_of(forecast).schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "exact": {"type": "boolean"},
            "unit": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["city", "exact"],
        "additionalProperties": False,
    }


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def now() -> str:
        return ""

    assert parameters_of(now).schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert faults(now, {}) == []


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (list, {"type": "array"}),
        (dict, {"type": "object"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (list[list[str]], {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (dict[str, Any], {"type": "object", "additionalProperties": {}}),
        (Literal["a", 2, None], {"enum": ["a", 2, None]}),
        (Room, {"enum": ["single", "double"]}),
        (Floor, {"enum": [0, 1]}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007 - the old spelling too
        (Optional[Room], {"anyOf": [{"enum": ["single", "double"]}, {"type": "null"}]}),  # noqa: UP045
        (Annotated[int, "How many"], {"type": "integer", "description": "How many"}),
        (Annotated[int, 7, "How many", "ignored"], {"type": "integer", "description": "How many"}),
        (Annotated[int, 7], {"type": "integer"}),
        (list[Annotated[str, "A name"]], {"type": "array", "items": {"type": "string", "description": "A name"}}),
    ],
    ids=str,
)
def test_a_known_type_has_its_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert schema_of(hint) == schema
    Draft202012Validator.check_schema(schema_of(hint))


def test_a_dataclass_is_an_object_whose_fields_with_defaults_are_optional() -> None:
    assert schema_of(Guest) == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "wishes": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    assert schema_of(Booking)["properties"]["guests"] == {"type": "array", "items": schema_of(Guest)}


def test_a_typed_dict_requires_its_keys_unless_it_says_that_it_is_not_total() -> None:
    assert schema_of(Address)["required"] == ["street", "number"]
    assert schema_of(Hints)["required"] == []
    assert schema_of(Hints)["properties"] == {"note": {"type": "string"}}


def test_hints_written_as_text_are_read() -> None:
    def book(guest: "Guest", days: "int | None" = None) -> None: ...

    assert parameters_of(book).schema["properties"]["guest"] == schema_of(Guest)
    assert parameters_of(book).schema["required"] == ["guest"]


def test_changing_a_schema_changes_no_other() -> None:
    schema_of(str)["description"] = "mine"
    assert schema_of(str) == {"type": "string"}


# ---------------------------------------------------------------- the state of the thread


def test_the_state_comes_first_and_is_no_parameter() -> None:
    def look(state: ThreadState, city: str) -> None: ...

    def watch(city: str) -> None: ...

    assert parameters_of(look).takes_state
    assert not parameters_of(watch).takes_state
    assert parameters_of(look).schema == parameters_of(watch).schema
    assert parameters_of(look).convert({"city": "Lisbon"}) == {"city": "Lisbon"}


def test_a_function_of_the_state_alone_takes_an_empty_object() -> None:
    def look(state: ThreadState) -> None: ...

    assert parameters_of(look).takes_state
    assert parameters_of(look).schema["properties"] == {}


def test_the_state_is_known_by_its_type_and_not_by_its_name() -> None:
    def vote(state: str) -> None: ...

    assert not parameters_of(vote).takes_state
    assert parameters_of(vote).schema["required"] == ["state"]


def test_the_state_in_another_place_is_refused() -> None:
    def look(city: str, state: ThreadState) -> None: ...

    with pytest.raises(SchemaError, match=r"^parameter state\b"):
        parameters_of(look)


# ---------------------------------------------------------------- what cannot be told


@pytest.mark.parametrize(
    "hint",
    [bytes, set[int], complex, Plain, Callable, list[bytes], dict[str, Plain], int | Plain, Annotated[Plain, "x"]],
    ids=str,
)
def test_a_type_that_no_model_can_be_told_is_refused_with_the_parameters_name(hint: Any) -> None:
    with pytest.raises(SchemaError, match=r"^parameter a: the type .* cannot be told to a model$"):
        parameters_of(taking(hint))


def test_a_wrong_type_inside_an_object_is_named_with_its_path() -> None:
    @dataclass
    class Picture:
        pixels: bytes

    @dataclass
    class Album:
        pictures: list[Picture]

    with pytest.raises(SchemaError, match=r"^parameter a\.pictures\.pixels: the type <class 'bytes'>"):
        parameters_of(taking(Album))


def test_a_parameter_without_a_hint_is_refused_by_its_name() -> None:
    def look(city: str, days=1) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(SchemaError, match=r"^parameter days: add a type hint$"):
        parameters_of(look)


def test_only_named_parameters_can_be_told() -> None:
    def many(*cities: str) -> None: ...

    def any_of_them(**cities: str) -> None: ...

    def by_place(cities: str, /) -> None: ...

    for function in (many, any_of_them, by_place):
        with pytest.raises(SchemaError, match=r"^parameter cities: only named parameters"):
            parameters_of(function)


# ---------------------------------------------------------------- what a model sends


HOME: Address = {"street": "Rua", "number": 1}


def book(booking: Booking, floor: Floor = Floor.GROUND, to: Address = HOME) -> None: ...


GUESTS = [{"name": "Ada"}, {"name": "Bo", "age": 7}]
GOOD: Mapping[str, Any] = {"booking": {"guests": GUESTS, "room": "single"}, "floor": 1}


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("", {}),
        ("", {**GOOD, "colour": "red"}),
        ("floor", {**GOOD, "floor": 3}),
        ("floor", {**GOOD, "floor": None}),
        ("to", {**GOOD, "to": {"street": "x"}}),
        ("booking", {"booking": "single"}),
        ("booking", {"booking": {"guests": []}}),
        ("booking/room", {"booking": {"guests": [], "room": "triple"}}),
        ("booking/price", {"booking": {"guests": [], "room": "single", "price": "9"}}),
        ("booking/guests", {"booking": {"guests": {}, "room": "single"}}),
        ("booking/guests/1/age", {"booking": {"guests": [GUESTS[0], {"name": "B", "age": "7"}], "room": "single"}}),
        ("booking/guests/0", {"booking": {"guests": [{"age": 7}], "room": "single"}}),
        ("booking/guests/0", {"booking": {"guests": [{"name": "A", "shoe": 7}], "room": "single"}}),
    ],
)
def test_arguments_that_do_not_fit_are_found_at_their_path(path: str, arguments: dict[str, Any]) -> None:
    assert faults(book, GOOD) == []
    assert faults(book, arguments) == [path]


@pytest.mark.parametrize(("hint", "value"), [(int, True), (bool, 1), (float, True), (str, None), (int, 1.5)], ids=str)
def test_flags_numbers_and_texts_are_not_taken_for_each_other(hint: Any, value: Any) -> None:
    assert faults(taking(hint), {"a": value}) == ["a"]


# ---------------------------------------------------------------- what the function gets


def test_checked_arguments_become_the_functions_own_types() -> None:
    got = parameters_of(book).convert({**GOOD, "to": {"street": "x", "number": 1}})
    assert got == {
        "booking": Booking(guests=[Guest("Ada"), Guest("Bo", 7)], room=Room.SINGLE),
        "floor": Floor.FIRST,
        "to": {"street": "x", "number": 1},
    }
    assert got["floor"] is Floor.FIRST


def test_what_was_not_sent_is_left_to_the_functions_default() -> None:
    def pick(room: Room = Room.DOUBLE, days: int = 1) -> tuple[Room, int]:
        return room, days

    assert pick(**parameters_of(pick).convert({"days": 3})) == (Room.DOUBLE, 3)


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (float, 3, 3.0),
        (float, 3.5, 3.5),
        (int, 3, 3),
        (tuple[float, ...], [1, 2.5], (1.0, 2.5)),
        (list[Room], ["single", "double"], [Room.SINGLE, Room.DOUBLE]),
        (Annotated[Room, "which"], "single", Room.SINGLE),
        (Room | None, "single", Room.SINGLE),
        (Room | None, None, None),
        (Guest | None, {"name": "Ada"}, Guest("Ada")),
        (Guest | str, "Ada", "Ada"),
        (str | Room, "single", "single"),
        (Literal["a", "b"], "a", "a"),
        (Any, {"a": [1]}, {"a": [1]}),
        (dict[str, int], {"x": 1}, {"x": 1}),
    ],
    ids=str,
)
def test_a_value_arrives_in_the_type_of_its_hint(hint: Any, value: Any, expected: Any) -> None:
    assert faults(taking(hint), {"a": value}) == []
    got = converted(hint, value)
    assert (got, type(got)) == (expected, type(expected))


guests = st.fixed_dictionaries(
    {"name": st.text(max_size=5)},
    optional={"age": st.none() | st.integers(), "wishes": st.lists(st.text(max_size=3), max_size=2)},
)
bookings = st.fixed_dictionaries(
    {"guests": st.lists(guests, max_size=3), "room": st.sampled_from(["single", "double"])},
    optional={"price": st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False)},
)


@moderate
@given(bookings)
def test_whatever_fits_the_schema_can_be_handed_over_and_says_the_same(sent: dict[str, Any]) -> None:
    assert faults(book, {"booking": sent}) == []
    got = parameters_of(book).convert({"booking": sent})["booking"]
    assert isinstance(got, Booking)
    assert all(isinstance(guest, Guest) for guest in got.guests)
    assert got.room is Room(sent["room"])
    assert (got.price, type(got.price)) == (float(sent.get("price", 0)), float)
    assert [(g.name, g.age, g.wishes) for g in got.guests] == [
        (g["name"], g.get("age"), g.get("wishes", [])) for g in sent["guests"]
    ]
