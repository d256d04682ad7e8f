"""One running product for all journeys of a test process, and clients of its two orgs."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chalicelib.client import Turnlog
from tests.journeys.product import Product, Talk


@pytest.fixture(scope="session")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The product as its launcher starts it, over a fresh state folder. Each test makes threads of its own."""
    started = Product(tmp_path_factory.mktemp("product") / "state")
    try:
        yield started.up()
    finally:
        started.stop()


@pytest.fixture
def turnlog(product: Product) -> Iterator[Turnlog]:
    """A client of the first org."""
    with product.client() as client:
        yield client


@pytest.fixture
def other(product: Product) -> Iterator[Turnlog]:
    """A client of the second org."""
    with product.client(product.other_key) as client:
        yield client


@pytest.fixture
def begin(turnlog: Turnlog, tmp_path: Path) -> Callable[..., Talk]:
    """Begins threads of the guest agent whose model calls can be read: `begin(script, tools, message)`."""
    numbers = itertools.count()
    return lambda *given, **more: Talk.begin(turnlog, *given, **more, watch=tmp_path / f"asked-{next(numbers)}")
