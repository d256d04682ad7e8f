"""What stands behind `ThreadState`: two Protocols, and the errors that code sees.

A state inside a run and one outside of any have the same face and other hands: inside, what is written waits for the
attempt's next fenced write (`engine.run_hands`); outside, each change is a write of its own (`services.outside`).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from chalicelib.domain.errors import InvalidRequest, NotFound, Refusal, RetryLater, TooLarge
from chalicelib.engine.refusal import Refused as Refused

Body = dict[str, Any]


class Paper(Protocol):
    """Entries of the log and durable values."""

    def log(self, entry: Any) -> None:
        """Note an entry. Never raises."""

    def set(self, name: str, value: Any) -> None:
        """Keep a value. Raises ValueError, OSError."""

    def get(self, name: str, default: Any) -> Any:
        """A value. Raises ValueError, OSError."""


class Runnable(Protocol):
    """A tool as `invoke_tool` and `queue_tool` need it."""

    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def run(self) -> Callable[[Any, dict[str, Any]], Any]: ...


class Hands(Protocol):
    """Everything else that code does with a thread. See the methods of `ThreadState` for what each promises."""

    @property
    def terminated(self) -> bool: ...
    def messages(self, limit: int, before: int | None, silent: bool) -> list[Body]: ...
    def inject(self, role: str, content: Any, metadata: Mapping[str, Any] | None, silent: bool) -> str: ...
    def update(self, state: Any, message_id: str, content: Any, metadata: Mapping[str, Any] | None) -> Body: ...
    def queue(self, content: Any, metadata: Mapping[str, Any] | None) -> str: ...
    def queue_tool(self, name: str, arguments: Mapping[str, Any] | None) -> str: ...
    def status(self) -> Body: ...
    def user(self) -> Body | None: ...
    def logs(self, limit: int, before: str | None) -> list[Body]: ...
    def emit(self, name: str, data: Any) -> None: ...
    def schedule(self, name: str, arguments: Mapping[str, Any] | None, at: int | None, after: float | None) -> str: ...
    def effects(self) -> list[Body]: ...
    def remove_effect(self, effect_id: str) -> bool: ...
    def terminate(self) -> None: ...
    def tool(self, name: str) -> "Runnable": ...


@contextmanager
def in_python() -> Iterator[None]:
    """Refusals as Python's own errors: ValueError, LookupError, OSError, and `Refused` for the rest."""
    try:
        yield
    except (InvalidRequest, TooLarge) as refusal:
        raise ValueError(refusal.detail) from None
    except NotFound as refusal:
        raise LookupError(refusal.detail) from None
    except RetryLater as refusal:
        raise OSError(refusal.detail) from None
    except Refusal as refusal:
        raise Refused(refusal.detail) from None


def tool_of(tools: Mapping[str, "Runnable"], name: str) -> "Runnable":
    """The tool of that name. Raises NotFound."""
    if name not in tools:
        raise NotFound(f"This agent has no tool named {name!r}.")
    return tools[name]


def checked_limit(limit: int, most: int) -> int:
    """How many rows to read. Raises InvalidRequest."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= most:
        raise InvalidRequest.at("limit", f"must be between 1 and {most}")
    return limit
