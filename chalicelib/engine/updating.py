"""The hooks around `update_message`, and how any hook that fails is told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chalicelib.domain import entries
from chalicelib.engine.hooks import Blocked, Hooks

UNFIT = "What it answered does not fit in its place."


def hook_failure(name: str, fault: str, duration_ms: int = 0) -> dict[str, Any]:
    """The row of a hook that has failed."""
    return entries.handler_body(name=name, handler="hook", error=fault, duration_ms=duration_ms, request={})


def blocked_by(fault: str) -> str:
    """What `Blocked` was raised with, from its text as a fault."""
    return fault.partition(": ")[2] or "A hook has blocked the run."


@dataclass(frozen=True, kw_only=True)
class Updating:
    """The hooks around `update_message`. They run where the message is changed, on the thread of that code."""

    hooks: Hooks
    safe: Callable[[Any], Any]
    failed: Callable[[str, str], None]
    """Takes the name of a hook and why it failed."""

    def before(self, state: Any, message: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
        """The change as the hook leaves it. Raises Blocked."""
        answer = self._call("before_update_message", state, message, change)
        if answer is None:
            return change
        if not isinstance(answer, dict):
            self.failed("before_update_message", UNFIT)
            return change
        return {**change, **{name: answer[name] for name in ("content", "metadata") if name in answer}}

    def after(self, state: Any, message: dict[str, Any]) -> None:
        """Say that it is stored. Raises Blocked."""
        self._call("after_update_message", state, message)

    def _call(self, name: str, state: Any, *given: dict[str, Any]) -> Any:
        hook = getattr(self.hooks, name)
        if hook is None:
            return None
        try:
            return self.safe(hook(state, *(self.safe(one) for one in given)))
        except Blocked as blocked:
            self.failed(name, str(self.safe(blocked)))
            raise
        except Exception as error:  # noqa: BLE001 - a hook that raises changes nothing
            self.failed(name, str(self.safe(error)))
            return None
