"""EventBridge's part: calls the sweep at start and then each five seconds, never twice at once.

On AWS the rule fires each 60 s; here lost work is to be taken up within 35 s.
"""

import threading
import traceback

from infra.local import events
from infra.local.lambdas import Function

PERIOD_SECONDS = 5.0
RULE = "turnlog-local-sweep"


class Ticker:
    """Started once, stopped once."""

    def __init__(self, function: Function, period: float = PERIOD_SECONDS) -> None:
        self._function, self._period = function, period
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)

    def start(self) -> None:
        """Fire now, and then each period."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Fire no more; wait up to `seconds` for the call at work."""
        self._stopping.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._function(events.schedule(RULE))
            except Exception:  # noqa: BLE001 - the function failed: told on stderr, and the next tick comes
                traceback.print_exc()
            self._stopping.wait(self._period)
