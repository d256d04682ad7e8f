"""When to try again: the client's only notion of time and chance, all of it handed in so that a test need not wait.

It must not know what is tried. It guarantees waits between 75% and 100% of 0.5, 1, 2, 4, 8, 8, ... seconds (doubling
and jitter as the OpenAI clients do), so that many clients that lost one server do not come back in step.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 8.0
JITTER = 0.25
LONGEST_RETRY_AFTER_SECONDS = 120.0  # a server that asks for more is not waited for: the caller gets error and number


@dataclass(frozen=True, kw_only=True)
class Pace:
    """`sleep` and `clock` are in seconds; `dice` gives a float from 0 up to 1."""

    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    dice: Callable[[], float] = random.random

    def backoff_seconds(self, failures: int) -> float:
        """The wait after so many failures in a row (1 is the first)."""
        doubled = FIRST_SECONDS * 2.0 ** min(max(failures, 1) - 1, 10)
        return min(doubled, LONGEST_SECONDS) * (1 - JITTER * self.dice())

    def back_off(self, failures: int) -> None:
        """Wait that long."""
        self.sleep(self.backoff_seconds(failures))


def retry_after_seconds(header: str | None) -> float | None:
    """Seconds of a `Retry-After`; None if there is none or it is a date, which this server never sends."""
    return float(header) if header and header.isascii() and header.isdigit() else None
