"""Rows of a thread's log: whatever an entry holds, it becomes a bounded row in the seed's names, and never raises."""

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain import entries, values
from chalicelib.domain.entries import LogRow, app_body, for_frame, json_text, pico, row_body
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import FRAME_BYTES, KB

REF = ThreadRef("org_a", "a" * 20)
ROCKET = "\U0001f680"
NAMES = (
    "model", "cost_total", "app_level", "app_message", "app_status", "app_error", "app_duration_ms", "app_cost",
    "app_request", "app_response", "app_trigger", "app_data",
)  # fmt: skip
LIMITS = {
    "app_message": 4 * KB, "app_error": 4 * KB, "app_data": 16 * KB, "app_request": 64 * KB, "app_response": 64 * KB,
}  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=8)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SCALARS, inner, max_size=4), max_leaves=12
)
FIELDS = (
    "name", "message", "level", "status", "trigger", "request", "response", "error", "duration_ms", "cost", "data",
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(), ANYTHING) | ANYTHING)
def test_any_entry_becomes_a_row_of_the_same_names_within_its_bounds(entry: Any) -> None:
    body = app_body(entry)
    assert tuple(body) == NAMES
    assert values.loads(values.dumps(body)) == body
    assert 1 <= len(body["model"]) <= 120
    assert body["app_level"] in entries.LEVELS
    assert body["app_status"] in (None, *entries.STATUSES)
    assert all(len((body[name] or "").encode()) <= limit for name, limit in LIMITS.items())
    assert body["cost_total"] is None


@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING))
def test_the_same_entry_gives_the_same_row(entry: dict[str, Any]) -> None:
    assert app_body(entry) == app_body(entry)


def test_an_entry_that_records_an_operation_says_all_of_it() -> None:
    body = app_body(
        {
            "name": "search.query",
            "status": "success",
            "message": "Found 12 flights",
            "trigger": {"kind": "message", "id": "msg_1", "summary": "User asked", "more": 1},
            "request": {"q": "flights to Lisbon"},
            "response": "twelve",
            "duration_ms": 182,
            "cost": 0.0004,
            "data": [1, 1.0, True, None],
        }
    )
    assert body == {
        "model": "search.query",
        "cost_total": None,
        "app_level": "info",
        "app_message": "Found 12 flights",
        "app_status": "success",
        "app_error": None,
        "app_duration_ms": 182,
        "app_cost": 0.0004,
        "app_request": '{"q":"flights to Lisbon"}',
        "app_response": "twelve",
        "app_trigger": '{"kind":"message","id":"msg_1","summary":"User asked"}',
        "app_data": "[1,1.0,true,null]",
    }


WRONG: dict[str, list[Any]] = {
    "status": ["maybe", "", 5, None, ["error"], "ERROR"],
    "message": [5, None, [], {}, b"bytes"],
    "error": [5, None, [], {"a": 1}, True],
    "trigger": ["text", None, {}, {"kind": 5}, {"kind": " "}, [], {"id": "x"}],
    "duration_ms": ["12", -1, True, None, float("nan"), float("inf"), 10**400, []],
    "cost": ["free", -1, -0.1, True, False, None, float("nan"), float("inf"), 10**13, 10**400],
    "data": [None],
}


@pytest.mark.parametrize(("field", "wrong"), [(field, wrong) for field in WRONG for wrong in WRONG[field]])
def test_a_field_of_the_wrong_type_is_dropped(field: str, wrong: Any) -> None:
    assert app_body({"name": "x", field: wrong})[f"app_{field}"] is None


@pytest.mark.parametrize("wrong", ["loud", "", None, 5, "INFO", ["info"]])
def test_a_wrong_level_is_the_default(wrong: Any) -> None:
    assert app_body({"name": "x", "level": wrong})["app_level"] == "info"
    assert app_body({"name": "x", "level": wrong, "status": "error"})["app_level"] == "error"
    assert app_body({"name": "x", "level": "debug", "status": "error"})["app_level"] == "debug"


class Hostile(Mapping[str, Any]):
    """An entry that raises wherever it is touched."""

    def __getitem__(self, name: str) -> Any:
        raise RuntimeError("no")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no")

    def __len__(self) -> int:
        raise RuntimeError("no")


class Unspeakable:
    """An object whose text form raises."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


@pytest.mark.parametrize("entry", [{}, {"name": None}, {"name": 5}, {"name": ""}, {"name": " \n"}, None, "x", [], 5])
def test_an_entry_without_a_usable_name_is_unnamed(entry: Any) -> None:
    assert not entries.usable_name(entry)
    assert app_body(entry)["model"] == "unnamed"


def test_an_entry_that_cannot_be_read_is_a_row_all_the_same() -> None:
    assert app_body(Hostile())["model"] == "unnamed"


def _knot() -> list[Any]:
    knot: list[Any] = []
    knot.append(knot)
    return knot


@pytest.mark.parametrize("value", [object(), iter([1]), Unspeakable(), pytest.param(10**5_000, id="huge"), type])
def test_what_has_no_json_form_becomes_a_marker_object(value: Any) -> None:
    for field in ("data", "request", "response"):
        text = app_body({"name": "x", field: value})[f"app_{field}"]
        assert list(json.loads(text)) == ["unencodable"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (set(), "[]"),
        ({1: 2, (1, 2): 3}, '{"1":2,"[1,2]":3}'),
        (b"bytes", '{"base64":"Ynl0ZXM="}'),
        (_knot(), '[{"unencodable":"a reference to itself"}]'),
        (float("nan"), None),
    ],
)
def test_values_of_python_take_their_json_form(value: Any, text: str | None) -> None:
    assert app_body({"name": "x", "data": value})["app_data"] == text


@pytest.mark.parametrize("unit", ["x", ROCKET, '"', "\\", "é", "\n", "\ud83d", "👩‍👩‍👧"])
@pytest.mark.parametrize(("field", "limit"), [(name, LIMITS[name]) for name in LIMITS])
def test_what_is_too_long_is_cut_between_characters_with_a_marker(field: str, limit: int, unit: str) -> None:
    name = field.removeprefix("app_")
    said = unit * (limit + 1)
    for value in (said, {"v": said}) if name in ("data", "request", "response") else (said,):
        text = app_body({"name": "x", name: value})[field]
        assert limit // 4 <= len(text.encode()) <= limit
        assert values.CUT_MARKER in text
        assert ("\ufffd" in text) == (unit == "\ud83d")


@pytest.mark.parametrize("value", ['"' * 40_000, {"v": '"' * 40_000}, ["é\n" * 20_000], {"a": 1, "b": ROCKET * 9_000}])
def test_json_that_is_cut_is_json_and_says_what_it_is(value: Any) -> None:
    told = json.loads(app_body({"name": "x", "data": value})["app_data"])
    whole = value if isinstance(value, str) else values.dumps(value)
    begun = told if isinstance(value, str) else told["truncated"]
    assert begun.endswith(values.CUT_MARKER)
    assert whole.startswith(begun.removesuffix(values.CUT_MARKER))
    if not isinstance(value, str):
        assert told["bytes"] == len(whole.encode())


def test_text_that_fits_exactly_is_whole() -> None:
    body = app_body({"name": "n" * 120, "message": "m" * 4_096, "request": "r" * 65_536, "data": "d" * 16_382})
    said = (body["model"], body["app_message"], body["app_request"], body["app_data"])
    assert said == ("n" * 120, "m" * 4_096, "r" * 65_536, f'"{"d" * 16_382}"')


def test_a_name_is_cut_at_its_characters() -> None:
    for unit in ("n", ROCKET, "👩‍👩‍👧"):
        name = app_body({"name": unit * 500})["model"]
        assert name.endswith(values.CUT_MARKER)
        assert 110 <= len(name) <= 120


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)), st.integers(64, 400))
def test_json_text_is_json_of_at_most_so_many_bytes(value: Any, most: int) -> None:
    text = json_text(values.safe(value), most)
    assert len(text.encode()) <= most
    json.loads(text)


@given(st.lists(st.floats(0, 1e6).filter(lambda cost: cost == round(cost, 12)), max_size=20))
def test_costs_add_up_by_their_digits(costs: list[float]) -> None:
    exact = sum((Decimal(repr(cost)) for cost in costs), Decimal(0))
    assert sum(map(pico, costs)) == int(exact * entries.PICO)


def test_ten_times_a_tenth_of_a_cent_is_a_cent() -> None:
    rows = [LogRow(key="k", kind="app", at=1, body=app_body({"name": "x", "cost": 0.001})) for _ in range(10)]
    assert sum(row.app_cost for row in rows) == entries.PICO // 100
    assert LogRow(key="k", kind="llm", at=1, body={"cost_total": 5.0}).app_cost == 0


def test_a_row_names_its_place_and_what_it_belongs_to() -> None:
    row = LogRow(key=entries.key(5, "x"), kind="app", at=5, run=2, message_id="msg_1", body={"model": "n"})
    assert row_body(REF, row) == {
        "id": f"log_{REF.token}_{5:017d}-x",
        "thread_id": REF.id,
        "run_id": REF.run(2),
        "message_id": "msg_1",
        "kind": "app",
        "model": "n",
        "created_at": 5,
    }
    bare = LogRow(key=entries.key(5, "x"), kind="app", at=5, body={"model": "n"})
    assert {"run_id", "message_id"}.isdisjoint(row_body(REF, bare))


@given(st.lists(st.tuples(st.integers(0, 10**16), st.text("abc.", min_size=1)), min_size=2))
def test_keys_are_in_the_order_of_their_instants(made: list[tuple[int, str]]) -> None:
    found = sorted(entries.key(at, name) for at, name in made)
    assert [entries.instant(key) for key in found] == sorted(at for at, _ in made)


@pytest.mark.parametrize("unit", ["x", ROCKET, '"', "\x01"])
@pytest.mark.parametrize("fields", [("request",), ("request", "response"), ("data", "message", "response"), FIELDS[1:]])
def test_a_row_that_is_too_large_for_a_frame_is_cut_where_it_is_large(unit: str, fields: tuple[str, ...]) -> None:
    entry = {"name": "x", **{name: unit * 60_000 for name in fields}}
    body = row_body(REF, LogRow(key=entries.key(5, "x"), kind="app", at=5, body=app_body(entry)))
    shown = for_frame(body)
    assert values.size(shown) < FRAME_BYTES
    assert set(shown) - set(body) == {"truncated"}
    assert {name for name in body if shown[name] != body[name]} == set(shown["truncated"])
    assert all(shown[name].endswith(values.CUT_MARKER) for name in shown["truncated"])


def test_a_small_field_beside_a_large_one_stays_whole_in_a_frame() -> None:
    body = app_body({"name": "x", "message": "short", "request": "r" * 60_000, "response": "s" * 2_000})
    shown = for_frame(body)
    assert (shown["app_message"], shown["app_response"]) == ("short", "s" * 2_000)
    assert shown["truncated"] == ["app_request"]
    assert len(shown["app_request"]) > 20_000


def test_a_row_that_fits_is_itself() -> None:
    body = app_body({"name": "x", "data": "d" * 9_000})
    assert for_frame(body) == body


def test_runtime_rows_are_small_whatever_a_call_held() -> None:
    llm = entries.llm_body(
        model="m",
        usage={"input_tokens": 1, "output_tokens": 1, "cache_read_tokens": 0},
        cost_usd=None,
        duration_ms=1,
        finish_reason="end",
        error="e" * 9_000,
        request={"messages": 5},
        response={"text": '"' * 9_000},
    )
    tool = entries.tool_body(
        name="t", call_id="c", outcome="ok", duration_ms=1, arguments={"a": ROCKET * 900}, result="r" * 9_000
    )
    assert values.size(llm) < 1_400
    assert values.size(tool) < 1_400
    assert (llm["status"], llm["cost_total"]) == ("error", None)
    assert json.loads(tool["arguments"])["bytes"] == 3_608
