"""Rows: what is read equals what was written, in value and in type; a head stays small."""

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.adapters import codec, keys, rows
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import (
    About,
    Call,
    Command,
    CommandState,
    Head,
    Message,
    Outcome,
    Role,
    RunStatus,
    State,
    Tokens,
    Value,
)
from chalicelib.ports import Remembered

REF = ThreadRef("org_" + "o" * 20, "t" * 20)

NUMBER = st.integers(0, 10**15)
TEXT = st.text(max_size=40)
LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4))
OBJECT = st.dictionaries(TEXT, JSON, max_size=4)
PARTS = st.lists(OBJECT, max_size=3).map(tuple)
TOKENS = st.builds(Tokens, input=NUMBER, output=NUMBER, cache_read=NUMBER, cost_micro_usd=st.none() | NUMBER)


def _filled(kind: Any, **special: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Records with every field given; a field's annotation decides, unless it is special."""
    common = {"int": NUMBER, "str": TEXT, "str | None": st.none() | TEXT, "bool": st.booleans(), "Tokens": TOKENS}
    annotated = {each.name: getattr(each.type, "__name__", str(each.type)) for each in fields(kind)}
    return st.builds(kind, **{name: common[kind_] for name, kind_ in annotated.items() if kind_ in common}, **special)


HEADS = _filled(Head, chain=st.binary(min_size=32, max_size=32) | st.just(b""), state=st.sampled_from(State))
ABOUTS = _filled(About, tags=st.lists(TEXT).map(tuple), arguments=OBJECT)
COMMANDS = _filled(
    Command,
    state=st.sampled_from(CommandState),
    status=st.sampled_from(RunStatus),
    content=st.none() | PARTS,
    metadata=st.none() | OBJECT,
    joins=st.lists(st.tuples(NUMBER, NUMBER), max_size=3).map(tuple),
    error=st.none() | OBJECT,
)
MESSAGES = _filled(Message, role=st.sampled_from(Role), content=PARTS, metadata=OBJECT)
CALLS = _filled(Call, outcome=st.none() | st.sampled_from(Outcome), arguments=JSON, result=JSON)
REMEMBEREDS = _filled(Remembered)


def _same(left: Any, right: Any) -> bool:
    """Equal in value and type, all the way down: the representation tells 1, 1.0, True and -0.0 apart."""
    return bool(left == right) and repr(left) == repr(right)


@given(HEADS)
def test_a_head_comes_back(head: Head) -> None:
    assert _same(rows.head_of(rows.head_row(REF, head)), head)


@given(ABOUTS)
def test_an_about_comes_back(about: About) -> None:
    assert _same(rows.about_of(rows.about_row(about)), about)


@given(COMMANDS)
def test_a_command_comes_back(command: Command) -> None:
    assert _same(rows.command_of(rows.command_row(command)), command)


@given(MESSAGES)
def test_a_message_comes_back(message: Message) -> None:
    assert _same(rows.message_of(rows.message_row(message)), message)


@given(CALLS)
def test_a_call_comes_back(call: Call) -> None:
    assert _same(rows.call_of(rows.call_row(call)), call)


@given(REMEMBEREDS)
def test_a_remembered_key_comes_back(row: Remembered) -> None:
    assert _same(rows.remembered_of(rows.remembered_row(row)), row)


@given(JSON)
def test_json_comes_back_in_value_and_type(value: Any) -> None:
    assert _same(codec.unpack(codec.pack(value)), value)


@pytest.mark.parametrize("value", [1, 1.0, True, 0, -0.0, False, None, 2**53 + 1, 2**63, -(2**70), 1e300, 5e-324, ""])
def test_values_that_look_alike_stay_apart(value: Any) -> None:
    nested = {"value": [value] * 40}

    assert _same(codec.unpack(codec.pack(value)), value)
    assert _same(codec.unpack(codec.pack(nested)), nested)


def test_long_json_is_deflated_and_short_json_is_readable() -> None:
    assert codec.pack({"a": 1}) == {"S": '{"a":1}'}
    assert len(codec.pack(["hello"] * 1_000)["B"]) < 100


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": object()}])
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        codec.pack(value)


def test_packed_values_of_a_newer_release_are_refused_and_not_misread() -> None:
    with pytest.raises(ValueError, match="unknown version 9"):
        codec.unpack({"B": b"\x09..."})


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        (rows.HEAD, Head),
        (rows.ABOUT, About),
        (rows.COMMAND, Command),
        (rows.MESSAGE, Message),
        (rows.CALL, Call),
        (rows.VALUE, Value),
        (rows.REMEMBERED, Remembered),
    ],
)
def test_every_field_has_a_column_of_its_own(columns: tuple[codec.Column, ...], kind: Any) -> None:
    names = [column.name for column in columns]

    assert [column.field for column in columns] == [each.name for each in fields(kind)]
    assert len(set(names)) == len(names)
    assert not {"pk", "sk", "v", "expires_at", "act_pk", "act_sk", "due_pk"} & set(names)


@pytest.mark.parametrize(
    ("columns", "kind"), [(rows.HEAD, Head), (rows.COMMAND, Command), (rows.MESSAGE, Message), (rows.CALL, Call)]
)
def test_an_absent_attribute_means_the_records_own_default(columns: tuple[codec.Column, ...], kind: Any) -> None:
    defaults = {each.name: each.default for each in fields(kind)}

    assert [
        column.field for column in columns if column.default is not ... and column.default != defaults[column.field]
    ] == []


def test_a_row_that_lost_what_is_always_there_is_not_read_as_something_else() -> None:
    with pytest.raises(KeyError):
        rows.head_of({"rev": {"N": "1"}})


def test_the_head_of_a_thread_stays_below_1_kb_at_its_largest() -> None:
    instant, number, long_name = 9_999_999_999_999_999, 10**15 - 1, "x" * 64
    given: dict[str, Any] = {each.name: number for each in fields(Head) if each.type in (int, "int")}
    given |= {
        each.name: instant for each in fields(Head) if each.name.endswith(("_at", "_until")) or each.name == "since"
    }
    given |= {
        "agent": long_name,
        "state": State.RUNNING,
        "reason": "awaiting_children",
        "chain": bytes(32),
        "run_usage": Tokens(input=number, output=number, cache_read=number, cost_micro_usd=number),
        "lease_nonce": "n" * 20,
        "write": "w" * 40,
        "deleted_at": 0,
    }
    head = Head(**given)
    key = keys.head(REF)

    size = codec.size({"pk": {"S": key.pk}, "sk": {"S": key.sk}, **rows.head_row(REF, head)})

    assert size < 1_024, json.dumps({"bytes": size})


def test_ttl_is_in_whole_seconds_and_never_too_early() -> None:
    row = rows.remembered_row(
        Remembered(key="k", fingerprint="f", token="t", command=0, nonce="n", expires_at=1_700_000_000_000_001)
    )

    assert row["expires_at"] == {"N": "1700000001"}
