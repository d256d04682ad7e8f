"""Tables of the tests' own in the emulator, one for each test module."""

from collections.abc import Iterator

import pytest

from chalicelib.adapters.store import TableStore
from chalicelib.adapters.table import Table, connect
from chalicelib.domain.ids import ThreadRef
from moto import mock_aws
from tests.store.kit import FullPauses, MovedClock, make_table, thread


@pytest.fixture
def clock() -> MovedClock:
    """The clock of the adapters of this test."""
    return MovedClock()


@pytest.fixture
def table(emulator: str, request: pytest.FixtureRequest, clock: MovedClock) -> Table:
    """A table in the emulator that the tests of a module share; the connection is this test's own."""
    name = request.module.__name__.rsplit(".", 1)[-1]
    connected = connect(name, clock=clock, ids=FullPauses(), endpoint=emulator)
    make_table(connected)
    return connected


@pytest.fixture
def store(table: Table) -> TableStore:
    """The store on that table."""
    return TableStore(table)


@pytest.fixture
def ref() -> ThreadRef:
    """A thread that no other test knows."""
    return thread()


@pytest.fixture(params=["emulator", "moto"])
def any_table(request: pytest.FixtureRequest, clock: MovedClock) -> Iterator[Table]:
    """A table of two makes: one remembers client request tokens as AWS does, the other says `cancelled` to a repeat."""
    if request.param == "emulator":
        yield request.getfixturevalue("table")
        return
    with mock_aws():
        connected = connect("mocked", clock=clock, ids=FullPauses())
        make_table(connected)
        yield connected


@pytest.fixture
def any_store(any_table: Table) -> TableStore:
    """The store on either of them."""
    return TableStore(any_table)
