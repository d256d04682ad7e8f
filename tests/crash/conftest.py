"""One cloud of resources for each test process: clients are dear to make, threads are each schedule's own."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from pynamodb.connection.base import MetaTable

from chalicelib.adapters import keys
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
def world(cloud: Cloud) -> Iterator[Callable[[str], World]]:
    """Worlds by seed, in a table of this test's own: the emulator's index queries cost the whole table."""
    name = f"{NAME}-{uuid.uuid4().hex[:12]}"
    client, tap = cloud.table.client, cloud.tap
    with tap.outside():
        cloud.table.connection.add_meta_table(MetaTable({"TableName": name, **keys.SCHEMA}))
        client.create_table(TableName=name, BillingMode="PAY_PER_REQUEST", **keys.SCHEMA)
    own = replace(cloud, table=replace(cloud.table, name=name), resources=replace(cloud.resources, table=name))
    yield lambda seed: World(cloud=own, seed=seed)
    with tap.outside():
        client.delete_table(TableName=name)
