"""A prompt as a tool: what its author writes. `engine.asides` plays it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from chalicelib.engine.agent import DEFAULT_MODEL_SECONDS, Tool
from chalicelib.engine.agent_tool import MESSAGE, by_the_turn
from chalicelib.engine.definitions import check_type, wrong
from chalicelib.engine.prompts import Prompt
from chalicelib.engine.state import ThreadState


@dataclass(frozen=True, kw_only=True)
class PromptTool(Tool):
    """A prompt as a tool: a call asks a model once, beside the conversation; the answer is the call's result.

    The model is shown the prompt, filled with the call's arguments and the thread's, and one message: the argument that
    `message` names, where the call has it, else all of them as JSON. Without `parameters` the tool takes what its
    prompt requires, else one text `message`. `timeout_seconds` bounds all of it.

    Without tools in the prompt the result is the text of the answer. With tools it is `{"text", "calls": [{"name",
    "arguments", "outcome", "result"}]}`: the calls that the answer asks for run once, one after the other, and the
    model is not asked again. A call whose runner died runs again, so the prompt's tools must allow that (`on_retry`).
    """

    prompt: Prompt
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    run: Callable[[ThreadState, dict[str, Any]], Any] = by_the_turn
    timeout_seconds: float = DEFAULT_MODEL_SECONDS
    on_retry: Literal["surface", "again"] = "again"
    message: str = "message"

    def __post_init__(self) -> None:
        super().__post_init__()
        what = f"tool {self.name}"
        check_type(what, "prompt", self.prompt, Prompt, "a Prompt")
        if not self.parameters:
            object.__setattr__(self, "parameters", self.prompt.required or MESSAGE)
        if self.message != "message" and self.message not in self.parameters.get("properties", {}):
            raise wrong(what, f"message names {self.message!r}, which is no argument of it")
        for inner in self.prompt.tools:
            if inner.by_the_turn or isinstance(inner, PromptTool) or inner.requires_approval is not False:
                raise wrong(what, f"prompt: {inner.name} must be a function tool that needs no approval")
            if self.on_retry == "again" and inner.on_retry != "again":
                raise wrong(
                    what, f'on_retry: "again" would run {inner.name} again too; set "surface", or "again" on it'
                )
