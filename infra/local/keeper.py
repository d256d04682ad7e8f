"""Keeps one command running exactly as long as its own starter lives.

    python -m infra.local.keeper COMMAND ...

The starter holds the write end of the keeper's standard input. When that closes, however the starter ended, the
command gets SIGTERM (the emulator saves its state on that signal and on no harder one), and SIGKILL if it does not
follow. The keeper is the only process that waits for the command, and its exit code is the command's.
"""

import os
import signal
import subprocess
import sys
import threading
from types import FrameType

PATIENCE_SECONDS = 30.0  # the slowest graceful stop of the emulator that was measured took 27 s


def keep(command: list[str]) -> int:
    """Run the command until it ends or the starter is gone; answers its exit code."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as child:

        def stop(_signal: int = 0, _frame: FrameType | None = None) -> None:
            child.terminate()

        signal.signal(signal.SIGTERM, stop)
        threading.Thread(target=_watch, args=(child,), daemon=True).start()
        return child.wait()


def _watch(child: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        continue
    child.terminate()
    try:
        child.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of a terminal is for the launcher
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(keep(sys.argv[1:]))
