"""The data plane: ministack as a child process on a free loopback port, with its state in the state folder.

It runs under a keeper in a process group of its own, so that a terminal's Ctrl-C does not reach it before the app has
stopped, and so that it ends gracefully even when the launcher is killed. It keeps its state on a graceful stop only.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.local.options import ROOT, Refusal
from infra.local.resources import CREDENTIALS

PROGRAM = ROOT / ".emulator" / "bin" / "ministack"
POLL_SECONDS = 0.03
START_SECONDS = 30.0  # it is up in 0.9 s; a loaded machine may need more


@dataclass(frozen=True, kw_only=True)
class Emulator:
    """A running emulator. Closing the keeper's standard input stops it."""

    endpoint: str
    keeper: subprocess.Popen[bytes]

    def stop(self, seconds: float = 60.0) -> None:
        """End it gracefully and wait until its process is gone, state saved; a second call changes nothing."""
        if self.keeper.stdin and not self.keeper.stdin.closed:
            self.keeper.stdin.close()
        self.keeper.wait(seconds)


def start(folder: Path, *, lock: int | None = None, program: Path = PROGRAM, persist: bool = True) -> Emulator:
    """Start it over `folder`; answers at once, before it is healthy. Its log is `folder/emulator.log`."""
    if not program.exists():
        raise Refusal(f"The emulator is not installed at {program}; start with `make run`, which installs it.")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    with (folder / "emulator.log").open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "infra.local.keeper", str(program)],
            cwd=ROOT,
            env=_environment(os.environ, folder, port, persist),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=() if lock is None else (lock,),
        )
    return Emulator(endpoint=f"http://127.0.0.1:{port}", keeper=keeper)


def wait_healthy(emulator: Emulator, folder: Path) -> None:
    """Return when it answers. Raises Refusal when it does not start."""
    deadline = time.monotonic() + START_SECONDS
    while not _healthy(emulator.endpoint):
        if emulator.keeper.poll() is not None or time.monotonic() > deadline:
            raise Refusal(f"The emulator did not start; its log is {folder / 'emulator.log'}.")
        time.sleep(POLL_SECONDS)


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _healthy(endpoint: str) -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{endpoint}/_ministack/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _environment(inherited: Mapping[str, str], folder: Path, port: int, persist: bool) -> dict[str, str]:
    foreign = ("AWS_", "LOCALSTACK_", "PYTHONPATH", "VIRTUAL_ENV")
    kept = {name: value for name, value in inherited.items() if not name.startswith(foreign)}
    flag = "1" if persist else "0"
    return kept | {
        **CREDENTIALS,  # what it checks presigned addresses against
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "MINISTACK_HOST": "127.0.0.1",
        "LOG_LEVEL": "WARNING",
        "PERSIST_STATE": flag,
        "STATE_DIR": str(folder / "emulator"),
        "S3_PERSIST": flag,
        "S3_DATA_DIR": str(folder / "objects"),
    }
