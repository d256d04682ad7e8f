"""What the engine needs of language models: a request, the pieces of its answer, and who resolves a name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

# JSON-safe values: what passed the border of `domain.values`. `Any` because mypy has no useful recursive JSON type.
JSON = Any


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it; `parameters` is the JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, JSON]


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """One model call. Messages are bodies of spec section 3 with pairing repaired and no empty text part."""

    model: str
    system: str
    messages: tuple[Mapping[str, JSON], ...]
    tools: tuple[ToolSpec, ...]
    tool_choice: str
    parallel_tool_calls: bool
    options: Mapping[str, JSON]
    deadline_seconds: float
    call_index: int
    arguments: Mapping[str, JSON]


@dataclass(frozen=True, kw_only=True)
class Text:
    """A piece of the answer; bytes are raw UTF-8 that may be cut inside a character."""

    text: str | bytes


@dataclass(frozen=True, kw_only=True)
class Reasoning:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, kw_only=True)
class CallStart:
    """The model begins to ask for a tool; `ref` names the call inside this answer."""

    ref: str
    call_id: str | None
    name: str


@dataclass(frozen=True, kw_only=True)
class CallArgs:
    """A piece of the JSON text of a call's arguments."""

    ref: str
    part: str


@dataclass(frozen=True, kw_only=True)
class Usage:
    """A reading of tokens: an increment, or a running total of this answer that replaces what came before."""

    mode: Literal["increment", "total"]
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Stop:
    """The provider's finish reason. An answer without one is a truncation."""

    reason: Literal["end", "tool_calls", "length"]


Chunk = Text | Reasoning | CallStart | CallArgs | Usage | Stop


class Cancel(Protocol):
    """Tells a model or a tool that its work is no longer wanted."""

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds`; True as soon as the work is no longer wanted."""


class Model(Protocol):
    """A language model behind any provider. Runs on a worker thread; asking twice bills twice."""

    def stream(self, request: ModelRequest, cancel: Cancel) -> Iterator[Chunk]:
        """Yield the answer as it comes. Raises ModelError. Ends without `Stop` when the stream was cut."""


class Models(Protocol):
    """Resolves `provider:name`."""

    def resolve(self, name: str) -> Model:
        """The model of that name. Raises ModelError for an unknown provider."""
