"""Agents and tools as their authors write them. Importing a definition checks it: a mistake names file, field and fix.

@tool(timeout_seconds=10)
def weather(city: str, days: int = 1) -> dict[str, object]:
    '''Forecast for a city.'''
    ...

agent = Agent(name="guide", prompt="You guide {name} through Lisbon.", tools=[weather])
"""

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from chalicelib.engine import effects, endpoints, hooks
from chalicelib.engine.definitions import DefinitionError as DefinitionError
from chalicelib.engine.effects import Effect
from chalicelib.engine.endpoints import Endpoint
from chalicelib.engine.hooks import NO_HOOKS, Hooks
from chalicelib.engine.schema import SchemaError, parameters_of
from chalicelib.engine.state import ThreadState
from chalicelib.ports import ToolSpec

#: Longest a tool or a model call may take: a Lambda lives 900 s and needs a reserve to store what came of it.
MAX_SECONDS = 840.0
DEFAULT_TOOL_SECONDS = 60.0
DEFAULT_MODEL_SECONDS = 300.0
DEFAULT_MAX_STEPS = 50
log = logging.getLogger(__name__)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}\Z")


class ToolFailure(Exception):
    """Raise this in a tool to tell the model that it failed; the text is what the model reads."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function tool. `run` takes the state and the checked arguments.

    `on_retry` says what happens to a call that had started when its runner died: "surface" (default) closes it with
    outcome `unknown` and tells the model, "again" runs it again with the same idempotency token.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[ThreadState, dict[str, Any]], Any]
    timeout_seconds: float = DEFAULT_TOOL_SECONDS
    on_retry: Literal["surface", "again"] = "surface"
    by_the_turn: bool = False
    """The turn plays its calls itself, as those that make and address children; `run` is never called."""
    requires_approval: bool | Callable[[dict[str, Any]], bool] = False
    """A call of it waits until a person allows it: always, or where this function of the arguments says so."""

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise DefinitionError(f"tool {self.name!r}: name must match {_NAME.pattern[:-2]}")
        if not 0 < self.timeout_seconds <= MAX_SECONDS:
            raise DefinitionError(f"tool {self.name}: timeout_seconds must be above 0 and at most {MAX_SECONDS:.0f}")
        if self.on_retry not in ("surface", "again"):
            raise DefinitionError(f'tool {self.name}: on_retry must be "surface" or "again"')

    def needs_approval(self, arguments: dict[str, Any]) -> bool:
        """True if a call with these arguments waits for a person. A rule that fails lets nothing pass."""
        if isinstance(self.requires_approval, bool):
            return self.requires_approval
        try:
            return bool(self.requires_approval(arguments))
        except Exception:
            log.exception("approval rule failed", extra={"action": "approval_rule_failed", "tool": self.name})
            return True

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_seconds: float = DEFAULT_TOOL_SECONDS,
    on_retry: Literal["surface", "again"] = "surface",
    requires_approval: bool | Callable[[dict[str, Any]], bool] = False,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_seconds: float = DEFAULT_TOOL_SECONDS,
    on_retry: Literal["surface", "again"] = "surface",
    requires_approval: bool | Callable[[dict[str, Any]], bool] = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function: the schema comes from its type hints, the description from its docstring."""

    def make(f: Callable[..., Any]) -> Tool:
        try:
            shape = parameters_of(f)
        except SchemaError as error:
            raise DefinitionError(f"tool {_named(f)}: {error}") from None

        def run(state: ThreadState, arguments: dict[str, Any]) -> Any:
            values = shape.convert(arguments)
            return f(state, **values) if shape.takes_state else f(**values)

        return Tool(
            name=name or f.__name__,
            description=description or inspect.getdoc(f) or name or f.__name__,
            parameters=shape.schema,
            run=run,
            timeout_seconds=timeout_seconds,
            on_retry=on_retry,
            requires_approval=requires_approval,
        )

    return make(function) if function is not None else make


@dataclass(frozen=True, kw_only=True)
class Agent:
    """An `ai_human` agent with one side: prompt, model, tools, limits.

    `{name}` in the prompt stands for the thread argument of that name. `tools` may be a function of the thread's
    arguments for tools that depend on them.
    """

    name: str
    prompt: str = ""
    title: str | None = None
    description: str | None = None
    model: str | None = None
    """`provider:name`; None: the default model of the stage (TURNLOG_MODEL)."""
    tools: Sequence[Tool] | Callable[[Mapping[str, Any]], Sequence[Tool]] = ()
    tool_choice: str = "auto"
    parallel_tool_calls: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    max_steps: int = DEFAULT_MAX_STEPS
    model_seconds: float = DEFAULT_MODEL_SECONDS
    kind: str = "ai_human"
    subagents: Sequence[str] = ()
    """Agents that this one may start by itself, with the tools `subagent_create` and `subagent_message`."""
    child_sessions: bool = False
    """It may place sessions on its own thread, with the tools `child_session_create`, `_list`, `_events`, `_gather`."""
    endpoints: Sequence[Endpoint] = ()
    effects: Sequence[Effect] = ()
    hooks: Hooks = NO_HOOKS

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise DefinitionError(f"agent {self.name!r}: name must match {_NAME.pattern[:-2]}")
        if self.model is not None and ":" not in self.model:
            raise DefinitionError(f"agent {self.name}: model must be `provider:name`, not {self.model!r}")
        if not 1 <= self.max_steps <= 250:
            raise DefinitionError(f"agent {self.name}: max_steps must be between 1 and 250")
        if not 0 < self.model_seconds <= MAX_SECONDS:
            raise DefinitionError(f"agent {self.name}: model_seconds must be above 0 and at most {MAX_SECONDS:.0f}")
        endpoints.check(self.name, self.endpoints)
        effects.check(self.name, self.effects)
        hooks.check(self.name, self.hooks)
        if not callable(self.tools):
            _check_names(self.name, self.tools)

    def tools_for(self, arguments: Mapping[str, Any]) -> tuple[Tool, ...]:
        """The tools of a thread with these arguments."""
        return tuple(self.tools(arguments) if callable(self.tools) else self.tools)

    def system_for(self, arguments: Mapping[str, Any]) -> str:
        """The prompt with its variables filled in; an unknown variable stays as it is written."""
        return re.sub(r"\{(\w+)\}", lambda m: _filled(m, arguments), self.prompt)


def _named(function: Any) -> str:
    """How an error names a function: with its file, where it has one."""
    name = getattr(function, "__name__", repr(function))
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{name} in {code.co_filename}" if code else name


def _filled(match: re.Match[str], arguments: Mapping[str, Any]) -> str:
    name = match.group(1)
    return str(arguments[name]) if name in arguments else match.group(0)


def _check_names(agent: str, tools: Iterable[Tool]) -> None:
    seen: set[str] = set()
    for one in tools:
        if not isinstance(one, Tool):
            raise DefinitionError(f"agent {agent}: {one!r} is not a tool; decorate the function with @tool")
        if one.name in seen:
            raise DefinitionError(f"agent {agent}: two tools are named {one.name}")
        seen.add(one.name)
