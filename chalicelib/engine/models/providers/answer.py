"""What a provider sends, as the port's chunks and errors. It knows pydantic-ai's events and nothing of connections."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import httpx2
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
)
from pydantic_ai.messages import (
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import StreamedResponse

from chalicelib.domain.errors import ModelError
from chalicelib.ports import CallArgs, CallStart, Chunk, Reasoning, Stop, Text, Usage

# Statuses that the next try may not meet: timeout, conflict of locks, Bedrock's "retry your request" for a model that
# failed while it streamed, too early, throttled. 5xx is added in code.
RETRYABLE_STATUSES = frozenset({408, 409, 424, 425, 429})
_DETAIL_LIMIT = 500  # characters of a provider's error text that are kept


@dataclass(kw_only=True)
class Answer:
    """One answer as it comes. A call is held back until its first argument, since until then its name may grow."""

    told: bool = False  # whether any call was begun
    waiting: dict[int, ToolCallPart] = field(default_factory=dict)  # part index -> call whose name may still grow

    def chunks(self, event: ModelResponseStreamEvent) -> Iterator[Chunk]:
        """The chunks of one event, in the order of the events."""
        if isinstance(event, PartStartEvent):
            yield from self._start(event)
        elif isinstance(event, PartDeltaEvent):
            yield from self._delta(event)
        elif isinstance(event, PartEndEvent):
            yield from self._tell(event.index)

    def _start(self, event: PartStartEvent) -> Iterator[Chunk]:
        part = event.part
        if isinstance(part, TextPart) and part.content:
            yield Text(text=part.content)
        elif isinstance(part, ThinkingPart) and part.content:
            yield Reasoning(text=part.content)
        elif isinstance(part, ToolCallPart):
            self.waiting[event.index] = ToolCallPart(tool_name=part.tool_name, tool_call_id=part.tool_call_id)
            yield from self._arguments(event.index, part.args)

    def _delta(self, event: PartDeltaEvent) -> Iterator[Chunk]:
        delta = event.delta
        if isinstance(delta, TextPartDelta) and delta.content_delta:
            yield Text(text=delta.content_delta)
        elif isinstance(delta, ThinkingPartDelta) and delta.content_delta:
            yield Reasoning(text=delta.content_delta)
        elif isinstance(delta, ToolCallPartDelta):
            self._grow(event.index, delta)
            yield from self._arguments(event.index, delta.args_delta)

    def _grow(self, index: int, delta: ToolCallPartDelta) -> None:
        if part := self.waiting.get(index):
            part.tool_name += delta.tool_name_delta or ""
            part.tool_call_id = delta.tool_call_id or part.tool_call_id

    def _arguments(self, index: int, args: str | Mapping[str, object] | None) -> Iterator[Chunk]:
        text = args if isinstance(args, str) else json.dumps(args) if args else ""
        if text:
            yield from self._tell(index)
            yield CallArgs(ref=str(index), part=text)

    def _tell(self, index: int) -> Iterator[Chunk]:
        if part := self.waiting.pop(index, None):
            self.told = True
            yield CallStart(ref=str(index), call_id=part.tool_call_id or None, name=part.tool_name)

    def ending(self, response: StreamedResponse) -> Iterator[Chunk]:
        """Usage as far as it came, and `Stop` if the answer is whole.

        Raises ModelError for an answer that a content filter stopped or that the provider itself calls broken.
        """
        usage, details = response.usage, response.provider_details or {}
        if usage.input_tokens or usage.output_tokens:
            yield Usage(
                mode="total",
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cache_read_tokens=usage.cache_read_tokens,
            )
        if response.finish_reason == "content_filter":
            refusal = details.get("refusal") or "the provider's content filter stopped the answer"
            raise ModelError(None, shortened(str(refusal)), retryable=False)
        if response.finish_reason == "error":
            raise ModelError(None, f"the provider stopped with `{details.get('finish_reason')}`", retryable=True)
        # The raw reason: pydantic-ai fills in `stop` where an OpenAI-compatible stream ended without one.
        if details.get("finish_reason") and not usage.unmeasured_requests:
            yield self._stop(response.finish_reason)

    def _stop(self, finish_reason: str | None) -> Stop:
        """Servers differ in what they call the end of an answer with calls, so the calls decide, except at a limit."""
        if finish_reason == "length":
            return Stop(reason="length")
        return Stop(reason="tool_calls" if self.told else "end")


def model_error(error: Exception) -> ModelError:
    """The port's error for what pydantic-ai, an SDK or the network raised."""
    if isinstance(error, ModelError):
        return error
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    return ModelError(status, shortened(_told_by_provider(error)), retryable=_retryable(error, status))


def _retryable(error: Exception, status: int | None) -> bool:
    """Refusals and faults of our own (credentials, settings) stay; statuses decide; what the network did may pass."""
    if isinstance(error, ModelQuotaExceededError | ModelRequestRejectedError):
        return False
    if status is not None:
        return status in RETRYABLE_STATUSES or status >= 500
    return isinstance(error, AgentRunError | httpx2.HTTPError | OSError)


def _told_by_provider(error: Exception) -> str:
    """The provider's own sentence where its error body has one (botocore capitalizes the names)."""
    body = error.body if isinstance(error, ModelAPIError) else None
    inner = _either(body, "error", "Error") or body
    return str(_either(inner, "message", "Message") or error) or type(error).__name__


def _either(body: object, name: str, other: str) -> object:
    return (body.get(name) or body.get(other)) if isinstance(body, Mapping) else None


def shortened(text: str) -> str:
    """At most 500 characters of a provider's text, so that an error fits into any row."""
    return text if len(text) <= _DETAIL_LIMIT else f"{text[:_DETAIL_LIMIT]}…"
