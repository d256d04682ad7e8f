"""Rows of a thread's log: what an entry of an application becomes, and how model and tool calls are told beside it.

Pure: values in, rows out. It must not know where rows are kept or who reads them. It guarantees that no entry is
refused for its content, whatever it holds: a field of the wrong type is dropped, a value without a JSON form becomes a
marker object (`domain.values`), a field that is too long is cut between characters and says so. What a row says is
bounded (I11), and a second pass over the same entry gives the same row.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from math import isfinite
from typing import Any

from chalicelib.domain import values
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import (
    FRAME_BYTES,
    JSON_DEPTH,
    KB,
    LOG_DATA_BYTES,
    LOG_NAME_CHARACTERS,
    LOG_TEXT_BYTES,
    LOG_VALUE_BYTES,
)

LEVELS = ("debug", "info", "warn", "error")
STATUSES = ("success", "error", "skipped")
KINDS = ("app", "llm", "tool", "handler")
UNNAMED = "unnamed"
#: Prefix of a row's id; behind it the thread's token and the row's key.
PREFIX = "log"
#: Application costs are summed as whole 1e-12 USD: a float's own digits would drift, and micro-USD are too coarse.
PICO = 10**12
#: An entry cannot have cost more USD than that: the sum has to fit a number of the table (38 digits).
MOST_USD = 10**12
#: JSON of what a model or tool call was given and gave, as far as its row shows it; the whole is in the conversation.
GLANCE_BYTES = 256

_FIELDS = (
    "name",
    "message",
    "level",
    "status",
    "trigger",
    "request",
    "response",
    "error",
    "duration_ms",
    "cost",
    "data",
)
_INSTANT_DIGITS = 17


@dataclass(frozen=True, kw_only=True)
class LogRow:
    """A row of a thread's log. `key` orders the rows of a thread and names this one; `body` is what it says."""

    key: str
    kind: str
    at: int
    run: int = 0
    message_id: str | None = None
    body: Mapping[str, Any]

    @property
    def app_cost(self) -> int:
        """What the application says that it cost, in 1e-12 USD; 0 for a row of the runtime."""
        return pico(self.body.get("app_cost")) if self.kind == "app" else 0


def key(at: int, name: str) -> str:
    """The key of a row: rows are in the order of their instants, `name` tells those of one instant apart."""
    return f"{max(at, 0):0{_INSTANT_DIGITS}d}-{name}"


def instant(row_key: str) -> int:
    """The instant in a key."""
    return int(row_key[:_INSTANT_DIGITS])


def row_body(ref: ThreadRef, row: LogRow) -> dict[str, Any]:
    """A row as clients see it, over HTTP and in frames."""
    return {
        "id": f"{PREFIX}_{ref.token}_{row.key}",
        "thread_id": ref.id,
        **({"run_id": ref.run(row.run)} if row.run else {}),
        **({"message_id": row.message_id} if row.message_id else {}),
        "kind": row.kind,
        **row.body,
        "created_at": row.at,
    }


# -- entries of applications


def usable_name(entry: Any) -> bool:
    """True if an entry has a name; at the front door one without is refused."""
    return _name(_read(entry, "name")) is not None


def app_body(entry: Any) -> dict[str, Any]:
    """What an entry says as a row, in the names of the `app` rows. Never raises; without a name it is `unnamed`."""
    given = {name: _read(entry, name) for name in _FIELDS}
    status = _one_of(given["status"], STATUSES)
    return {
        "model": _name(given["name"]) or UNNAMED,
        "cost_total": None,
        "app_level": _one_of(given["level"], LEVELS) or ("error" if status == "error" else "info"),
        "app_message": _text(given["message"]),
        "app_status": status,
        "app_error": _text(given["error"]),
        "app_duration_ms": _amount(given["duration_ms"]),
        "app_cost": _cost(given["cost"]),
        "app_request": _payload(given["request"]),
        "app_response": _payload(given["response"]),
        "app_trigger": _trigger(given["trigger"]),
        "app_data": None if given["data"] is None else json_text(given["data"], LOG_DATA_BYTES),
    }


def pico(cost: Any) -> int:
    """A cost in USD as whole 1e-12 USD, by the digits that the number is written with."""
    if cost is None:
        return 0
    return int((Decimal(str(cost)) * PICO).to_integral_value(rounding=ROUND_HALF_EVEN))


def json_text(value: Any, most_bytes: int) -> str:
    """JSON text of a safe value, at most `most_bytes`. A text that is too long is cut inside its quotes; anything else
    becomes `{"truncated": <the beginning of its JSON>, "bytes": <its size>}`: still JSON, and it says what it is.
    """
    text = values.dumps(value)
    size = len(text.encode())
    if size <= most_bytes:
        return text
    if isinstance(value, str):
        return values.dumps(values.cut_value(value, most_bytes)[0])
    around = values.size({"truncated": "", "bytes": size}) - 2
    beginning, _ = values.cut_value(text, most_bytes - around)
    return values.dumps({"truncated": beginning, "bytes": size})


def _read(entry: Any, name: str) -> Any:
    """A field of an entry as a safe value; None if there is none, or if the entry does not let itself be read."""
    try:
        return values.safe(entry.get(name), max_depth=JSON_DEPTH) if isinstance(entry, Mapping) else None
    except Exception:  # noqa: BLE001 - foreign code: logging never raises
        return None


def _name(value: Any) -> str | None:
    return _cut_characters(value, LOG_NAME_CHARACTERS) if isinstance(value, str) and value.strip() else None


def _cut_characters(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return text[: most - len(values.CUT_MARKER)].rstrip("\N{ZERO WIDTH JOINER}") + values.CUT_MARKER


def _one_of(value: Any, words: Iterable[str]) -> str | None:
    return value if isinstance(value, str) and value in words else None


def _text(value: Any) -> str | None:
    return values.cut_text(value, LOG_TEXT_BYTES) if isinstance(value, str) else None


def _amount(value: Any) -> int | float | None:
    """A finite number that is not negative; a bool is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return value if isfinite(value) and value >= 0 else None
    except OverflowError:  # an integer that no float holds
        return None


def _cost(value: Any) -> int | float | None:
    amount = _amount(value)
    return amount if amount is not None and amount <= MOST_USD else None


def _payload(value: Any) -> str | None:
    """What was sent or came back: text stays text, anything else is JSON text."""
    if value is None:
        return None
    return values.cut_text(value, LOG_VALUE_BYTES) if isinstance(value, str) else json_text(value, LOG_VALUE_BYTES)


def _trigger(value: Any) -> str | None:
    """`{kind, id?, summary?}`; what is in it besides is dropped, and one without a kind is none."""
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if not isinstance(kind, str) or not kind.strip():
        return None
    told = {"kind": _cut_characters(kind, LOG_NAME_CHARACTERS)}
    if isinstance(value.get("id"), str):
        told["id"] = _cut_characters(value["id"], LOG_NAME_CHARACTERS)
    if isinstance(value.get("summary"), str):
        told["summary"] = values.cut_text(value["summary"], LOG_TEXT_BYTES)
    return values.dumps(told)


# -- rows of the runtime


def llm_body(
    *,
    model: str,
    usage: Mapping[str, Any],
    cost_usd: float | None,
    duration_ms: int | None,
    finish_reason: str | None,
    error: str | None,
    request: Any,
    response: Any,
) -> dict[str, Any]:
    """A model call. It succeeded if it has no `error`; request and response are a glance at what the messages hold."""
    return {
        "model": model,
        "cost_total": cost_usd,
        "status": "success" if error is None else "error",
        **usage,
        "duration_ms": duration_ms,
        "finish_reason": finish_reason,
        "error": None if error is None else values.cut_text(error, GLANCE_BYTES),
        "request": json_text(request, GLANCE_BYTES),
        "response": json_text(response, GLANCE_BYTES),
    }


def tool_body(
    *, name: str, call_id: str, outcome: str, duration_ms: int, arguments: Any, result: Any
) -> dict[str, Any]:
    """A tool call that ran. `model` holds the tool's name, as it holds the name of an entry of an application."""
    return {
        "model": name,
        "cost_total": None,
        "call_id": call_id,
        "outcome": outcome,
        "duration_ms": duration_ms,
        "arguments": json_text(arguments, GLANCE_BYTES),
        "result": json_text(result, GLANCE_BYTES),
    }


def handler_body(
    *, name: str, handler: str, error: str | None, duration_ms: int, request: Any, response: Any = None
) -> dict[str, Any]:
    """Code of an agent outside its tools: a `hook`, an `effect` or an `endpoint`. It succeeded if it has no `error`."""
    return {
        "model": name,
        "cost_total": None,
        "handler": handler,
        "status": "success" if error is None else "error",
        "duration_ms": duration_ms,
        "error": None if error is None else values.cut_text(error, LOG_TEXT_BYTES),
        "request": json_text(request, GLANCE_BYTES),
        "response": json_text(response, GLANCE_BYTES),
    }


# -- frames

_LARGE = ("app_request", "app_response", "app_data", "app_trigger", "app_message", "app_error")
#: What a frame needs around its row, and room for the other fields of one.
_AROUND = 2 * KB


def for_frame(body: Mapping[str, Any], most_bytes: int = FRAME_BYTES) -> dict[str, Any]:
    """The row as a frame can carry it: itself, or with its large fields cut and named in `truncated`.

    The largest fields give way first, so that a small message beside a large request stays whole.
    """
    if values.size(body) <= most_bytes - _AROUND:
        return dict(body)
    sizes = {name: values.size(body[name]) for name in _LARGE if body.get(name)}
    left = most_bytes - _AROUND - values.size({**body, **dict.fromkeys(sizes)})
    cut: dict[str, str] = {}
    for waiting, name in zip(range(len(sizes), 0, -1), sorted(sizes, key=lambda n: sizes[n]), strict=True):
        room = left // waiting
        if sizes[name] > room:
            cut[name], _ = values.cut_value(body[name], room)
        left -= min(sizes[name], room)
    return {**body, **cut, "truncated": sorted(cut)}
