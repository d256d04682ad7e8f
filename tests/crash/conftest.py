"""One cloud of resources for each test process: clients are dear to make, threads are each schedule's own."""

from collections.abc import Callable, Iterator

import pytest

from chalicelib.adapters.clients import Clients
from chalicelib.adapters.table import connect
from infra.local import resources
from tests.conftest import AWS
from tests.crash.tap import Tap
from tests.crash.world import Cloud, HandClock, SeededIds, World

NAME = "crash"


@pytest.fixture(scope="session")
def cloud(emulator: str) -> Iterator[Cloud]:
    """Table, queue and bucket of this test process, and the tapped clients of the house."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in AWS.items():
            patch.setenv(name, value)
        made = resources.create(emulator, NAME)
        table = connect(NAME, clock=HandClock(), ids=SeededIds("table"), endpoint=emulator, region=resources.REGION)
        clients = Clients(region=resources.REGION, endpoint=emulator)
        tapped = {"dynamodb": table.client, "sqs": clients.client("sqs", attempts=2), "s3": clients.client("s3")}
        yield Cloud(
            resources=made,
            table=table,
            clients=clients,
            tap=Tap(tapped),
            sqs=resources.client("sqs", emulator),
        )


@pytest.fixture
def world(cloud: Cloud) -> Callable[[str], World]:
    """Worlds by seed."""
    return lambda seed: World(cloud=cloud, seed=seed)
