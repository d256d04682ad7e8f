"""The `offline:*` models: no network, no key, the same answer to the same request.

They exist so that the first conversation works on any machine and shows what a real one shows: text that streams,
reasoning, tool calls with filled arguments, usage, cancel. They know the conversation and the tools offered, nothing
else. They ask for tools by the user's words, once: after a tool result the answer is prose. A plan (`offline_plan`)
makes them ask step by step, and answer when it is at its end. What a subagent reports is repeated, never obeyed.

`offline:echo` repeats what was said; any other name (`offline:demo`) explains what happens. Both ask for tools.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from chalicelib.engine.models.offline_plan import planned_calls
from chalicelib.engine.models.toolchoice import Wanted, wanted_calls
from chalicelib.ports import JSON, CallArgs, CallStart, Cancel, Chunk, ModelRequest, Reasoning, Stop, Text, Usage

# About the pace at which people read aloud fast; slow enough to see text arrive and to cancel in the middle.
PAUSE_SECONDS = 0.015
_QUOTE_LIMIT = 400  # characters of the user's words that an answer repeats
_COUNT_LIMIT = 5000  # the highest number that "count to ..." counts to
_COUNT = re.compile(r"\bcount (?:up )?to (\d{1,9})\b", re.IGNORECASE)


Results = Sequence[tuple[str, Mapping[str, JSON]]]
"""(tool, result part) of calls, in order."""


@dataclass(frozen=True, kw_only=True)
class Offline:
    """One offline model. Asking twice gives the same chunks."""

    name: str = "demo"
    pause_seconds: float = PAUSE_SECONDS

    def stream(self, request: ModelRequest, cancel: Cancel) -> Iterator[Chunk]:
        """Yield reasoning if asked for, then tool calls or prose, then usage in words and `Stop`. Never raises."""
        said = _said(request.messages)
        results = _results_since_user(request.messages)
        reports = _reports(request.messages)
        wanted = _wanted(request, said, results, reports)
        spoken = 0
        if _wants_reasoning(request, said):
            for word in _words(_thought(said, wanted, results)):
                yield Reasoning(text=word)
                spoken += 1
                if cancel.wait(self.pause_seconds):
                    return
        if wanted:
            yield from _ask(wanted)
            yield _usage(request, spoken + sum(len(call.arguments_text.split()) for call in wanted))
            yield Stop(reason="tool_calls")
            return
        words = _words(self._answer(request, said, results, reports))
        allowed = _allowed_words(request.options)
        for word in words[:allowed]:
            yield Text(text=word)
            spoken += 1
            if cancel.wait(self.pause_seconds):
                return
        yield _usage(request, spoken)
        yield Stop(reason="length" if allowed is not None and allowed < len(words) else "end")

    def _answer(self, request: ModelRequest, said: str, results: Results, reports: Sequence[str]) -> str:
        if reports:
            return " ".join(f"I was told: {_quoted(report)}" for report in reports)
        return _result_prose(results) if results else self._prose(request, said)

    def _prose(self, request: ModelRequest, said: str) -> str:
        if counted := _COUNT.search(said):
            return " ".join(str(number) for number in range(1, min(int(counted.group(1)), _COUNT_LIMIT) + 1))
        if self.name == "echo":
            return f"You said: {said or 'nothing yet'}"
        return _explanation(request, said)


def _wanted(request: ModelRequest, said: str, results: Results, reports: Sequence[str]) -> tuple[Wanted, ...]:
    planned = planned_calls(request, said, [part.get("content") for _, part in results], _steps_done(request.messages))
    if planned is not None:
        return planned
    return () if results or reports else wanted_calls(request, said)


def _explanation(request: ModelRequest, said: str) -> str:
    if not said:
        opening = "Hello. Nothing has been said in this thread yet."
    else:
        opening = f"You said “{_quoted(said)}”, which is {_plural(len(said.split()), 'word')}."
    turns = sum(message.get("role") == "user" for message in request.messages)
    lines = [
        opening,
        f"It is message {turns} from you in this thread, and all of them are kept." if turns > 1 else "",
        "I am the offline model of Turnlog: I need no network and no key, and I say the same to the same words, "
        "so that you can watch an answer stream, cancel it, drop the connection and come back to it.",
        _tool_hint(request),
        "Say “think” to see reasoning, or “count to 200” for an answer long enough to cancel.",
        "Set TURNLOG_MODEL to talk to a real model.",
    ]
    return " ".join(line for line in lines if line)


def _tool_hint(request: ModelRequest) -> str:
    if not request.tools or request.tool_choice == "none":
        return ""
    names = ", ".join(f"`{tool.name}`" for tool in request.tools[:10])
    return f"I can ask for {names}: name one of them and I will."


def _result_prose(results: Results) -> str:
    return " ".join(_one_result(name, result) for name, result in results)


def _one_result(name: str, result: Mapping[str, JSON]) -> str:
    outcome, content = result.get("outcome", "ok"), result.get("content")
    told = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    told = _quoted(told)
    if outcome != "ok":
        return f"I asked `{name}`, but the call ended as {outcome}: {told or 'no reason was given'}."
    if told in ("", "null"):
        return f"I asked `{name}`; it finished and returned nothing."
    return f"I asked `{name}` and it answered {told}."


def _thought(said: str, wanted: Sequence[Wanted], results: Results) -> str:
    opening = f"The user wrote {_plural(len(said.split()), 'word')}."
    if results:
        return f"{opening} {_plural(len(results), 'tool result')} came back, so I can answer in prose."
    if wanted:
        return f"{opening} This needs {' and '.join(f'`{call.name}`' for call in wanted)}, so I ask for it first."
    return f"{opening} No tool is needed, so I answer at once."


def _ask(wanted: Sequence[Wanted]) -> Iterator[Chunk]:
    """Each call in pieces, as providers send them: its start, then its arguments cut in two. The engine gives ids."""
    for number, call in enumerate(wanted):
        yield CallStart(ref=str(number), call_id=None, name=call.name)
        middle = len(call.arguments_text) // 2
        yield CallArgs(ref=str(number), part=call.arguments_text[:middle])
        yield CallArgs(ref=str(number), part=call.arguments_text[middle:])


def _usage(request: ModelRequest, spoken: int) -> Usage:
    read = len(request.system.split()) + sum(len(_everything(message).split()) for message in request.messages)
    return Usage(mode="total", input_tokens=read, output_tokens=spoken)


def _wants_reasoning(request: ModelRequest, said: str) -> bool:
    return bool(request.options.get("reasoning")) or re.search(r"\bthink\b", said, re.IGNORECASE) is not None


def _allowed_words(options: Mapping[str, JSON]) -> int | None:
    limit = options.get("max_tokens")
    return limit if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 else None


def _parts(message: Mapping[str, JSON]) -> list[Mapping[str, JSON]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content or () if isinstance(part, Mapping)]


def _text(message: Mapping[str, JSON]) -> str:
    return "\n".join(str(part["text"]) for part in _parts(message) if part.get("type") == "text" and part.get("text"))


def _everything(message: Mapping[str, JSON]) -> str:
    return "\n".join(
        str(part.get("text")) if part.get("type") == "text" else json.dumps(dict(part), ensure_ascii=False)
        for part in _parts(message)
    )


def _is_from_user(message: Mapping[str, JSON]) -> bool:
    """True for what a person says; reports of subagents come in the same role."""
    return message.get("role") == "user" and not message.get("subagent_id")


def _said(messages: Sequence[Mapping[str, JSON]]) -> str:
    """The text of the newest message of the user that has any."""
    texts = (_text(message).strip() for message in reversed(messages) if _is_from_user(message))
    return next((text for text in texts if text), "")


def _since_user(messages: Sequence[Mapping[str, JSON]]) -> Sequence[Mapping[str, JSON]]:
    """What came after the newest message of the user."""
    newest = max((place for place, message in enumerate(messages) if _is_from_user(message)), default=-1)
    return messages[newest + 1 :]


def _results_since_user(messages: Sequence[Mapping[str, JSON]]) -> Results:
    calls = [part for message in messages for part in _parts(message) if part.get("type") == "tool_call"]
    names = {str(part.get("call_id")): str(part.get("name")) for part in calls}
    parts = [part for message in _since_user(messages) for part in _parts(message)]
    results = [part for part in parts if part.get("type") == "tool_result"]
    return [(names.get(str(part.get("call_id")), "the tool"), part) for part in results]


def _steps_done(messages: Sequence[Mapping[str, JSON]]) -> int:
    """How many answers since the newest message of the user asked for tools."""
    asked = [any(part.get("type") == "tool_call" for part in _parts(message)) for message in _since_user(messages)]
    return sum(asked)


def _reports(messages: Sequence[Mapping[str, JSON]]) -> list[str]:
    """What subagents have reported since the newest answer, if no user has said anything after it."""
    newest = max((place for place, message in enumerate(messages) if message.get("role") == "assistant"), default=-1)
    news = [message for message in messages[newest + 1 :] if message.get("role") == "user"]
    return [] if any(map(_is_from_user, news)) else [_text(message) for message in news]


def _words(text: str) -> list[str]:
    """The text cut after each space, so that the pieces joined are the text."""
    return re.findall(r"\s*\S+\s*", text)


def _quoted(text: str) -> str:
    return text if len(text) <= _QUOTE_LIMIT else f"{text[:_QUOTE_LIMIT]}…"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
