"""Keys: different things have different keys, whatever they are called, and numbers sort as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.adapters import keys
from chalicelib.domain.ids import ThreadRef
from chalicelib.ports import DUE_SHARDS

NASTY = st.text(st.sampled_from("#%/ a2é😀\x00"), max_size=6) | st.text(max_size=6)
NUMBERS = st.integers(1, 10**14)


@given(st.lists(NASTY, min_size=1, max_size=4), st.lists(NASTY, min_size=1, max_size=4))
def test_joined_parts_are_equal_only_if_the_parts_are(left: list[str], right: list[str]) -> None:
    assert (keys.join(*left) == keys.join(*right)) == (left == right)
    assert keys.split(keys.join(*left)) == tuple(left)


@given(st.lists(st.tuples(NASTY, NASTY), min_size=2, max_size=2, unique=True), NUMBERS)
def test_no_two_threads_share_a_row(pairs: list[tuple[str, str]], number: int) -> None:
    one, two = (ThreadRef(*pair) for pair in pairs)

    for family in (keys.head, keys.about):
        assert family(one) != family(two)
    for numbered in (keys.command, keys.message, keys.event_page):
        assert numbered(one, number) != numbered(two, number)
    assert keys.call(one, "c") != keys.call(two, "c")
    assert keys.subscriber(one, "c") != keys.subscriber(two, "c")
    assert keys.subscription("c", one) != keys.subscription("c", two)


@given(NASTY, NASTY, NUMBERS)
def test_families_of_a_thread_do_not_meet(org: str, token: str, number: int) -> None:
    ref = ThreadRef(org, token)
    found = {
        keys.head(ref),
        keys.about(ref),
        keys.command(ref, number),
        keys.message(ref, number),
        keys.event_page(ref, number),
        keys.call(ref, keys.padded(number)),
        keys.subscriber(ref, keys.padded(number)),
    }

    assert len(found) == 7
    assert {keys.thread_of(key.pk) for key in found} == {ref}
    assert keys.thread_of(keys.subscription("c", ref).sk) == ref


@given(st.lists(NASTY, min_size=2, max_size=2, unique=True))
def test_no_two_idempotency_keys_share_a_row(pair: list[str]) -> None:
    one, two = pair

    assert keys.idempotency("org", one) != keys.idempotency("org", two)
    assert keys.idempotency(one, "key") != keys.idempotency(two, "key")


@given(st.lists(st.text(max_size=3) | st.text(min_size=900, max_size=1_100), min_size=2, max_size=2, unique=True))
def test_no_two_calls_share_a_row_and_every_key_fits(pair: list[str]) -> None:
    ref = ThreadRef("org", "token")
    one, two = (keys.call(ref, call_id) for call_id in pair)

    assert one != two
    assert 0 < len(one.sk.encode()) <= 1_024


@pytest.mark.parametrize("key", [keys.api_key("a"), keys.ticket("a"), keys.connection("a"), keys.idempotency("o", "a")])
def test_lookup_rows_belong_to_no_thread(key: keys.Key) -> None:
    assert keys.thread_of(key.pk) is None


@given(NUMBERS, NUMBERS)
def test_numbers_sort_as_text(one: int, two: int) -> None:
    assert (keys.padded(one) < keys.padded(two)) == (one < two)
    ref = ThreadRef("org", "token")
    assert (keys.activity(ref, one) < keys.activity(ref, two)) == (one < two)


@pytest.mark.parametrize("number", [-1, 10**15])
def test_a_number_that_does_not_fit_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        keys.padded(number)


def test_blocks_hold_as_many_numbers_as_the_page_on_keys_says() -> None:
    ref = ThreadRef("org", "token")
    sizes = [(keys.command, 100), (keys.message, 64), (keys.event_page, 256)]

    for family, size in sizes:
        first, last, beyond = (family(ref, number).pk for number in (1, size, size + 1))
        assert first == last != beyond


def test_threads_spread_over_all_due_shards() -> None:
    shards = {keys.due_shard(ThreadRef("org", str(number))) for number in range(1_000)}

    assert shards == set(range(DUE_SHARDS))
