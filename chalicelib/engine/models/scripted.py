"""The `scripted` model: plays a script from the thread's arguments, so that a run is reproducible from outside.

It knows the form of spec section 7 ("The `scripted` agent") and nothing of queues, stores or clocks. It guarantees that
the same request gives the same chunks, and that a script of wrong shape ends in a `ModelError` that names the place
(`script.0.events.2.part: ...`), never in a crash. `fake_tools` reads the tools that such a thread declares.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NoReturn, get_args

from chalicelib.domain.errors import ModelError
from chalicelib.engine.models.placeholders import Filler, stored_results
from chalicelib.ports import JSON, CallArgs, CallStart, Cancel, Chunk, ModelRequest, Reasoning, Stop, Text, Usage

StopReason = Literal["end", "tool_calls", "length"]
UsageMode = Literal["increment", "total"]
RetryRule = Literal["again", "surface"]

# No script says what comes after its last step; spec section 7 does.
_DONE = ({"type": "text", "text": "done"}, {"type": "stop", "reason": "end"})
AFTER_THE_LAST_STEP: Mapping[str, JSON] = {"events": _DONE}


class BadDeclaration(ValueError):
    """A script or a fake tool of wrong shape; the text begins with the dotted path of the fault."""


def _bad(path: str, message: str) -> NoReturn:
    raise BadDeclaration(f"{path}: {message}")


@dataclass(frozen=True, kw_only=True)
class Scripted:
    """Plays `arguments.script[call_index]`. A second call with the same request plays the same step again."""

    def stream(self, request: ModelRequest, cancel: Cancel) -> Iterator[Chunk]:
        """Yield the step's chunks. Ends at once when cancelled during a pause, without `Stop`.

        Raises ModelError: the scripted one, or status 400 for a script of wrong shape.
        """
        performance = _Performance(results=stored_results(request.messages), cancel=cancel)
        try:
            for path, event in _events(request):
                yield from performance.play(path, event)
                if performance.cancelled:
                    return
        except BadDeclaration as error:
            raise ModelError(400, str(error), retryable=False) from None


def _events(request: ModelRequest) -> Iterator[tuple[str, Mapping[str, JSON]]]:
    path = f"script.{request.call_index}"
    step = _step(request.arguments.get("script"), request.call_index)
    if not isinstance(step, Mapping):
        _bad(path, "a step is an object with `events`")
    events = step.get("events")
    if not isinstance(events, list | tuple):
        _bad(f"{path}.events", "must be a list of events")
    for number, event in enumerate(events):
        if not isinstance(event, Mapping):
            _bad(f"{path}.events.{number}", "an event is an object")
        yield f"{path}.events.{number}", event


def _step(script: JSON, index: int) -> JSON:
    if script is None:
        return AFTER_THE_LAST_STEP
    if not isinstance(script, list | tuple):
        _bad("script", "must be a list of steps")
    return script[index] if 0 <= index < len(script) else AFTER_THE_LAST_STEP


@dataclass(kw_only=True)
class _Performance:
    """One step being played: the calls begun in it, each with the state of its JSON text so far."""

    results: Mapping[str, JSON]
    cancel: Cancel
    cancelled: bool = False
    latest: dict[str, str] = field(default_factory=dict)  # id -> ref of the most recent call that began with it
    fillers: dict[str, Filler] = field(default_factory=dict)  # ref -> text state

    def play(self, path: str, event: Mapping[str, JSON]) -> Iterator[Chunk]:
        kinds: dict[str, Callable[[str, Mapping[str, JSON]], Iterator[Chunk]]] = {
            "text": self._text,
            "reasoning": self._reasoning,
            "call_start": self._call_start,
            "call_args": self._call_args,
            "usage": self._usage,
            "pause": self._pause,
            "error": self._error,
            "stop": self._stop,
        }
        kind = event.get("type")
        if not isinstance(kind, str) or kind not in kinds:
            _bad(f"{path}.type", f"must be one of {', '.join(kinds)}")
        return kinds[kind](path, event)

    def _text(self, path: str, event: Mapping[str, JSON]) -> Iterator[Chunk]:
        if "base64" in event:
            yield Text(text=_decoded(f"{path}.base64", event["base64"]))
        else:
            yield Text(text=_string(path, event, "text"))

    def _reasoning(self, path: str, event: Mapping[str, JSON]) -> Iterator[Chunk]:
        yield Reasoning(text=_string(path, event, "text"))

    def _call_start(self, path: str, event: Mapping[str, JSON]) -> Iterator[Chunk]:
        call_id, name = _call_id(path, event), _string(path, event, "name")
        ref = str(len(self.fillers))
        self.latest[call_id] = ref
        self.fillers[ref] = Filler(results=self.results)
        yield CallStart(ref=ref, call_id=call_id or None, name=name)

    def _call_args(self, path: str, event: Mapping[str, JSON]) -> Iterator[Chunk]:
        """Parts belong to the most recent call that began with their id; a missing and an empty id are the same id."""
        ref = self.latest.get(_call_id(path, event))
        if ref is None:
            _bad(f"{path}.id", "no call_start with this id came before")
        yield CallArgs(ref=ref, part=self.fillers[ref].fill(_string(path, event, "part")))

    def _usage(self, path: str, event: Mapping[str, JSON]) -> Iterator[Chunk]:
        yield Usage(
            mode=_choice(path, event, "mode", get_args(UsageMode), "increment"),
            input_tokens=_count(path, event, "input"),
            output_tokens=_count(path, event, "output"),
            cache_read_tokens=_count(path, event, "cache_read"),
        )

    def _pause(self, path: str, event: Mapping[str, JSON]) -> Iterator[Chunk]:
        self.cancelled = self.cancel.wait(_milliseconds(path, event, "ms") / 1000)
        yield from ()

    def _error(self, path: str, event: Mapping[str, JSON]) -> Iterator[Chunk]:
        status, retryable = event.get("status"), event.get("retryable", False)
        if status is not None and (not isinstance(status, int) or isinstance(status, bool)):
            _bad(f"{path}.status", "must be a whole number or null")
        if not isinstance(retryable, bool):
            _bad(f"{path}.retryable", "must be true or false")
        yield from ()
        raise ModelError(status, _string(path, event, "detail", "the script says so"), retryable=retryable)

    def _stop(self, path: str, event: Mapping[str, JSON]) -> Iterator[Chunk]:
        yield Stop(reason=_choice(path, event, "reason", get_args(StopReason), "end"))


def _string(path: str, event: Mapping[str, JSON], name: str, default: str | None = None) -> str:
    value = event.get(name, default)
    if not isinstance(value, str):
        _bad(f"{path}.{name}", "must be a string")
    return value


def _call_id(path: str, event: Mapping[str, JSON]) -> str:
    value = event.get("id")
    return "" if value is None else _string(path, event, "id")


def _decoded(path: str, value: JSON) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        _bad(path, "must be base64 text")


def _count(path: str, event: Mapping[str, JSON], name: str) -> int:
    value = event.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        _bad(f"{path}.{name}", "must be a whole number, 0 or more")
    return value


def _milliseconds(path: str, event: Mapping[str, JSON], name: str) -> float:
    value = event.get(name, 0)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 3_600_000:
        _bad(f"{path}.{name}", "must be milliseconds, from 0 to an hour")
    return value


def _choice(path: str, event: Mapping[str, JSON], name: str, choices: tuple[JSON, ...], default: str) -> JSON:
    value = event.get(name, default)
    if value not in choices:
        _bad(f"{path}.{name}", f"must be one of {', '.join(choices)}")
    return value


@dataclass(frozen=True, kw_only=True)
class FakeTool:
    """A tool that a scripted thread declares in `arguments.tools`."""

    name: str
    returns: JSON = None
    raises: str | None = None  # the text of the exception; None: it returns
    takes_ms: float = 0.0
    requires_approval: bool = False
    asks: Mapping[str, JSON] | None = None  # `question`, `options`, `expires_in` to ask; the answer is the result
    logs: tuple[JSON, ...] = ()  # entries for `state.log`, as they are: logging never refuses
    on_retry: RetryRule = "surface"
    parameters: Mapping[str, JSON] = field(default_factory=lambda: {"type": "object"})  # JSON Schema


def fake_tools(arguments: Mapping[str, JSON]) -> tuple[FakeTool, ...]:
    """The tools declared in a thread's arguments, in their order. Unknown fields are ignored.

    Raises BadDeclaration (a ValueError) whose text begins with the path of the fault, as `tools.add.takes_ms: ...`.
    """
    declared = arguments.get("tools")
    if declared is None:
        return ()
    if not isinstance(declared, Mapping):
        _bad("tools", "must be an object of tool names")
    return tuple(_fake_tool(f"tools.{name}", str(name), value) for name, value in declared.items())


def _fake_tool(path: str, name: str, declared: JSON) -> FakeTool:
    if not isinstance(declared, Mapping):
        _bad(path, "a tool is an object")
    given = {key: value for key, value in declared.items() if value is not None}
    raises = given.get("raises")
    return FakeTool(
        name=name,
        returns=given.get("returns"),
        raises=_raised_text(path, raises),
        takes_ms=_milliseconds(path, given, "takes_ms"),
        requires_approval=_flag(path, given, "requires_approval"),
        asks=_question(path, given.get("asks")),
        logs=_entries(path, given.get("logs", ())),
        on_retry=_choice(path, given, "on_retry", get_args(RetryRule), "surface"),
        parameters=_schema(path, given.get("parameters", {"type": "object"})),
    )


def _raised_text(path: str, value: JSON) -> str | None:
    """`true` raises without a text of its own, `false` does not raise."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, bool):
        _bad(f"{path}.raises", "must be the text of the error")
    return "the tool failed" if value else None


def _flag(path: str, given: Mapping[str, JSON], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        _bad(f"{path}.{name}", "must be true or false")
    return value


def _question(path: str, value: JSON) -> Mapping[str, JSON] | None:
    if value is None:
        return None
    asks = {"question": value} if isinstance(value, str) else value
    if not isinstance(asks, Mapping) or not isinstance(asks.get("question"), str):
        _bad(f"{path}.asks", "must be a question, or an object with `question`")
    options, seconds = asks.get("options", ()), asks.get("expires_in")
    if not isinstance(options, list | tuple):
        _bad(f"{path}.asks.options", "must be a list")
    if seconds is not None and (not isinstance(seconds, int | float) or isinstance(seconds, bool) or seconds <= 0):
        _bad(f"{path}.asks.expires_in", "must be seconds above 0")
    return {"question": asks["question"], "options": options, "expires_in": seconds}


def _entries(path: str, value: JSON) -> tuple[JSON, ...]:
    if not isinstance(value, list | tuple):
        _bad(f"{path}.logs", "must be a list of entries")
    return tuple(value)


def _schema(path: str, value: JSON) -> Mapping[str, JSON]:
    if not isinstance(value, Mapping):
        _bad(f"{path}.parameters", "must be a JSON Schema object")
    return {"type": "object", **value}
