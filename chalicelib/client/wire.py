"""What the server answers, as types: names and shapes of the public contract, without behaviour or I/O.

Bodies are TypedDicts: they cost nothing, and a field that this client does not name is kept. Events are frozen records,
since programs hold on to them. Instants are integers in microseconds since the epoch; money is a float in USD.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict

# Any value of JSON. `Any` because mypy has no useful recursive JSON type.
JSON = Any
# A string (one text part) or parts: {"type": "text", "text"}, {"type": "file", "path"}, {"type": "data", ...}.
Content = str | Sequence[Mapping[str, JSON]]
Delivery = Literal["join", "enqueue", "interrupt", "rollback", "reject"]

TERMINAL = frozenset({"run.completed", "run.failed", "run.cancelled"})


class Status(TypedDict):
    """Of a thread. `reason` is that of the last run that ended, None before the first."""

    state: Literal["idle", "running", "failed"]
    since: int
    reason: str | None


class Thread(TypedDict):
    """One conversation."""

    id: str
    agent: str
    played_by: NotRequired[str]
    title: NotRequired[str | None]
    tags: list[str]
    arguments: dict[str, JSON]
    status: Status
    queue: dict[str, int]
    created_at: int
    last_activity_at: int
    terminated_at: NotRequired[int | None]


class Message(TypedDict):
    """`content` is a list of parts: text, file, data, tool_call, tool_result."""

    id: str
    thread_id: str
    run_id: NotRequired[str | None]
    role: Literal["user", "assistant", "tool", "system"]
    content: list[dict[str, JSON]]
    silent: bool
    metadata: dict[str, JSON]
    created_at: int
    updated_at: NotRequired[int | None]
    incomplete: NotRequired[bool]
    superseded: NotRequired[bool]


class Command(TypedDict):
    """The durable record of what was asked. A message that joined has no run until one takes it."""

    id: str
    kind: Literal["run.create", "run.cancel"]
    state: Literal["queued", "joined", "started", "done", "withdrawn"]
    thread_id: str
    run_id: NotRequired[str | None]
    idempotency_key: NotRequired[str | None]
    created_at: int


class Usage(TypedDict):
    """Tokens, summed over the model steps of a run."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: NotRequired[int]


class Run(TypedDict):
    """One turn. `cost_usd` is None where the price of a model is not known."""

    id: str
    thread_id: str
    parent_run_id: NotRequired[str | None]
    command_id: str
    status: Literal["queued", "running", "waiting", "completed", "failed", "cancelled"]
    reason: NotRequired[str | None]
    agent: str
    model: NotRequired[str | None]
    attempts: int
    steps: int
    usage: Usage
    cost_usd: float | None
    created_at: int
    started_at: NotRequired[int | None]
    ended_at: NotRequired[int | None]
    error: NotRequired[dict[str, JSON] | None]


class RunRoot(TypedDict):
    """A root thread with its latest run."""

    thread: Thread
    run: Run | None


LogKind = Literal["app", "llm", "tool", "handler"]
LogLevel = Literal["debug", "info", "warn", "error"]


class LogRow(TypedDict, total=False):
    """A row of a thread's log. `model` is the model, the tool or the name of an application's entry; which other fields
    are there depends on `kind`.
    """

    id: str
    thread_id: str
    run_id: str
    message_id: str
    kind: LogKind
    model: str
    created_at: int
    cost_total: float | None
    # app
    app_level: LogLevel
    app_message: str | None
    app_status: Literal["success", "error", "skipped"] | None
    app_error: str | None
    app_duration_ms: float | None
    app_cost: float | None
    app_request: str | None
    app_response: str | None
    app_trigger: str | None
    app_data: str | None
    # llm
    status: Literal["success", "error"]
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    duration_ms: int | None
    finish_reason: str | None
    error: str | None
    request: str
    response: str
    # tool
    call_id: str
    outcome: str
    arguments: str
    result: str


class ModelCost(TypedDict):
    """What a thread has spent on one model; `cost_usd` is None and `unpriced` there if a price was not known."""

    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cost_usd: float | None
    unpriced: NotRequired[bool]


class ThreadCost(TypedDict):
    """The totals of one thread."""

    thread_id: str
    total_cost: float
    app_cost: float
    request_count: int


class Cost(TypedDict):
    """What a thread has cost; `app_cost` is in `total_cost`, model calls alone are in the rest."""

    total_cost: float
    app_cost: float
    request_count: int
    models: list[ModelCost]
    threads: list[ThreadCost]
    deleted_at: NotRequired[int]


class Inquiry(TypedDict):
    """A question or an approval (`kind`); `verdict` once it is resolved."""

    id: str
    kind: str
    thread_id: str
    run_id: str
    call_id: str
    tool: str
    question: NotRequired[JSON]
    options: NotRequired[list[JSON]]
    arguments: NotRequired[JSON]
    arguments_sha256: NotRequired[str]
    created_at: int
    expires_at: NotRequired[int]
    verdict: NotRequired[str]
    answer: NotRequired[JSON]
    by: NotRequired[str]
    reason: NotRequired[str]
    decided_at: NotRequired[int]


class Child(TypedDict):
    """A row of a thread's registry: a child thread (`thread_id`) or a child session (`run_id`)."""

    reference_id: str
    kind: str
    thread_id: NotRequired[str]
    run_id: NotRequired[str]
    agent: NotRequired[str]
    name: str
    title: NotRequired[str]
    status: str
    label: NotRequired[str]
    relationship: str
    blocking: bool
    created_at: int


class FileEntry(TypedDict):
    """A file of a thread, or a directory: that one has no bytes, and instants only if it was made as such."""

    path: str
    kind: Literal["file", "directory"]
    bytes: int | None
    sha256: str | None
    content_type: str | None
    created_at: int | None
    updated_at: int | None


class Step(TypedDict):
    """A row of a run's timeline."""

    n: int
    kind: Literal["command", "file", "task", "done"]
    label: str
    chip: NotRequired[str | None]
    code_json: NotRequired[JSON]
    at: int


class Accepted(TypedDict):
    """What a mutation answers. A silent message has neither command nor run, a pending join has no run yet."""

    thread: NotRequired[Thread]
    message: NotRequired[Message]
    command: NotRequired[Command | None]
    run: NotRequired[Run | None]


class Ticket(TypedDict):
    """Opens one websocket within 60 seconds."""

    ticket: str
    url: str
    expires_at: int


@dataclass(frozen=True, kw_only=True)
class Event:
    """One stored event, numbered from 1 within its thread. Types and fields that are not known here pass through."""

    delivery_seq: int
    type: str
    thread_id: str
    ts: int
    data: Mapping[str, JSON]
    run_id: str | None = None
    attempt: int | None = None
    event_id: str = ""
    # As it came, with the fields that have no name here.
    envelope: Mapping[str, JSON] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, row: Mapping[str, JSON]) -> "Event":
        """From an envelope; KeyError or TypeError if it is none."""
        return cls(
            delivery_seq=row["delivery_seq"],
            type=row["type"],
            thread_id=row["thread_id"],
            ts=row["ts"],
            data=row["data"],
            run_id=row.get("run_id"),
            attempt=row.get("attempt"),
            event_id=row.get("event_id", ""),
            envelope=row,
        )

    @property
    def ends_run(self) -> bool:
        """True for the one terminal event of a run."""
        return self.type in TERMINAL


@dataclass(frozen=True, kw_only=True)
class EventPage:
    """One page of a thread's log; `cursor` is the `after` of the next one."""

    items: tuple[Event, ...]
    cursor: int
    status: Status
