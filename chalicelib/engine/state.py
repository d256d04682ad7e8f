"""What a tool sees of its thread: `ThreadState`. Agent code depends on this page and on `engine.agent` only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chalicelib.ports import Cancel


@dataclass(frozen=True, kw_only=True)
class ThreadState:
    """Handed to a tool whose first parameter is annotated with it.

    `idempotency_token` is the same whenever this very call runs again after a crash: give it to services that take one.
    """

    thread_id: str
    run_id: str
    call_id: str
    idempotency_token: str
    arguments: Mapping[str, Any]
    cancel: Cancel

    def wait(self, seconds: float) -> bool:
        """Let time pass inside a tool; True as soon as the result is no longer wanted."""
        return self.cancel.wait(seconds)
