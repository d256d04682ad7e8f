"""Tables of the tests' own in the emulator, one for each test module."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import settings
from moto import mock_aws
from pynamodb.connection.base import MetaTable

from chalicelib.adapters import keys
from chalicelib.adapters.store import TableStore
from chalicelib.adapters.table import Patience, Table, connect
from chalicelib.domain.ids import ThreadRef
from tests.conftest import AWS
from tests.store.faults import withdraw_all
from tests.store.kit import FullPauses, MovedClock, make_table, thread

settings.register_profile("store", deadline=None)  # a busy machine is no failure
settings.load_profile("store")


@pytest.fixture
def clock() -> MovedClock:
    """The clock of the adapters of this test."""
    return MovedClock()


@pytest.fixture(scope="session")
def _tables(emulator: str) -> Callable[[str], Table]:
    """Tables by name, over one connection: its client takes half a second to make."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in AWS.items():
            patch.setenv(name, value)
        first = connect("unnamed", clock=MovedClock(), ids=FullPauses(), endpoint=emulator)

    @cache
    def named(name: str) -> Table:
        first.connection.add_meta_table(MetaTable({"TableName": name, **keys.SCHEMA}))
        table = replace(first, name=name)
        make_table(table)
        return table

    return named


@pytest.fixture
def table(_tables: Callable[[str], Table], request: pytest.FixtureRequest, clock: MovedClock) -> Iterator[Table]:
    """A table in the emulator that the tests of a module share, with this test's own clock and faults."""
    name = request.module.__name__.rsplit(".", 1)[-1]
    yield replace(_tables(name), patience=Patience(clock=clock, ids=FullPauses()))
    withdraw_all()


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
    withdraw_all()


@pytest.fixture
def any_store(any_table: Table) -> TableStore:
    """The store on either of them."""
    return TableStore(any_table)
