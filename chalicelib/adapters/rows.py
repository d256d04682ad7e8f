"""Records of a thread as rows and back, one table of columns for each kind.

Attribute names are part of the stored format: a name once used never gets another meaning. Names of the head are short,
because the head is written by every transaction and stays below 1 KB (I11).
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from chalicelib.adapters import keys
from chalicelib.adapters.codec import (
    SCHEMA_VERSION,
    Column,
    Item,
    Value,
    binary,
    choice,
    decode,
    encode,
    flag,
    number,
    packed,
    text,
)
from chalicelib.domain.entries import LogRow
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import (
    About,
    Call,
    Child,
    ChildKind,
    Command,
    CommandState,
    Effect,
    EffectState,
    File,
    Head,
    Inquiry,
    InquiryKind,
    Message,
    ModelSpent,
    Outcome,
    Report,
    Reporting,
    ReportKind,
    Role,
    RunStatus,
    State,
    Tokens,
    Verdict,
)
from chalicelib.domain.model import Value as DurableValue
from chalicelib.domain.queueing import WAKE_GRACE
from chalicelib.ports import Remembered

VERSION: dict[str, Value] = {"v": {"N": str(SCHEMA_VERSION)}}
APP_COST = "pico"  # of the row `spent`
_LINE = ("model", "requests", "input", "output", "cache_read", "cost_micro_usd", "unpriced")
SECOND = 1_000_000  # microseconds; TTL attributes are whole seconds


def _tokens(field: str, name: str) -> Column:
    def plain(tokens: Tokens) -> list[int | None]:
        return [tokens.input, tokens.output, tokens.cache_read, tokens.cost_micro_usd]

    def shape(row: list[Any]) -> Tokens:
        return Tokens(input=row[0], output=row[1], cache_read=row[2], cost_micro_usd=row[3])

    return packed(field, name, Tokens(), shape, plain)


def _ranges(pairs: list[list[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((first, last) for first, last in pairs)


def _lines(balance: tuple[ModelSpent, ...]) -> list[list[Any]]:
    return [[getattr(line, name) for name in _LINE] for line in balance]


def _balance(lines: list[list[Any]]) -> tuple[ModelSpent, ...]:
    return tuple(ModelSpent(**dict(zip(_LINE, line, strict=True))) for line in lines)


def _child(row: dict[str, Any]) -> Child:
    return Child(**{**row, "kind": ChildKind(row["kind"]), "reporting": Reporting(row["reporting"])})


def _parts(value: Any) -> Any:
    return None if value is None else tuple(value)


HEAD = (
    number("rev", "rev", ...),
    text("agent", "ag"),
    number("created_at", "cr", ...),
    number("active_at", "aa", ...),
    choice("state", "st", State, State.IDLE),
    number("since", "si", ...),
    text("reason", "re", None),
    number("seq", "seq"),
    binary("chain", "ch"),
    number("commands", "nc"),
    number("messages", "nm"),
    number("last_run", "lr"),
    number("model_calls", "mc"),
    number("balance_at", "ba"),
    number("queued", "qu"),
    number("first_queued", "fq"),
    number("pending", "pe"),
    number("first_pending", "fp"),
    number("free_pending", "fe"),
    number("free_from", "ff", 1),
    number("run", "run"),
    number("run_attempt", "att"),
    number("run_started_at", "rs"),
    number("run_steps", "rt"),
    number("run_first", "rf"),
    number("run_calls", "rc"),
    _tokens("run_usage", "ru"),
    packed("run_spent", "rm", (), _balance, _lines),
    number("open_message", "om"),
    number("open_calls", "oc"),
    text("played_by", "pb", ""),
    number("played_from", "pf"),
    text("side", "sd", ""),
    text("hears", "hr", ""),
    number("run_turns", "rn_t"),
    number("side_steps", "ss"),
    number("parked", "pk_run"),
    text("waiting", "wt", None),
    number("stalls", "sl"),
    number("cancel", "ca"),
    number("cancel_at", "ct"),
    number("lease_until", "lu"),
    text("lease_nonce", "ln", ""),
    text("write", "wr", ""),
    text("parent", "pa", ""),
    text("reference", "rn", ""),
    number("depth", "dp"),
    number("children", "nk"),
    flag("closing", "cg"),
    number("epoch", "ep"),
    number("wake", "wk"),
    number("due_at", "due_at"),
    number("terminated_at", "te"),
    number("deleted_at", "de"),
    number("total_cost", "tc"),
)

ABOUT = (
    text("title", "title", None),
    packed("tags", "tags", (), tuple),
    packed("arguments", "arguments"),
    text("user", "user", None),
    packed("parent", "parent", None),
)

COMMAND = (
    number("number", "number", ...),
    text("kind", "kind", "run.create"),
    choice("state", "state", CommandState, CommandState.QUEUED),
    text("delivery", "delivery", "join"),
    number("created_at", "created_at", ...),
    text("nonce", "nonce"),
    text("key", "key", None),
    packed("content", "content", None, _parts),
    packed("metadata", "metadata", None),
    number("place", "place"),
    number("run", "run"),
    packed("joins", "joins", (), _ranges),
    choice("status", "status", RunStatus, RunStatus.QUEUED),
    text("reason", "reason", None),
    text("agent", "agent", ""),
    text("model", "model", None),
    flag("model_asked", "model_asked"),
    text("version", "version", None),
    number("parent", "parent"),
    number("attempts", "attempts"),
    number("steps", "steps"),
    _tokens("usage", "usage"),
    packed("balance", "balance", (), _balance, _lines),
    number("started_at", "started_at"),
    number("ended_at", "ended_at"),
    number("first", "first"),
    number("last", "last"),
    packed("error", "error", None),
    text("label", "label", None),
    number("cancelled_by", "cancelled_by"),
    packed("session", "session", None, _child, asdict),
    packed("parked", "parked", None),
)

MESSAGE = (
    number("place", "place", ...),
    text("id", "id"),
    number("run", "run", ...),
    choice("role", "role", Role),
    packed("content", "content", ..., tuple),
    packed("metadata", "metadata"),
    number("created_at", "created_at", ...),
    number("updated_at", "updated_at"),
    flag("silent", "silent"),
    flag("incomplete", "incomplete"),
    flag("superseded", "superseded"),
    flag("deleted", "deleted"),
    text("side", "side", ""),
    packed("child", "child", None),
)

CALL = (
    text("id", "id"),
    number("run", "run", ...),
    number("step", "step", ...),
    text("name", "name"),
    packed("arguments", "arguments"),
    number("started_at", "started_at"),
    number("ended_at", "ended_at"),
    choice("outcome", "outcome", Outcome, None),
    packed("result", "result", None),
    number("logged", "logged"),
    packed("said", "said", (), tuple),
    text("waits", "waits", ""),
    flag("ready", "ready"),
    packed("answers", "answers", (), tuple, list),
)

INQUIRY = (
    text("id", "id"),
    choice("kind", "kind", InquiryKind),
    number("run", "run", ...),
    text("call_id", "call_id"),
    text("tool", "tool"),
    packed("question", "question", None),
    packed("options", "options", (), tuple, list),
    packed("arguments", "arguments", None),
    text("arguments_sha256", "arguments_sha256", ""),
    number("created_at", "created_at", ...),
    number("expires_at", "lapses_at"),  # `expires_at` is the table's TTL: the row stays
    choice("verdict", "verdict", Verdict, None),
    packed("answer", "answer", None),
    text("by", "by", None),
    text("reason", "reason", None),
    number("decided_at", "decided_at"),
)

CHILD = (
    text("reference", "reference"),
    choice("kind", "kind", ChildKind),
    text("token", "token", ""),
    number("run", "run"),
    text("call_id", "call_id"),
    text("agent", "agent", ""),
    text("name", "name"),
    text("title", "title", None),
    text("status", "status"),
    text("label", "label", None),
    choice("reporting", "reporting", Reporting, Reporting.IMPLICIT),
    flag("blocking", "blocking"),
    flag("resumable", "resumable"),
    text("side", "side", ""),
    text("key", "key", ""),
    packed("result", "result", None),
    flag("muted", "muted"),
    number("created_at", "created_at", ...),
)

REPORT = (
    text("key", "key"),
    text("reference", "reference"),
    choice("kind", "kind", ReportKind, ReportKind.OUTCOME),
    text("outcome", "outcome", ""),
    packed("result", "result", None),
    number("at", "at", ...),
)

FILE = (
    text("path", "path"),
    number("bytes", "bytes"),
    text("sha256", "sha256", ""),
    text("content_type", "content_type", ""),
    number("created_at", "created_at", ...),
    number("updated_at", "updated_at", ...),
)

LOG = (
    text("kind", "log"),
    number("at", "at", ...),
    number("run", "run"),
    text("message_id", "message_id", None),
    packed("body", "body"),
)
"""The attribute `log` is what the table's stream tells rows of the log by. The key of a row is its sort key."""

VALUE = (
    text("name", "name"),
    packed("value", "value"),
    number("updated_at", "updated_at", ...),
)

EFFECT = (
    text("id", "id"),
    text("name", "name"),
    packed("arguments", "arguments"),
    number("at", "at", ...),
    number("created_at", "created_at", ...),
    choice("state", "state", EffectState, EffectState.SCHEDULED),
    number("tries", "tries"),
    number("due_at", "due_at"),
    number("until", "until"),
    text("nonce", "nonce", ""),
    number("wakes", "wakes"),
    text("error", "error", None),
    number("expires_at", "gone_at"),
)

REMEMBERED = (
    text("key", "key"),
    text("fingerprint", "fingerprint"),
    text("token", "token"),
    number("command", "command"),
    text("nonce", "nonce"),
    number("expires_at", "until", ...),
)


def head_row(ref: ThreadRef, head: Head) -> dict[str, Value]:
    """The head's attributes, those of both indexes included."""
    row = VERSION | encode(HEAD, head)
    if not head.deleted_at and not head.parent:  # lists show roots
        row["act_pk"] = {"S": keys.activity_partition(ref.org)}
        row["act_sk"] = {"S": keys.activity(ref, head.active_at)}
    if head.due_at:
        row["due_pk"] = due_pk(ref)
    return row


def due_pk(ref: ThreadRef) -> Value:
    """The partition of `by_due` that a thread's head belongs to."""
    return {"S": keys.due_partition(keys.due_shard(ref))}


def head_of(item: Item) -> Head:
    """The head in an item."""
    return Head(**decode(HEAD, item))


def about_row(about: About) -> dict[str, Value]:
    """The attributes of what a thread is about."""
    return VERSION | encode(ABOUT, about)


def about_of(item: Item) -> About:
    """What a thread is about."""
    return About(**decode(ABOUT, item))


def command_row(command: Command) -> dict[str, Value]:
    """The attributes of a command and its run."""
    return VERSION | encode(COMMAND, command)


def command_of(item: Item) -> Command:
    """The command in an item."""
    return Command(**decode(COMMAND, item))


def message_row(message: Message) -> dict[str, Value]:
    """The attributes of a message."""
    return VERSION | encode(MESSAGE, message)


def message_of(item: Item) -> Message:
    """The message in an item."""
    return Message(**decode(MESSAGE, item))


def call_row(call: Call) -> dict[str, Value]:
    """The attributes of a tool call."""
    return VERSION | encode(CALL, call)


def call_of(item: Item) -> Call:
    """The call in an item."""
    return Call(**decode(CALL, item))


def child_row(child: Child) -> dict[str, Value]:
    """The attributes of a row of a registry."""
    return VERSION | encode(CHILD, child)


def child_of(item: Item) -> Child:
    """The row of a registry in an item."""
    return Child(**decode(CHILD, item))


def report_row(parent: ThreadRef, report: Report) -> dict[str, Value]:
    """The attributes of a report; it is due until it is heard, should the wake-up that follows it be lost."""
    row = VERSION | encode(REPORT, report)
    if report.kind is ReportKind.LABEL:
        return row
    return row | {"due_pk": due_pk(parent), "due_at": {"N": str(report.at + WAKE_GRACE)}}


def report_of(item: Item) -> Report:
    """The report in an item."""
    return Report(**decode(REPORT, item))


def inquiry_row(inquiry: Inquiry) -> dict[str, Value]:
    """The attributes of a question or an approval."""
    return VERSION | encode(INQUIRY, inquiry)


def inquiry_of(item: Item) -> Inquiry:
    """The question or approval in an item."""
    return Inquiry(**decode(INQUIRY, item))


def file_row(file: File) -> dict[str, Value]:
    """The attributes of a file."""
    return VERSION | encode(FILE, file)


def file_of(item: Item) -> File:
    """The file in an item."""
    return File(**decode(FILE, item))


def log_row(row: LogRow) -> dict[str, Value]:
    """The attributes of a row of a thread's log."""
    return VERSION | encode(LOG, row)


def log_of(item: Item) -> LogRow:
    """The row of the log in an item."""
    return LogRow(key=item["sk"]["S"], **decode(LOG, item))


def value_row(value: DurableValue) -> dict[str, Value]:
    """The attributes of a durable value."""
    return VERSION | encode(VALUE, value)


def value_of(item: Item) -> DurableValue:
    """The durable value in an item."""
    return DurableValue(**decode(VALUE, item))


def effect_row(ref: ThreadRef, effect: Effect) -> dict[str, Value]:
    """The attributes of an effect, those of the index and for the table's TTL included."""
    row = VERSION | encode(EFFECT, effect)
    if effect.due_at:
        row["due_pk"] = due_pk(ref)
    if effect.expires_at:
        row["expires_at"] = {"N": str(-(-effect.expires_at // SECOND))}
    return row


def effect_of(item: Item) -> Effect:
    """The effect in an item."""
    return Effect(**decode(EFFECT, item))


def app_cost_of(item: Item | None) -> int:
    """The sum of the costs that applications have logged, in 1e-12 USD."""
    return int(item[APP_COST]["N"]) if item and APP_COST in item else 0


def remembered_row(row: Remembered) -> dict[str, Value]:
    """The attributes of an idempotency row; `expires_at` is for the table's TTL, in seconds and never too early."""
    ttl: dict[str, Value] = {"expires_at": {"N": str(-(-row.expires_at // SECOND))}}
    return VERSION | ttl | encode(REMEMBERED, row)


def remembered_of(item: Item) -> Remembered:
    """The idempotency row in an item."""
    return Remembered(**decode(REMEMBERED, item))


def absent(columns: tuple[Column, ...], row: Mapping[str, Value]) -> list[str]:
    """Known attributes that a row does not have: what an update has to remove."""
    return [column.name for column in columns if column.name not in row]
