"""Event pages without a table: their format is stored for ever."""

import hashlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chalicelib.adapters import dictionary, keys, pages
from chalicelib.domain.events import Fact
from tests.store.kit import NOW, fact

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
DATA = st.dictionaries(st.text(max_size=5), NUMBERS | st.text() | st.booleans())
FACTS = st.lists(
    st.builds(
        Fact,
        type=st.sampled_from(["message.delta", "run.started", "custom.x"]),
        data=DATA,
        at=st.integers(NOW, NOW + 3),
        run=st.integers(0, 2),
        attempt=st.integers(0, 1),
    ),
    min_size=1,
    max_size=30,
)


def _read(page: pages.Page) -> list[tuple[Any, ...]]:
    stored = pages.page_of(pages.page_row(page, "write"))
    return [(e.seq, e.type, dict(e.data), e.at, e.run, e.attempt) for e in pages.events(stored)]


@given(FACTS, st.integers(0, 600))
def test_facts_come_back_numbered(facts: list[Fact], seq: int) -> None:
    found = [row for page in pages.paginate(facts, seq, b"") for row in _read(page)]
    expected = [(number, f.type, f.data, f.at, f.run, f.attempt) for number, f in enumerate(facts, seq + 1)]

    assert found == expected
    assert repr(found) == repr(expected)


@given(FACTS, st.integers(0, 600))
def test_no_page_crosses_a_block(facts: list[Fact], seq: int) -> None:
    found = pages.paginate(facts, seq, b"")

    assert [page.first for page in found] == [seq + 1, *(page.last + 1 for page in found[:-1])]
    assert all(keys.event_block(page.first) == keys.event_block(page.last) for page in found)


def test_a_changed_moved_or_missing_page_breaks_the_chain() -> None:
    one, two = pages.paginate([fact(str(number)) for number in range(300)], 0, b"")

    assert pages.chained(one.chain, two.first, two.text) == two.chain
    assert pages.chained(one.chain, two.first, two.text.replace(b"299", b"298")) != two.chain
    assert pages.chained(one.chain, two.first + 1, two.text) != two.chain
    assert pages.chained(b"", two.first, two.text) != two.chain


def test_no_facts_make_no_page() -> None:
    assert pages.paginate([], 7, b"chain") == []


def test_a_page_of_two_short_events_is_smaller_than_half_its_text() -> None:
    facts = [
        Fact(type="thread.status", data={"state": "running", "since": NOW, "reason": None}, at=NOW),
        Fact(type="run.queued", data={"command_id": "cmd_" + "a" * 20 + "_1", "delivery": "join"}, at=NOW, run=1),
    ]
    (page,) = pages.paginate(facts, 0, b"")

    assert len(pages.page_row(page, "w")["body"]["B"]) < len(page.text) / 2


def test_what_does_not_deflate_is_kept_as_it_is() -> None:
    (page,) = pages.paginate([Fact(type="é", data={}, at=NOW)], 0, b"")

    assert _read(page) == [(1, "é", {}, NOW, 0, 0)]


def test_the_preset_dictionary_is_the_one_that_stored_pages_were_written_with() -> None:
    known = "7e3d6c7edfe1bff43bbbb50c92f59e8ff3f5ec1cb5c31114f58d07a27a53bfeb"

    assert hashlib.sha256(dictionary.ONE).hexdigest() == known
