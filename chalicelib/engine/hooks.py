"""Hooks as their authors write them: functions that see, and may change, what goes through a run of their agent.

hooks = Hooks(before_store_tool_result=without_addresses, filter_messages=only_mine)

Each gets the state first. One that answers None, raises or takes too long leaves the data as it was; the last two leave
a row in the thread's log. `raise Blocked(reason)` ends the run as failed, with `hook_blocked`.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from chalicelib.engine.definitions import DefinitionError, named

#: A hook holds its run up, and the run its lease: it is given a little time.
DEFAULT_SECONDS = 5.0
MAX_SECONDS = 30.0

Hook = Callable[..., Any]


class Blocked(Exception):
    """Raise this in a hook to end the run: `failed`, reason `hook_blocked`, with this text."""


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """The hooks of an agent; None: there is none. What each is called with and may answer stands beside it."""

    after_thread_created: Hook | None = None
    """(state): before the first model step of the thread's first run."""
    after_subagent_created: Hook | None = None
    """(state, child): a row of the registry."""
    after_system_message: Hook | None = None
    """(state, text) -> text: the system prompt with its variables filled in."""
    filter_messages: Hook | None = None
    """(state, messages) -> messages: what of the window the model is shown; others may have other words."""
    prefilter_llm_history: Hook | None = None
    """(state, messages) -> messages: what is sent, paired; it is paired again afterwards."""
    before_create_message: Hook | None = None
    """(state, message) -> message: a message of a user or the model before it is stored; content and metadata count."""
    after_create_message: Hook | None = None
    """(state, message): as it will be stored; what the hook notes is stored with it."""
    before_update_message: Hook | None = None
    """(state, message, change) -> change: what `update_message` is about to change, `content` and `metadata`."""
    after_update_message: Hook | None = None
    """(state, message): as it is stored."""
    before_store_tool_result: Hook | None = None
    """(state, call, result) -> result."""
    after_tool_call_success: Hook | None = None
    """(state, call, result) -> result: before `before_store_tool_result`."""
    after_tool_call_failure: Hook | None = None
    """(state, call, result) -> result: what the model would read of the failure."""
    timeout_seconds: float = DEFAULT_SECONDS

    def __post_init__(self) -> None:
        for one in fields(self):
            hook = getattr(self, one.name)
            if one.name != "timeout_seconds" and hook is not None and not callable(hook):
                raise DefinitionError(f"hooks: {one.name} must be a function, not {named(hook)}")
        if not 0 < self.timeout_seconds <= MAX_SECONDS:
            raise DefinitionError(f"hooks: timeout_seconds must be above 0 and at most {MAX_SECONDS:.0f}")


NO_HOOKS = Hooks()


def check(agent: str, hooks: Any) -> None:
    """Raises DefinitionError for what are no hooks."""
    if not isinstance(hooks, Hooks):
        raise DefinitionError(f"agent {agent}: hooks: {named(hooks)} is none; write Hooks(...)")
