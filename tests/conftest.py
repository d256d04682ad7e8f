"""What all tests share: a machine without a cloud of its own, and on demand one emulator a test process.

The emulator runs in a process group of its own under a keeper, so that it ends with the test process however that ends.
Under pytest-xdist each worker has its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local import emulator as data_plane
from infra.local.resources import CREDENTIALS, REGION

AWS = {
    **CREDENTIALS,
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def pytest_configure(config: pytest.Config) -> None:
    """The markers of this suite."""
    config.addinivalue_line("markers", "slow: takes longer than a few seconds; left out by `make test`")
    config.addinivalue_line("markers", "real_model: needs the small real model on loopback")


@pytest.fixture(autouse=True)
def _no_cloud_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dummy credentials and no endpoint: a mock goes to AWS_ENDPOINT_URL silently when it is set."""
    for name in ("AWS_ENDPOINT_URL", "LOCALSTACK_HOST", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a ministack that lives as long as this test process. Nothing is created in it."""
    folder: Path = tmp_path_factory.mktemp("emulator")
    started = data_plane.start(folder, persist=False)
    try:
        data_plane.wait_healthy(started, folder)
        yield started.endpoint
    finally:
        started.stop()


@pytest.fixture
def aws_env(emulator: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment in which every SDK speaks to the emulator; already set for this test."""
    settings = {**AWS, "AWS_ENDPOINT_URL": emulator}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return settings
