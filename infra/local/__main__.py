"""`python -m infra.local`, what `make run` becomes: run the local cloud until Ctrl-C. Any refusal is one sentence."""

import os
import sys

from infra.local.launcher import Launcher
from infra.local.options import Refusal, read


def main() -> int:
    """The exit code: 0 after a stop that was asked for, 1 when it could not run or go on."""
    try:
        return Launcher(read(os.environ, sys.argv[1:]), os.environ).run()
    except Refusal as refusal:
        print(refusal, file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
