"""Real models through pydantic-ai's direct interface: Bedrock, Anthropic, and whatever speaks OpenAI's chat protocol.

The only importer of pydantic-ai, and itself imported only when a provider model is asked for; of the provider SDKs only
the one in use is loaded. It knows the `Model` port and nothing of runs or stores. It guarantees:

- chunks are yielded as they arrive; one asyncio loop on a daemon thread serves all calls of the process, because the
  clients of the SDKs bind to their loop;
- nothing is sent twice: the SDKs' own retries are off;
- `Stop` is yielded only if the provider said why it stopped and reported usage. A stream that ends quietly before that
  looks complete to the SDKs; here it just ends;
- every failure is a `ModelError` that says whether asking again can help;
- a cancelled call yields nothing more and closes its connection; it notices within 50 ms and returns when the
  connection is closed, after at most one second.
"""

import asyncio
import queue
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import Model as ProviderModel
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from chalicelib.domain.errors import ModelError
from chalicelib.engine.models.providers.answer import Answer, model_error, shortened
from chalicelib.engine.models.providers.clients import BUILDERS
from chalicelib.engine.models.providers.history import history
from chalicelib.engine.models.registry import ProviderSettings, missing_extra
from chalicelib.ports import Cancel, Chunk, ModelRequest

POLL_SECONDS = 0.05  # how often a waiting call looks whether it is still wanted
CLOSE_SECONDS = 1.0  # how long a returning call waits for its connection to close; Lambda may freeze us right after

# Options of a request that have the same name in pydantic-ai's settings.
_PLAIN_OPTIONS = ("temperature", "max_tokens", "top_p", "top_k", "seed", "stop_sequences")


class _Loop:
    """The process's asyncio loop, started on first use on a daemon thread and never stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="provider-models", daemon=True).start()
            return self._loop


_LOOP = _Loop()


def provider_model(provider: str, model: str, settings: ProviderSettings) -> "Provided":
    """The model of one of the known providers. Opens no connection, loads no SDK."""
    return Provided(provider=provider, model=model, settings=settings)


@dataclass(frozen=True, kw_only=True)
class Provided:
    """A provider's model behind the port. Its clients are built once for each deadline and kept. Safe on any thread."""

    provider: str
    model: str
    settings: ProviderSettings
    _clients: dict[int, ProviderModel] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def stream(self, request: ModelRequest, cancel: Cancel) -> Iterator[Chunk]:
        """Yield the answer as it comes; asking twice bills twice. See the module's guarantees. Raises ModelError."""
        call = _Call(client=self._client(request.deadline_seconds), request=request, provider=self.provider)
        try:
            yield from call.chunks(cancel)
        except Exception as error:
            raise model_error(error) from error

    def _client(self, deadline_seconds: float) -> ProviderModel:
        """The client whose read timeout lies below the deadline; agents keep to one deadline, so there are few."""
        timeout = max(1, int(deadline_seconds) - 1)
        with self._lock:
            if timeout not in self._clients:
                self._clients[timeout] = self._built(timeout)
            return self._clients[timeout]

    def _built(self, timeout: int) -> ProviderModel:
        try:
            return BUILDERS[self.provider](self.model, self.settings, timeout)
        except ImportError as error:
            raise missing_extra(self.provider, error) from error
        except Exception as error:
            raise ModelError(400, shortened(str(error)), retryable=False) from error


@dataclass(kw_only=True)
class _Call:
    """One call: a task on the loop that feeds a queue, and a generator on the caller's thread that drains it."""

    client: ProviderModel
    request: ModelRequest
    provider: str
    arrived: "queue.SimpleQueue[Chunk | None]" = field(default_factory=queue.SimpleQueue)  # None: look around
    closed: threading.Event = field(default_factory=threading.Event)

    def chunks(self, cancel: Cancel) -> Iterator[Chunk]:
        """Drain until the end, a failure (raised as the provider's SDK raised it), the deadline or the cancel."""
        future = asyncio.run_coroutine_threadsafe(self._pump(), _LOOP.running())
        latest = time.monotonic() + self.request.deadline_seconds
        try:
            while not cancel.wait(0):
                chunk = self._next()
                if chunk is not None:
                    yield chunk
                elif self.closed.is_set() and self.arrived.empty():
                    future.result()
                    return
                elif time.monotonic() > latest:
                    raise ModelError(None, f"no whole answer in {self.request.deadline_seconds:g} s", retryable=True)
        finally:
            future.cancel()
            self.closed.wait(CLOSE_SECONDS)

    def _next(self) -> Chunk | None:
        try:
            return self.arrived.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return None

    async def _pump(self) -> None:
        """Runs on the loop. Leaving `async with` closes the connection, also when this task is cancelled."""
        answer = Answer()
        try:
            stream = model_request_stream(
                self.client,
                history(self.request),
                model_settings=_settings(self.request, self.provider),
                model_request_parameters=_parameters(self.request),
            )
            async with stream as response:
                async for event in response:
                    for chunk in answer.chunks(event):
                        self.arrived.put(chunk)
                for chunk in answer.ending(response):
                    self.arrived.put(chunk)
        except Exception as error:
            _let_go(error)
            raise
        finally:
            self.closed.set()
            self.arrived.put(None)


def _let_go(error: BaseException) -> None:
    """Empty the frames of a failure on the loop's thread, so that the SDK's half-read generators are closed here.

    Kept alive by the traceback, they would be collected on another thread at any time, where closing them races with
    the loop, and their connection would stay open until then.
    """
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    tools = [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters))
        for tool in request.tools
    ]
    return ModelRequestParameters(function_tools=tools)


def _settings(request: ModelRequest, provider: str) -> ModelSettings:
    settings = ModelSettings(request_timeout=request.deadline_seconds)
    for name in _PLAIN_OPTIONS:
        if request.options.get(name) is not None:
            settings[name] = request.options[name]  # type: ignore[literal-required]  # one of its own keys
    if request.options.get("reasoning") and not _answers_a_tool(request, provider):
        settings["thinking"] = request.options["reasoning"]
    if request.tools:
        settings["parallel_tool_calls"] = request.parallel_tool_calls
        if request.tool_choice in ("none", "required", "auto"):
            settings["tool_choice"] = request.tool_choice  # type: ignore[typeddict-item]  # narrowed above
        else:
            settings["tool_choice"] = [request.tool_choice]
    return settings


def _answers_a_tool(request: ModelRequest, provider: str) -> bool:
    """Claude takes a tool result with thinking on only together with its signed thinking, which no message keeps."""
    return provider != "openai" and bool(request.messages) and request.messages[-1].get("role") == "tool"
