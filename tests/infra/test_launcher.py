"""The command itself, as a process: start, kill, stop, start again, and every sentence that it refuses with."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import pytest

from infra.local.app_process import listen
from infra.local.emulator import free_port
from infra.local.options import ROOT
from infra.local.resources import client
from tests.infra.conftest import until
from tests.infra.stub_app import page


class Command:
    """One `python -m infra.local` over a state folder, hosting the stub handlers."""

    def __init__(
        self, folder: Path, *, port: int | None = None, environ: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.folder, self.port = folder, port or free_port()
        self.output = folder.with_suffix(f".{self.port}.{id(self)}.log")
        given = {"PORT": str(self.port), "TURNLOG_STATE_DIR": str(folder), "PYTHONUNBUFFERED": "1", **environ}
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "infra.local", "--app", "tests.infra.stub_app"],
                cwd=ROOT,
                env={**os.environ, **given},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def up(self) -> "Command":
        """Wait for the banner."""
        until(lambda: "TURNLOG_KEY_B=" in self.said() or self.process.poll() is not None, 30)
        assert self.process.poll() is None, self.said()
        return self

    def said(self) -> str:
        return self.output.read_text()

    def ended(self) -> tuple[int, str]:
        """Exit code and everything it said."""
        return self.process.wait(30), self.said()

    def get(self, path: str) -> Any:
        """The JSON of a GET."""
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=10, trust_env=False).json()

    def post(self, path: str, content: str) -> None:
        answer = httpx.post(f"http://127.0.0.1:{self.port}{path}", content=content, timeout=10, trust_env=False)
        assert answer.status_code == 201

    def app(self) -> int:
        """The process id of the app process."""
        return int(self.get("/api/health")["pid"])

    def ours(self) -> set[int]:
        """Every process that carries our state folder in its environment or arguments, the launcher too."""
        mark, found = str(self.folder).encode(), set()
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                if any(mark in Path(f"/proc/{process}/{part}").read_bytes() for part in ("environ", "cmdline")):
                    found.add(int(process))
            except OSError:
                continue
        return found - {os.getpid()}

    def keys(self) -> dict[str, str]:
        return dict(re.findall(r"(TURNLOG_KEY\w*)=(\S+)", self.said()))

    def stop(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        self.process.send_signal(number)
        return self.ended()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A state folder; whatever still runs over it when the test ends is killed."""
    path = tmp_path / "state"
    yield path
    for process in Command.ours(_Marked(path)):
        os.kill(process, signal.SIGKILL)


class _Marked(Command):
    def __init__(self, folder: Path) -> None:
        self.folder = folder


def test_the_next_start_has_the_data_and_the_keys_of_the_last(folder: Path) -> None:
    first = Command(folder).up()
    first.post("/api/put", "before")
    until(lambda: first.get("/api/seen")["fan_out"] == ["before"])
    assert first.stop()[0] == 0
    second = Command(folder).up()
    assert second.keys() == first.keys()
    assert len(set(second.keys().values())) == 2
    second.post("/api/put", "after")
    until(lambda: "after" in second.get("/api/seen")["fan_out"])
    rows = json.loads((folder / "emulator" / "dynamodb.json").read_text())
    assert "before" in json.dumps(rows)
    assert second.stop()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_leaves_no_process_and_says_nothing_odd(folder: Path, number: signal.Signals) -> None:
    command = Command(folder).up()
    assert len(command.ours()) == 4  # launcher, keeper, emulator, app process
    code, said = command.stop(number)
    assert code == 0
    assert "Traceback" not in said
    assert command.ours() == set()


def test_a_stop_during_the_start_is_clean(folder: Path) -> None:
    command = Command(folder)
    until(lambda: len(command.ours()) >= 3)
    code, said = command.stop()
    assert (code, said) == (0, "")
    until(lambda: command.ours() == set())


def test_a_stop_does_not_wait_for_long_polls(folder: Path) -> None:
    command = Command(folder).up()
    address, statuses = f"http://127.0.0.1:{command.port}/api/hold", []
    poll = threading.Thread(target=lambda: statuses.append(httpx.get(address, timeout=30, trust_env=False).status_code))
    poll.start()
    until(lambda: command.get("/api/seen")["hold"])
    assert command.stop()[0] == 0
    poll.join()
    assert statuses == [503]


def test_a_killed_app_process_is_replaced_over_the_same_emulator(folder: Path) -> None:
    command = Command(folder).up()
    others, killed = command.ours(), command.app()
    os.kill(killed, signal.SIGKILL)
    until(lambda: "started again over the same data" in command.said())
    fresh = command.app()
    assert fresh != killed
    assert others - {killed} == command.ours() - {fresh}
    assert command.said().count("The app process ended (killed by SIGKILL)") == 1
    command.post("/api/send", "work")
    until(lambda: command.get("/api/seen")["run_turn"] == ["work"])
    assert command.stop()[0] == 0


def test_rows_written_while_no_app_process_lived_are_fanned_out_by_the_next(folder: Path) -> None:
    command = Command(folder).up()
    command.post("/api/put", "before")
    until(lambda: command.get("/api/seen")["fan_out"] == ["before"])
    killed = command.app()
    (endpoint,) = re.findall(rb"AWS_ENDPOINT_URL=([^\0]+)", Path(f"/proc/{killed}/environ").read_bytes())
    os.kill(command.process.pid, signal.SIGSTOP)  # so that it is not replaced yet
    os.kill(killed, signal.SIGKILL)
    client("dynamodb", endpoint.decode()).put_item(TableName="turnlog", Item=page("meanwhile"))
    os.kill(command.process.pid, signal.SIGCONT)
    until(lambda: "started again" in command.said())
    until(lambda: command.get("/api/seen")["fan_out"])
    assert command.get("/api/seen")["fan_out"] == ["meanwhile"]
    assert command.stop()[0] == 0


def test_a_killed_launcher_takes_everything_with_it_and_the_data_is_saved(folder: Path) -> None:
    command = Command(folder).up()
    command.post("/api/put", "kept")
    os.kill(command.process.pid, signal.SIGKILL)
    command.process.wait()
    next_one = Command(folder).up()
    assert command.process.pid not in next_one.ours()
    assert len(next_one.ours()) == 4
    assert "kept" in (folder / "emulator" / "dynamodb.json").read_text()
    assert next_one.stop()[0] == 0


def test_the_end_of_the_emulator_ends_everything_with_a_sentence(folder: Path) -> None:
    command = Command(folder).up()
    (emulator,) = [pid for pid in command.ours() if _name(pid).endswith("ministack")]
    os.kill(emulator, signal.SIGKILL)
    code, said = command.ended()
    assert code == 1
    assert "The emulator has ended; what it had not saved is lost." in said
    until(lambda: command.ours() == set())


def test_a_second_start_over_one_folder_is_one_sentence(folder: Path) -> None:
    command = Command(folder).up()
    code, said = Command(folder).ended()
    assert code == 1
    assert said.startswith(f"Turnlog already runs over {folder} (process {command.process.pid}")
    assert said.count("\n") == 1
    assert command.stop()[0] == 0


def test_a_port_in_use_is_one_sentence_and_starts_nothing(folder: Path) -> None:
    port = free_port()
    with listen(port):
        command = Command(folder, port=port)
        code, said = command.ended()
    assert code == 1
    assert said.startswith(f"Port {port} is in use;")
    assert said.count("\n") == 1
    assert command.ours() == set()


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"AWS_ENDPOINT_URL": "https://dynamodb.us-east-1.amazonaws.com"}, "not a loopback address"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1.example.com:4566"}, "not a loopback address"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1@10.0.0.1:4566"}, "not a loopback address"),
        ({"LOCALSTACK_HOST": "10.1.2.3:4566"}, "not a loopback address"),
        ({"MODEL": "unknown"}, "MODEL must be"),
        ({"PORT": "http"}, "PORT must be"),
    ],
)
def test_a_wish_that_cannot_be_granted_is_one_sentence(folder: Path, environ: dict[str, str], sentence: str) -> None:
    code, said = Command(folder, environ=environ).ended()
    assert code == 1
    assert sentence in said
    assert said.count("\n") == 1


def test_a_given_loopback_endpoint_is_used_instead_of_an_emulator(folder: Path, emulator: str) -> None:
    command = Command(folder, environ={"AWS_ENDPOINT_URL": emulator}).up()
    assert len(command.ours()) == 2  # launcher and app process
    command.post("/api/send", "work")
    until(lambda: command.get("/api/seen")["run_turn"] == ["work"])
    assert command.stop()[0] == 0


def test_secrets_are_readable_by_their_owner_alone(folder: Path) -> None:
    command = Command(folder).up()
    assert command.stop()[0] == 0
    for name in ("keys.json", "secret"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_only_the_app_process_listens_on_the_port_and_everything_is_on_loopback(folder: Path) -> None:
    command = Command(folder).up()
    listening = _listeners(command.ours())
    assert {address for _, address, _ in listening} == {"0100007F"}
    assert {pid for pid, _, port in listening if port == command.port} == {command.app()}
    assert command.stop()[0] == 0


def _name(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[1].decode()


def _listening() -> list[tuple[str, int, str]]:
    """(address, port, inode) of every listening socket."""
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        address, port = fields[1].split(":")
        if fields[3] == "0A":
            found.append((address, int(port, 16), fields[9]))
    return found


def _listeners(processes: set[int]) -> set[tuple[int, str, int]]:
    """(process, address, port) of every listening socket of some processes."""
    found, sockets = set(), {f"socket:[{inode}]": (address, port) for address, port, inode in _listening()}
    for process in processes:
        for descriptor in os.listdir(f"/proc/{process}/fd"):
            try:
                target = os.readlink(f"/proc/{process}/fd/{descriptor}")
            except OSError:
                continue
            if target in sockets:
                found.add((process, *sockets[target]))
    return found
