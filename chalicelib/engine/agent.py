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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, overload

from chalicelib.engine import effects, endpoints, hooks
from chalicelib.engine.definitions import DefinitionError as DefinitionError  # agents import it from here
from chalicelib.engine.definitions import check_type, wrong
from chalicelib.engine.effects import Effect
from chalicelib.engine.endpoints import Endpoint
from chalicelib.engine.hooks import NO_HOOKS, Hooks
from chalicelib.engine.prompts import MAX_TURNS, SIDE_A, SIDE_B, Prompt, Side, check_model, check_required, filled
from chalicelib.engine.schema import SchemaError, parameters_of
from chalicelib.engine.state import ThreadState

if TYPE_CHECKING:
    from chalicelib.engine.stops import Cast
    from chalicelib.ports import ToolSpec

#: Longest a tool or a model call may take: a Lambda lives 900 s and needs a reserve to store what came of it.
MAX_SECONDS = 840.0
DEFAULT_TOOL_SECONDS = 60.0
DEFAULT_MODEL_SECONDS = 300.0
DEFAULT_MAX_STEPS = 50
#: The one side of an agent that is a plain prompt.
PLAIN: Mapping[str, Side] = {SIDE_A: Side(prompt=Prompt(name="plain"))}
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
        check_type("tool", "name", self.name, str, "a text")
        check_type(f"tool {self.name}", "timeout_seconds", self.timeout_seconds, (int, float), "a number of seconds")
        if not _NAME.match(self.name):
            raise wrong(f"tool {self.name!r}", f"name must match {_NAME.pattern[:-2]}")
        if not 0 < self.timeout_seconds <= MAX_SECONDS:
            raise wrong(f"tool {self.name}", f"timeout_seconds must be above 0 and at most {MAX_SECONDS:.0f}")
        if self.on_retry not in ("surface", "again"):
            raise wrong(f"tool {self.name}", 'on_retry must be "surface" or "again"')

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
    def spec(self) -> "ToolSpec":
        """The tool as the model sees it."""
        from chalicelib.ports import ToolSpec  # the doors read definitions and ask no model

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
            raise wrong(f"tool {_named(f)}", f"{error}") from None

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
    """An agent: `ai_human` (one turn a run) or `dual_ai` (two sides take turns); prompt, model, tools, limits.

    An agent with sides takes prompt, tools and options from them.

    `{name}` in the prompt stands for the thread argument of that name. `tools` may be a function of the thread's
    arguments for tools that depend on them.
    """

    name: str
    prompt: str = ""
    required: Mapping[str, Any] | None = None
    """JSON Schema of a thread's arguments; a thread that does not fit is not made."""
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
    side_a: Side | None = None
    side_b: Side | None = None
    max_turns: int = MAX_TURNS
    """Of a `dual_ai` agent: turns of sides in one run."""
    child_sessions: bool = False
    """It may place sessions on its own thread, with the tools `child_session_create`, `_list`, `_events`, `_gather`."""
    endpoints: Sequence[Endpoint] = ()
    effects: Sequence[Effect] = ()
    hooks: Hooks = NO_HOOKS

    def __post_init__(self) -> None:
        _check_fields(self)
        _check_sides(self)
        endpoints.check(self.name, self.endpoints)
        effects.check(self.name, self.effects)
        hooks.check(self.name, self.hooks)
        if not callable(self.tools):
            _check_names(self.name, self.tools)
        for side in self.sides.values():
            _check_names(self.name, side.prompt.tools if side.prompt else ())

    @property
    def sides(self) -> Mapping[str, Side]:
        """The sides by name; none of an agent that is one plain prompt."""
        return {name: side for name, side in ((SIDE_A, self.side_a), (SIDE_B, self.side_b)) if side is not None}

    @property
    def required_of_arguments(self) -> tuple[Mapping[str, Any], ...]:
        """Schemas that the arguments of its threads must fit: its own, and those of its sides' prompts."""
        own = () if self.required is None else (self.required,)
        return own + tuple(schema for side in self.sides.values() if side.prompt for schema in side.prompt.schemas)

    @property
    def cast(self) -> "Cast":
        """Who plays, for the decision what follows a step."""
        from chalicelib.engine.stops import Cast  # the doors read definitions and play none

        return Cast(sides=self.sides or PLAIN, max_turns=self.max_turns)

    def voice(self, side: str) -> "Agent":
        """This agent as one of its sides plays it; itself if it is one plain prompt."""
        played = self.sides.get(side)
        if played is None or played.prompt is None:
            return self
        prompt = played.prompt
        return replace(
            self,
            kind="ai_human",
            side_a=None,
            side_b=None,
            prompt=prompt.text,
            model=prompt.model or self.model,
            tools=tuple(prompt.tools),
            tool_choice=prompt.tool_choice,
            parallel_tool_calls=prompt.parallel_tool_calls,
            options={**self.options, **prompt.all_options},
            max_steps=played.max_steps or self.max_steps,
        )

    def tools_for(self, arguments: Mapping[str, Any]) -> tuple[Tool, ...]:
        """The tools of a thread with these arguments."""
        if self.sides:
            tools = [tool for side in self.sides.values() if side.prompt for tool in side.prompt.tools]
            return tuple({tool.name: tool for tool in tools}.values())
        return tuple(self.tools(arguments) if callable(self.tools) else self.tools)

    def system_for(self, arguments: Mapping[str, Any]) -> str:
        """The prompt with its variables filled in; an unknown variable stays as it is written."""
        return filled(self.prompt, arguments)


def _named(function: Any) -> str:
    """How an error names a function: with its file, where it has one."""
    name = getattr(function, "__name__", repr(function))
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{name} in {code.co_filename}" if code else name


def _check_fields(agent: Agent) -> None:
    check_type("agent", "name", agent.name, str, "a text")
    what = f"agent {agent.name}"
    if not _NAME.match(agent.name):
        raise wrong(f"agent {agent.name!r}", f"name must match {_NAME.pattern[:-2]}")
    check_type(what, "prompt", agent.prompt, str, "a text; give a Prompt to a side (side_a=Side(prompt=...))")
    check_required(what, agent.required)
    check_model(what, agent.model)
    check_type(what, "tool_choice", agent.tool_choice, str, "a text")
    check_type(what, "parallel_tool_calls", agent.parallel_tool_calls, bool, "true or false")
    check_type(what, "options", agent.options, Mapping, "a dict")
    check_type(what, "max_steps", agent.max_steps, int, "a whole number")
    check_type(what, "max_turns", agent.max_turns, int, "a whole number")
    check_type(what, "model_seconds", agent.model_seconds, (int, float), "a number of seconds")
    if not 1 <= agent.max_steps <= 250:
        raise wrong(what, "max_steps must be between 1 and 250")
    if not 1 <= agent.max_turns <= MAX_TURNS:
        raise wrong(what, f"max_turns must be between 1 and {MAX_TURNS}")
    if not 0 < agent.model_seconds <= MAX_SECONDS:
        raise wrong(what, f"model_seconds must be above 0 and at most {MAX_SECONDS:.0f}")
    if not callable(agent.tools) and (isinstance(agent.tools, str) or not isinstance(agent.tools, Sequence)):
        raise wrong(what, f"tools must be a list of tools or a function, not {agent.tools!r}")


def _check_sides(agent: Agent) -> None:
    what = f"agent {agent.name}"
    for name in (SIDE_A, SIDE_B):
        check_type(what, name, getattr(agent, name), (Side, type(None)), "a Side")
    if agent.kind not in ("ai_human", "dual_ai"):
        raise wrong(what, f'kind must be "ai_human" or "dual_ai", not {agent.kind!r}')
    if agent.kind == "dual_ai" and len(agent.sides) != 2:
        raise wrong(what, "a dual_ai agent needs side_a and side_b")
    if agent.kind == "ai_human" and agent.side_b is not None:
        raise wrong(what, 'side_b: an ai_human agent has side_a alone; set kind="dual_ai"')
    if agent.sides and all(side.human for side in agent.sides.values()):
        raise wrong(what, "human: one side at least must have a prompt")
    if agent.sides and (agent.prompt or agent.tools):
        raise wrong(what, "prompt and tools of an agent with sides belong into the prompts of its sides")


def _check_names(agent: str, tools: Iterable[Tool]) -> None:
    seen: set[str] = set()
    for one in tools:
        if not isinstance(one, Tool):
            raise wrong(f"agent {agent}", f"{one!r} is not a tool; decorate the function with @tool")
        if one.name in seen:
            raise wrong(f"agent {agent}", f"two tools are named {one.name}")
        seen.add(one.name)
