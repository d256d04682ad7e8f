"""One model answer as it comes: chunks in, safe parts and facts out. Pure; the turn decides when to flush.

The answer's text is safe as soon as it is here (no half characters, no NUL), so that a delta never cuts a character and
the deltas joined are the beginning of the stored text.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain import values
from chalicelib.domain.events import Fact
from chalicelib.domain.limits import CONTENT_BYTES
from chalicelib.domain.model import Tokens
from chalicelib.ports import CallArgs, CallStart, Chunk, Reasoning, Stop, Text, Usage

#: Calls of one answer that are kept; each needs a row in the transaction that stores the answer.
MAX_CALLS = 60


@dataclass(kw_only=True)
class AskedCall:
    """A tool call as the model spelled it."""

    ref: str
    call_id: str | None
    name: str
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The JSON text of its arguments."""
        return "".join(self.pieces)


@dataclass(kw_only=True)
class Speech:
    """State of an answer: what was said so far, and how much of it has not been told yet."""

    message_id: str
    run: int
    attempt: int
    parts: list[str | AskedCall] = field(default_factory=list)
    usage: Tokens = field(default_factory=Tokens)
    stop: Stop | None = None
    begun: bool = False
    reasoning: list[str] = field(default_factory=list)
    content_bytes: int = 0
    too_long: bool = False
    """True once the answer has more than a message's content may hold. It is cut there; what follows is not kept."""
    untold: list[str] = field(default_factory=list)
    untold_bytes: int = 0
    untold_reasoning: list[str] = field(default_factory=list)
    reasoning_open: bool = False
    facts: list[Fact] = field(default_factory=list)
    _join: values.TextJoin = field(default_factory=values.TextJoin)
    _reasoning_join: values.TextJoin = field(default_factory=values.TextJoin)

    def take(self, chunk: Chunk, now: int) -> None:
        """Add a chunk."""
        if not isinstance(chunk, Usage | Stop):
            self._begin(now)
        match chunk:
            case Text(text=piece):
                self._close_reasoning(now)
                self._say(self._join.feed(piece))
            case Reasoning(text=piece):
                self._think(self._reasoning_join.feed(piece))
            case CallStart(ref=ref, call_id=call_id, name=name):
                self._close_text(now)
                self.parts.append(AskedCall(ref=ref, call_id=call_id, name=values.safe_text(name)))
            case CallArgs(ref=ref, part=part):
                self._spell(self._call(ref), part)
            case Usage():
                self._count(chunk)
            case Stop():
                self._close_text(now)
                self.stop = chunk

    @property
    def calls(self) -> list[AskedCall]:
        """The calls in the order in which they were begun, at most MAX_CALLS."""
        return [part for part in self.parts if isinstance(part, AskedCall)][:MAX_CALLS]

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(part for part in self.parts if isinstance(part, str))

    def content(self, calls: dict[str, dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        """The parts of the stored message; `calls` gives the tool_call part of each call's ref."""
        parts: list[dict[str, Any]] = []
        for part in self.parts:
            if isinstance(part, AskedCall):
                if part.ref in calls:
                    parts.append(calls[part.ref])
            elif part:
                parts.append({"type": "text", "text": part})
        return tuple(parts)

    def tell(self, now: int) -> None:
        """Turn what was not told yet into delta facts."""
        if self.untold_reasoning:
            self._fact("reasoning.delta", {"text": "".join(self.untold_reasoning)}, now)
            self.untold_reasoning.clear()
        if self.untold:
            self._fact("message.delta", {"text": "".join(self.untold)}, now)
            self.untold.clear()
        self.untold_bytes = 0

    def finish(self, now: int) -> None:
        """The answer is over, for whatever reason: no half character stays behind."""
        if self.begun:
            self._close_text(now)
            self._close_reasoning(now)

    def _begin(self, now: int) -> None:
        if not self.begun:
            self.begun = True
            self._fact("message.started", {"role": "assistant"}, now)

    def _say(self, text: str) -> None:
        text = self._kept(text)
        if not text:
            return
        if self.parts and isinstance(self.parts[-1], str):
            self.parts[-1] += text
        else:
            self.parts.append(text)
        self.untold_bytes += len(text.encode())
        self.untold.append(text)

    def _kept(self, text: str) -> str:
        """As much of the text as the content still has room for, counted as the JSON that is stored."""
        room = 0 if self.too_long else CONTENT_BYTES - self.content_bytes
        if _json_bytes(text) > room:
            self.too_long = True
            text = text[: bisect_right(range(len(text)), room, key=lambda end: _json_bytes(text[: end + 1]))]
        self.content_bytes += _json_bytes(text)
        return text

    def _spell(self, call: AskedCall, part: str) -> None:
        size = len(part.encode("utf-8", "surrogatepass"))
        self.too_long = self.too_long or self.content_bytes + size > CONTENT_BYTES
        if not self.too_long:
            self.content_bytes += size
            call.pieces.append(part)

    def _think(self, text: str) -> None:
        if text:
            self.reasoning_open = True
            self.reasoning.append(text)
            self.untold_reasoning.append(text)
            self.untold_bytes += len(text.encode())

    def _close_text(self, now: int) -> None:
        self._say(self._join.end())
        self._join = values.TextJoin()
        self._close_reasoning(now)

    def _close_reasoning(self, now: int) -> None:
        self._think(self._reasoning_join.end())
        self._reasoning_join = values.TextJoin()
        if self.reasoning_open:
            self._fact("reasoning.completed", {"text": "".join(self.reasoning)}, now)
            self.reasoning.clear()
            self.untold_reasoning.clear()
            self.reasoning_open = False

    def _call(self, ref: str) -> AskedCall:
        for part in reversed(self.parts):
            if isinstance(part, AskedCall) and part.ref == ref:
                return part
        self.parts.append(AskedCall(ref=ref, call_id=None, name=""))
        return self._call(ref)

    def _count(self, reading: Usage) -> None:
        new = Tokens(input=reading.input_tokens, output=reading.output_tokens, cache_read=reading.cache_read_tokens)
        self.usage = new if reading.mode == "total" else self.usage.plus(new)

    def _fact(self, kind: str, data: dict[str, Any], now: int) -> None:
        body = {"message_id": self.message_id, **data}
        self.facts.append(Fact(type=kind, data=body, at=now, run=self.run, attempt=self.attempt))


def _json_bytes(text: str) -> int:
    return values.size(text) - 2
