"""The folder that outlives a run: the emulator's data, the development keys, the secret, the lock.

Only one local cloud may use a folder. The lock is an flock whose descriptor the child processes inherit, so that it is
free only when all of them have ended: an emulator that still saves its state keeps the next start waiting. Secrets are
readable by their owner alone.
"""

import fcntl
import json
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from infra.local.options import Refusal

ORGS = ("development", "second")  # the orgs whose keys are kept; the second one lets isolation be tried
PREVIOUS_RUN_SECONDS = 15.0  # how long an orphaned emulator may take to save: 0.2 s measured, with a wide margin


@dataclass(frozen=True, kw_only=True)
class StateFolder:
    """An opened folder; `lock` is the descriptor that children inherit."""

    path: Path
    lock: int

    @property
    def keys(self) -> Path:
        """The development keys, by org."""
        return self.path / "keys.json"

    def secret(self) -> str:
        """The signing secret of this folder: made once, then the same for ever."""
        file = self.path / "secret"
        if not file.exists():
            write_private(file, secrets.token_urlsafe(32))
        return file.read_text().strip()


def open_folder(path: Path, url: str) -> StateFolder:
    """Make and lock the folder. Raises Refusal when another local cloud uses it, or when it cannot be written."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Refusal(
            f"The state folder {path} cannot be used ({error.strerror}); choose another with TURNLOG_STATE_DIR."
        ) from None
    _take(lock, path)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()} {url}\n".encode(), 0)
    return StateFolder(path=path, lock=lock)


def write_private(file: Path, text: str) -> None:
    """Replace a file at once, readable by its owner only."""
    fresh = file.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text + "\n")
    fresh.replace(file)


def read_keys(file: Path) -> dict[str, str]:
    """The stored keys by org; empty before the first start."""
    if not file.exists():
        return {}
    stored = json.loads(file.read_text())
    return {str(org): str(key) for org, key in stored.items()}


def _take(lock: int, path: Path) -> None:
    """Lock, waiting only for the remains of a run whose launcher is gone."""
    deadline = time.monotonic() + PREVIOUS_RUN_SECONDS
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder, _, url = os.pread(lock, 200, 0).decode().strip().partition(" ")
            if _alive(holder) or time.monotonic() > deadline:
                os.close(lock)
                raise Refusal(_in_use(path, holder, url)) from None
        time.sleep(0.05)


def _in_use(path: Path, holder: str, url: str) -> str:
    return (
        f"Turnlog already runs over {path} (process {holder}, {url}); "
        "stop that one, or choose another folder with TURNLOG_STATE_DIR and another port with PORT."
    )


def _alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True
