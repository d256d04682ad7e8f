"""Cursors: a position comes back where it was signed, and no other text opens anywhere."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.errors import InvalidRequest
from chalicelib.doors.cursors import Scope, open_cursor, sign

SECRET = b"a secret of tests"
SCOPE = Scope(org="org_a", list="messages", inside="thr_1", filters=(("order", "desc"),))
POSITIONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def refused(token: str, scope: Scope = SCOPE, secret: bytes = SECRET) -> bool:
    try:
        open_cursor(secret, scope, token)
    except InvalidRequest as refusal:
        return [fault.path for fault in refusal.faults] == ["cursor"]
    return False


@given(POSITIONS)
def test_a_position_comes_back_as_it_was(position: Any) -> None:
    token = sign(SECRET, SCOPE, position)
    assert open_cursor(SECRET, SCOPE, token) == position
    assert set(token) <= set(ALPHABET)
    assert sign(SECRET, SCOPE, position) == token


@given(POSITIONS, st.data())
def test_any_character_changed_is_refused(position: Any, data: st.DataObject) -> None:
    token = sign(SECRET, SCOPE, position)
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters().filter(lambda character: character != token[place]))
    assert refused(token[:place] + other + token[place + 1 :])


@given(POSITIONS, st.data())
def test_any_byte_changed_is_refused(position: Any, data: st.DataObject) -> None:
    token = sign(SECRET, SCOPE, position)
    raw = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    place, mask = data.draw(st.integers(0, len(raw) - 1)), data.draw(st.integers(1, 255))
    raw[place] ^= mask
    assert refused(base64.urlsafe_b64encode(raw).rstrip(b"=").decode())


def test_every_other_spelling_of_the_last_character_is_refused() -> None:
    """Base64 has bits at its end that decode to nothing; each length of a position leaves another number of them."""
    for length in range(4):
        token = sign(SECRET, SCOPE, "x" * length)
        assert [letter for letter in ALPHABET if not refused(token[:-1] + letter)] == [token[-1]]


@pytest.mark.parametrize("change", ["{}=", "{}==", "={}", " {}", "{} ", "{}\n", "{}A", "{}{}", "{}.", "\ufeff{}"])
def test_nothing_can_be_put_around_a_cursor(change: str) -> None:
    token = sign(SECRET, SCOPE, [1, "a"])
    assert refused(change.replace("{}", token))


@given(POSITIONS, st.integers(min_value=1, max_value=60))
def test_a_cursor_that_was_cut_is_refused(position: Any, cut: int) -> None:
    assert refused(sign(SECRET, SCOPE, position)[:-cut])


@given(st.text(max_size=100))
def test_any_text_is_refused(text: str) -> None:
    assert refused(text)


@pytest.mark.parametrize(
    "other",
    [
        SCOPE._replace(org="org_b"),
        SCOPE._replace(list="runs"),
        SCOPE._replace(inside="thr_2"),
        SCOPE._replace(inside=""),
        SCOPE._replace(filters=()),
        SCOPE._replace(filters=(("order", "asc"),)),
        SCOPE._replace(org="org_amessages", list=""),
        SCOPE._replace(list='messages","thr_1', inside=""),
    ],
)
def test_a_cursor_opens_in_no_other_scope(other: Scope) -> None:
    assert refused(sign(SECRET, SCOPE, 1), other)
    assert refused(sign(SECRET, other, 1))


def test_a_cursor_opens_with_no_other_secret() -> None:
    assert refused(sign(SECRET, SCOPE, 1), secret=b"another secret")


def test_a_cursor_does_not_tell_its_org_or_filters() -> None:
    token = sign(SECRET, SCOPE, 1)
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    assert b"org_a" not in raw
    assert json.loads(raw[32:]) == 1


def test_a_megabyte_of_cursor_is_refused() -> None:
    assert refused("A" * 1_000_000)
