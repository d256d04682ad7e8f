"""A thread's messages as pydantic-ai's messages. Imported by `providers` only, since it loads pydantic-ai.

It guarantees what providers refuse to do without: no empty text, no empty tool result, a conversation that begins and
ends on the user's side, tool arguments that are objects, no calls where no tool is offered. Pairing calls with results
is the engine's work, done before.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as UserSide

from chalicelib.ports import JSON, ModelRequest

# Stand-ins for what must not be empty; words, because a model reads them.
NO_OUTPUT = "(no output)"
EMPTY_MESSAGE = "(empty message)"
BEGINNING = "(the conversation begins)"
CONTINUE = "(continue)"
# Binary content that the three providers take; other data is only mentioned.
_SHOWN_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"})


def history(request: ModelRequest) -> list[ModelMessage]:
    """The messages to send: neighbours of one side joined, the system prompt first."""
    names: dict[str, str] = {}
    sent: list[ModelMessage] = []
    if request.system.strip():
        _add_user_side(sent, [SystemPromptPart(content=request.system)])
    for message in request.messages:
        if message.get("role") == "assistant":
            answer = list(_answer_parts(message, names))
            _add_answer(sent, answer if request.tools else list(map(_call_in_words, answer)))
        else:
            said = list(_user_side_parts(message, names))
            _add_user_side(sent, said if request.tools else list(map(_result_in_words, said)))
    if not sent or isinstance(sent[-1], ModelResponse) or _only_system(sent):
        _add_user_side(sent, [UserPromptPart(content=CONTINUE)])
    return sent


def _call_in_words(part: ModelResponsePart) -> ModelResponsePart:
    """A call of another agent, or of a tool that is gone, for a model that is offered no tool."""
    if not isinstance(part, ToolCallPart):
        return part
    return TextPart(content=f"[called {part.tool_name}: {json.dumps(part.args, ensure_ascii=False)}]")


def _result_in_words(part: ModelRequestPart) -> ModelRequestPart:
    if not isinstance(part, ToolReturnPart):
        return part
    return UserPromptPart(content=f"[{part.tool_name} answered: {part.content}]")


def _only_system(sent: Sequence[ModelMessage]) -> bool:
    return len(sent) == 1 and all(isinstance(part, SystemPromptPart) for part in sent[0].parts)


def _add_user_side(sent: list[ModelMessage], parts: Sequence[ModelRequestPart]) -> None:
    if not parts:
        return
    if sent and isinstance(sent[-1], UserSide):
        sent[-1] = UserSide(parts=[*sent[-1].parts, *parts])
    else:
        sent.append(UserSide(parts=list(parts)))


def _add_answer(sent: list[ModelMessage], parts: Sequence[ModelResponsePart]) -> None:
    """An answer without any content is left out: providers refuse it."""
    if not parts:
        return
    if not sent or _only_system(sent):
        _add_user_side(sent, [UserPromptPart(content=BEGINNING)])
    if isinstance(sent[-1], ModelResponse):
        sent[-1] = ModelResponse(parts=[*sent[-1].parts, *parts])
    else:
        sent.append(ModelResponse(parts=list(parts)))


def _parts(message: Mapping[str, JSON]) -> Iterable[Mapping[str, JSON]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content or () if isinstance(part, Mapping)]


def _answer_parts(message: Mapping[str, JSON], names: dict[str, str]) -> Iterator[ModelResponsePart]:
    for part in _parts(message):
        if part.get("type") == "tool_call":
            call_id, name, arguments = str(part["call_id"]), str(part["name"]), part.get("arguments")
            names[call_id] = name
            known = dict(arguments) if isinstance(arguments, Mapping) else _not_an_object(arguments)
            yield ToolCallPart(tool_name=name, args=known, tool_call_id=call_id)
        elif text := _as_text(part):
            yield TextPart(content=text)


def _not_an_object(arguments: JSON) -> dict[str, JSON]:
    """Arguments that the model itself got wrong are shown to it under a name that says so; none at all are none."""
    return {} if arguments in (None, "") else {"invalid_arguments": arguments}


def _user_side_parts(message: Mapping[str, JSON], names: Mapping[str, str]) -> Iterator[ModelRequestPart]:
    results = [part for part in _parts(message) if part.get("type") == "tool_result"]
    for part in results:
        yield _result_part(part, names)
    others = [part for part in _parts(message) if part.get("type") != "tool_result"]
    if message.get("role") == "system":
        for text in filter(None, map(_as_text, others)):
            yield SystemPromptPart(content=text)
    elif others or not results:
        contents = [content for part in others if (content := _as_content(part))]
        yield UserPromptPart(content=_simplest(contents))


def _simplest(contents: list[UserContent]) -> str | list[UserContent]:
    """One text is sent as a plain string: some OpenAI-compatible servers know nothing else."""
    if not contents:
        return EMPTY_MESSAGE
    return contents[0] if len(contents) == 1 and isinstance(contents[0], str) else contents


def _result_part(part: Mapping[str, JSON], names: Mapping[str, str]) -> ToolReturnPart:
    call_id, outcome, content = str(part["call_id"]), part.get("outcome", "ok"), part.get("content")
    text = content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)
    text = text if text.strip() else NO_OUTPUT
    name = names.get(call_id) or str(part.get("name") or "tool")
    if outcome == "ok":
        return ToolReturnPart(tool_name=name, content=text, tool_call_id=call_id)
    told = f"The call ended as {outcome}: {text}"
    return ToolReturnPart(tool_name=name, content=told, tool_call_id=call_id, outcome="failed")


def _as_content(part: Mapping[str, JSON]) -> UserContent | None:
    if part.get("type") == "data" and part.get("content_type") in _SHOWN_TYPES:
        data = _bytes(part)
        if data:
            return BinaryContent(data=data, media_type=str(part["content_type"]))
    return _as_text(part) or None


def _as_text(part: Mapping[str, JSON]) -> str:
    """The part in words: text as it is, files and data that cannot be shown as a mention. "" for nothing to say."""
    kind = part.get("type")
    if kind == "text":
        text = str(part.get("text") or "")
        return text if text.strip() else ""
    if kind == "file":
        return f"[attached file: {part.get('path')}]"
    if kind == "data":
        return _data_as_text(part)
    return ""


def _data_as_text(part: Mapping[str, JSON]) -> str:
    name, content_type = part.get("name") or "data", str(part.get("content_type") or "unknown type")
    if content_type.startswith("text/") and (data := _bytes(part)):
        return f"[attached data: {name}]\n{data.decode('utf-8', 'replace')}"
    return f"[attached data: {name}, {content_type}]"


def _bytes(part: Mapping[str, JSON]) -> bytes:
    try:
        return base64.b64decode(str(part.get("base64") or ""), validate=True)
    except (ValueError, binascii.Error):
        return b""
