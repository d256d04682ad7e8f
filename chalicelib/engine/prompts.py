"""Prompts and sides: what an agent says to its model, and when a side has done its part. It knows no thread.

A definition is checked when it is made: a mistake is a DefinitionError that names file, field and fix.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chalicelib.engine.definitions import check_type, wrong
from chalicelib.engine.fitting import fault_of_schema

if TYPE_CHECKING:
    from chalicelib.engine.agent import Tool

SIDE_A, SIDE_B = "side_a", "side_b"
#: Most turns of sides in one run (spec section 10, `max_session_turns`).
MAX_TURNS = 250
#: What a provider knows by these names; any other is the name of a tool.
TOOL_CHOICES = ("auto", "none", "required")
EFFORTS = ("low", "medium", "high")
_VARIABLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt: parts that are text or other prompts, joined by an empty line; `{name}` is a thread argument.

    `required` is a JSON Schema of the thread's arguments: a thread that does not fit it is not made. `model`
    (`provider:name`), `tools` and `options` are those of whoever plays it; `reasoning` is an effort.
    """

    name: str
    parts: Sequence["str | Prompt"] = ()
    required: Mapping[str, Any] | None = None
    model: str | None = None
    tools: "Sequence[Tool]" = ()
    tool_choice: str = "auto"
    parallel_tool_calls: bool = True
    reasoning: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_type("prompt", "name", self.name, str, "a text")
        what = f"prompt {self.name}"
        for field_name in ("parts", "tools"):
            value = getattr(self, field_name)
            if isinstance(value, str) or not isinstance(value, Sequence):
                raise wrong(what, f"{field_name} must be a list, not {value!r}")
        for part in self.parts:
            check_type(what, "parts", part, (str, Prompt), "a list of texts and prompts")
        check_required(what, self.required)
        check_model(what, self.model)
        check_type(what, "tool_choice", self.tool_choice, str, "a text")
        check_type(what, "parallel_tool_calls", self.parallel_tool_calls, bool, "true or false")
        check_type(what, "options", self.options, Mapping, "a dict")
        if self.reasoning not in (None, *EFFORTS):
            raise wrong(what, f"reasoning must be one of {', '.join(EFFORTS)}, not {self.reasoning!r}")
        names = [getattr(one, "name", None) for one in self.tools]
        if self.tool_choice not in (*TOOL_CHOICES, *names):
            raise wrong(what, f"tool_choice must be one of {', '.join(TOOL_CHOICES)} or a tool of it")

    @property
    def text(self) -> str:
        """The parts as one text, variables unfilled."""
        return "\n\n".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        """What it requires of the arguments, and what the prompts in it do."""
        own = () if self.required is None else (self.required,)
        return own + tuple(schema for part in self.parts if isinstance(part, Prompt) for schema in part.schemas)

    @property
    def all_options(self) -> dict[str, Any]:
        """The options, with the reasoning effort among them."""
        return {**self.options, **({"reasoning": self.reasoning} if self.reasoning else {})}


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of an agent: what it is told, and when its turn, or the whole run, is over.

    The tools that stop something are named, and stop it when their call has succeeded: `stop_tool` ends the turn, and
    the `response_property` of its result is what the side says; `session_stop` and `session_fail` end the run.
    `max_steps` (1..250) bounds the model steps of a turn. A `human` side has no prompt: its turn waits for a message.
    """

    prompt: Prompt | None = None
    stop_on_response: bool = True
    stop_tool: str | None = None
    response_property: str | None = None
    max_steps: int | None = None
    session_stop: str | None = None
    session_fail: str | None = None
    session_status: str | None = None
    human: bool = False

    def __post_init__(self) -> None:
        check_type("side", "human", self.human, bool, "true or false")
        check_type("side", "stop_on_response", self.stop_on_response, bool, "true or false")
        check_type("side", "prompt", self.prompt, (Prompt, type(None)), "a Prompt")
        if self.human == (self.prompt is not None):
            raise wrong("side", "prompt: give a side either a prompt or human=True")
        if self.max_steps is not None:
            check_type("side", "max_steps", self.max_steps, int, "a whole number")
            if not 1 <= self.max_steps <= 250:
                raise wrong("side", "max_steps must be between 1 and 250")
        self._check_tools()

    def _check_tools(self) -> None:
        names = [getattr(one, "name", None) for one in self.prompt.tools] if self.prompt else []
        for rule in ("stop_tool", "session_stop", "session_fail", "session_status"):
            value = getattr(self, rule)
            if value is not None and value not in names:
                known = ", ".join(map(str, names)) or "none"
                raise wrong("side", f"{rule} {value!r} is no tool of its prompt; add it there (it has: {known})")
        if self.response_property is not None and self.stop_tool is None:
            raise wrong("side", "response_property needs a stop_tool")


def filled(text: str, arguments: Mapping[str, Any]) -> str:
    """The text with its variables filled in; an unknown variable stays as it is written."""
    return _VARIABLE.sub(lambda m: str(arguments[m[1]]) if m[1] in arguments else m[0], text)


def check_model(what: str, model: object) -> None:
    """Raise DefinitionError unless this names a model, or none."""
    if model is not None and (not isinstance(model, str) or ":" not in model):
        raise wrong(what, f"model must be `provider:name`, not {model!r}")


def check_required(what: str, schema: object) -> None:
    """Raise DefinitionError unless this is a JSON Schema of an object, or none."""
    if schema is None:
        return
    check_type(what, "required", schema, Mapping, "a JSON Schema of the arguments")
    assert isinstance(schema, Mapping)
    if schema.get("type", "object") != "object":
        raise wrong(what, f'required must have the type "object", not {schema["type"]!r}: arguments are an object')
    if fault := fault_of_schema(schema):
        raise wrong(what, f"required is no JSON Schema: {fault}")
