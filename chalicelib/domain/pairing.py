"""Calls and their results (invariant I6): what a provider is sent has exactly one result directly after each tool call.

It works on message bodies (spec section 3) in the order of the conversation and knows no provider and no store; which
messages belong to the context (superseded, deleted ones) is the caller's business. It guarantees the pairing whatever
was crashed, cancelled, cut off by a window or told twice, and leaves what is right as it is.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chalicelib.domain.model import Outcome, Role
from chalicelib.domain.values import size

Body = Mapping[str, Any]

UNFINISHED = "The call was not finished."


def repair(messages: Sequence[Body]) -> tuple[Body, ...]:
    """The same conversation, well paired: a second repair changes nothing, and neither does the first of a paired one.

    Each assistant message with calls is followed by one role=tool message with one result per call, in the order of the
    calls: the first result told after the call, wherever it stood, else an `aborted` stand-in. Results without a call,
    second results and second calls of an id go, and so do blank text parts and messages without content.
    """
    told = _results(messages)
    called: set[str] = set()
    repaired: list[Body] = []
    for place, message in enumerate(messages):
        if _is(message, Role.TOOL):
            continue
        kept = _cleaned(message, called)
        if kept is None:
            continue
        repaired.append(kept)
        calls = _call_ids(kept)
        called.update(calls)
        if calls:
            repaired.append(_answer(kept, calls, place, told))
    return tuple(repaired)


def window(messages: Sequence[Body], max_messages: int, max_bytes: int) -> tuple[Body, ...]:
    """The newest messages that fit, from a user's message on if there is one among them; never results without calls.

    A turn longer than the window keeps the user's message that it answers, if that fits, and its newest messages. The
    newest message is always kept, with its calls if it holds results, even if it is larger than the window. What is
    well paired stays so, and what is not can be repaired before or after.
    """
    sizes = [size(message) for message in messages]
    first = _first_fitting(sizes, max_messages, max_bytes)
    asked = next((n for n in range(first, len(messages)) if _is(messages[n], Role.USER)), None)
    if asked is not None:
        return tuple(messages[asked:])
    asked = next((n for n in range(first - 1, -1, -1) if _is(messages[n], Role.USER)), None)
    if asked is not None:
        rest = asked + 1
        near = rest + _first_fitting(sizes[rest:], max(max_messages - 1, 1), max_bytes - sizes[asked])
        near = max(rest, _behind_results(messages, near))
        if len(messages) - near < max_messages and sizes[asked] + sum(sizes[near:]) <= max_bytes:
            return (messages[asked], *messages[near:])
    return tuple(messages[_behind_results(messages, first) :])


def _behind_results(messages: Sequence[Body], first: int) -> int:
    """Where to begin so that no results stand first: behind them, or with their calls if nothing follows."""
    if first == len(messages):
        return first
    behind = (n for n in range(first, len(messages)) if not _is(messages[n], Role.TOOL))
    return next(behind, max(first - 1, 0))


#: call id -> (place of its message, message, part) of each result, in order.
_Told = Mapping[str, Sequence[tuple[int, Body, Body]]]


def _results(messages: Sequence[Body]) -> _Told:
    told: dict[str, list[tuple[int, Body, Body]]] = {}
    for place, message in enumerate(messages):
        for part in _parts(message, "tool_result"):
            told.setdefault(part["call_id"], []).append((place, message, part))
    return told


def _cleaned(message: Body, called: set[str]) -> Body | None:
    """The message with the parts that may stay, itself if that is all of them, None if it is none."""
    seen = set(called)
    kept = [part for part in message["content"] if _stays(part, message, seen)]
    if len(kept) == len(message["content"]):
        return message if kept else None
    return {**message, "content": kept} if kept else None


def _stays(part: Body, message: Body, seen: set[str]) -> bool:
    if part["type"] == "text":
        return bool(part["text"].strip())  # providers refuse blank text as they refuse empty text
    if part["type"] == "tool_call":
        fresh = message["role"] == Role.ASSISTANT and part["call_id"] not in seen
        seen.add(part["call_id"])
        return fresh
    return bool(part["type"] != "tool_result")


def _answer(asked: Body, calls: Sequence[str], place: int, told: _Told) -> Body:
    """The one role=tool message behind the calls: the stored one if it says just this, else one made for them."""
    found = [next((one for one in told.get(call, ()) if one[0] > place), None) for call in calls]
    parts = [one[2] if one else _stand_in(call) for call, one in zip(calls, found, strict=True)]
    base = next((one[1] for one in found if one and one[1]["role"] == Role.TOOL), None)
    if base is None:
        return _made(asked, parts)
    return base if list(base["content"]) == parts else {**base, "content": parts}


def _stand_in(call_id: str) -> Body:
    return {"type": "tool_result", "call_id": call_id, "outcome": Outcome.ABORTED.value, "content": UNFINISHED}


def _made(asked: Body, parts: Sequence[Body]) -> Body:
    """A role=tool message that was never stored, with the id that this model step's results have (domain.ids)."""
    common = {name: asked[name] for name in ("thread_id", "run_id", "silent", "created_at") if name in asked}
    results_id = re.sub(r"s?([0-9]+)\Z", r"t\1", asked.get("id", ""))
    return {"id": results_id, **common, "role": Role.TOOL.value, "content": parts, "metadata": {}}


def _call_ids(message: Body) -> list[str]:
    return [part["call_id"] for part in _parts(message, "tool_call")]


def _parts(message: Body, kind: str) -> Iterator[Body]:
    return (part for part in message["content"] if part["type"] == kind)


def _is(message: Body, role: Role) -> bool:
    return bool(message["role"] == role)


def _first_fitting(sizes: Sequence[int], max_messages: int, max_bytes: int) -> int:
    """Where the longest end of a list begins that fits; the last one always does."""
    first, used = len(sizes), 0
    while first and (used + sizes[first - 1] <= max_bytes or not used) and len(sizes) - first < max_messages:
        first -= 1
        used += sizes[first]
    return first
