"""The one process that listens on the port: the gateway, the pumps and every handler of app.py.

It takes the port before anything slow is imported, so that a client that calls while a killed app process is being
replaced waits for an answer instead of being refused. It ends on SIGTERM, and when its standard input closes: that is
how it learns that the launcher is gone.
"""

import importlib
import json
import os
import signal
import socket
import sys
from typing import Any

PORT_TAKEN = 75  # exit code: somebody else has the port
BACKLOG = 1024


def main(plan: dict[str, Any]) -> int:
    """Serve until asked to stop; `plan` is what the launcher decided (see launcher.py)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of a terminal is for the launcher
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        listening = listen(plan["port"])
    except OSError:
        return PORT_TAKEN
    importlib.import_module("infra.local.host").serve(listening, plan)  # after the port is taken, see above
    return 0


def listen(port: int) -> socket.socket:
    """A listening loopback socket. Raises OSError when the port is taken."""
    # With its protocol named, asyncio sets TCP_NODELAY on what it accepts; without, each answer is 40 ms late.
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a killed process may still be closing
    try:
        made.bind(("127.0.0.1", port))
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


if __name__ == "__main__":
    code = main(json.loads(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a handler that does not end must not keep the process; its message has been given back
