"""The records of a thread as they are stored: head, command and run, message, call. Pure data with the rules of their
numbers.

The head is the one row that every write of a thread goes through: whoever wants to append reads it, decides with pure
functions what it becomes, and writes "unless it has changed" (`rev`). Everything that another writer could do to a
thread therefore shows as a moved head, and no two writers can both be right.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from chalicelib.domain.relations import (
    RUNNING,
    Child,
    ChildKind,
    Inquiry,
    InquiryKind,
    Report,
    Reporting,
    ReportKind,
    Verdict,
)


class State(StrEnum):
    """Thread states (spec section 4)."""

    IDLE = "idle"
    RUNNING = "running"
    FAILED = "failed"


class RunStatus(StrEnum):
    """Run states (spec section 4)."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True when nothing of the run can follow."""
        return self in (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)


class CommandState(StrEnum):
    """Command states (spec section 3)."""

    QUEUED = "queued"
    JOINED = "joined"
    STARTED = "started"
    DONE = "done"
    WITHDRAWN = "withdrawn"


class Role(StrEnum):
    """Whose message it is."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Token counts; `cost_micro_usd` is None once a price was unknown."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cost_micro_usd: int | None = 0

    def plus(self, other: "Tokens") -> "Tokens":
        """Both together; an unknown price makes the sum unknown."""
        known = self.cost_micro_usd is not None and other.cost_micro_usd is not None
        return Tokens(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cost_micro_usd=(self.cost_micro_usd or 0) + (other.cost_micro_usd or 0) if known else None,
        )


@dataclass(frozen=True, kw_only=True)
class ModelSpent:
    """What a thread has spent on one model. `unpriced`: of some calls the price was unknown; they cost 0 in the sum."""

    model: str
    requests: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cost_micro_usd: int = 0
    unpriced: bool = False


@dataclass(frozen=True, kw_only=True)
class Head:
    """The head of a thread: below 1 KB whatever the thread's length (invariant I11).

    Numbers: `commands` counts accepted commands, `messages` placed messages, `seq` events; all start at 1.
    Instants are microseconds; 0 means "none" for every number and instant.
    """

    rev: int
    agent: str
    created_at: int
    active_at: int
    state: State = State.IDLE
    since: int
    reason: str | None = None
    seq: int = 0
    chain: bytes = b""
    commands: int = 0
    messages: int = 0
    last_run: int = 0
    """Number of the run that was accepted or promoted last."""
    model_calls: int = 0
    """Model calls of this thread that left a stored trace; the scripted model plays by it."""

    balance_at: int = 0
    """Number of the run that ended last: its row holds what the thread has spent up to then (`domain.costs`)."""

    queued: int = 0
    """Runs that wait for their turn behind the run in flight."""
    first_queued: int = 0
    pending: int = 0
    """Joins that no run has taken in yet, bound ones included."""
    first_pending: int = 0
    """No pending join has a smaller number."""
    free_pending: int = 0
    """Pending joins that any run in flight may take in; the others are bound to a promoted run (`Command.joins`)."""
    free_from: int = 1
    """No free pending join has a smaller number."""

    run: int = 0
    """The run in flight: it alone may be worked on (I2)."""
    run_attempt: int = 0
    """Leases taken on it: with `run` this is the fencing token (I3)."""
    run_started_at: int = 0
    run_steps: int = 0
    """Model answers stored for it."""
    run_first: int = 0
    """Place of its first message."""
    run_calls: int = 0
    """Tool calls of it that have finished with a result of their own."""
    run_usage: Tokens = Tokens()
    run_spent: tuple[ModelSpent, ...] = ()
    """Its usage by model once it has used more than one, that of its row first (`domain.costs`)."""
    open_message: int = 0
    """Number of the `message.started` event of an answer that is being streamed."""
    open_calls: int = 0
    """Place of the answer whose tool calls do not all have results yet. The place behind it is kept for the results,
    so that nothing that others place meanwhile comes between."""
    played_by: str = ""
    """The agent that the thread was handed to; "": its own plays."""
    played_from: int = 0
    """Place of the newest message when the thread was handed over last: results up to there are no step of whom it was
    handed to.
    """
    side: str = ""
    """The side that has the turn; "" of an agent with one side, and before the first turn."""
    hears: str = ""
    """Of a child: the side that users' messages are for; "": both."""
    run_turns: int = 0
    """Turns that sides have taken in the run in flight."""
    side_steps: int = 0
    """Model answers stored in the turn of the side."""
    parked: int = 0
    """Number of the run that waits for child sessions: one of them is in flight in its place."""
    waiting: str | None = None
    """Why the run in flight waits (spec section 4): it holds no lease and nobody may take one. None: it does not."""
    stalls: int = 0
    """Leases in a row without a new stored fact."""
    cancel: int = 0
    """Number of the run.cancel command that wants the run in flight to end."""
    cancel_at: int = 0

    lease_until: int = 0
    lease_nonce: str = ""
    write: str = ""
    """Identity of the last transaction: who looks for the fate of a write finds its own name here."""

    parent: str = ""
    """Token of the thread whose agent made this one; "" of a root."""
    reference: str = ""
    """Name of this thread in the registry of its parent."""
    depth: int = 0
    """Threads above this one."""
    children: int = 0
    """Children that this thread has ever made, sessions included. 0: there is no registry to look at."""
    closing: bool = False
    """Its queue, or children of it, have to be ended still: the sweep does it."""

    epoch: int = 0
    wake: int = 0
    due_at: int = 0
    terminated_at: int = 0
    deleted_at: int = 0
    total_cost: int = 0
    """Of a deleted thread: what its tree had cost, in 1e-12 USD."""

    @property
    def player(self) -> str:
        """The agent that plays the thread."""
        return self.played_by or self.agent

    def leased(self, now: int) -> bool:
        """True while some attempt may be alive."""
        return self.lease_until > now


@dataclass(frozen=True, kw_only=True)
class About:
    """What a thread is about: too large or too rarely read for the head."""

    title: str | None
    tags: tuple[str, ...]
    arguments: Mapping[str, Any]
    user: str | None
    parent: Mapping[str, Any] | None = None
    """Of a child: `thread_id`, `reference_id` and `name`, as the thread's body shows them."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command and, for a run.create of its own, its run: one row."""

    number: int
    kind: str = "run.create"
    state: CommandState = CommandState.QUEUED
    delivery: str = "join"
    created_at: int
    nonce: str
    """Tells the writer of this row from another that got the same number."""
    key: str | None = None
    content: tuple[Mapping[str, Any], ...] | None = None
    """The user's message until it takes its place; None for a continue and for a run.cancel."""
    metadata: Mapping[str, Any] | None = None
    place: int = 0
    """Place of the message in the conversation once it has one."""
    run: int = 0
    """The run that this command started or joined, or that it cancels; 0 while a join is pending."""
    joins: tuple[tuple[int, int], ...] = ()
    """Ranges of pending joins that are bound to this run."""

    status: RunStatus = RunStatus.QUEUED
    reason: str | None = None
    agent: str = ""
    model: str | None = None
    """The model that was asked for; once the run has started, the one that it began with."""
    model_asked: bool = False
    """Of a run that has started: its model was asked for, so it plays all of it."""
    version: str | None = None
    parent: int = 0
    attempts: int = 0
    steps: int = 0
    usage: Tokens = Tokens()
    balance: tuple[ModelSpent, ...] = ()
    """What the whole thread had spent on models when this run ended."""
    started_at: int = 0
    ended_at: int = 0
    first: int = 0
    last: int = 0
    """Places of its first and last message."""
    error: Mapping[str, Any] | None = None
    label: str | None = None
    """Label of its `done` step."""
    cancelled_by: int = 0
    """Number of the run.cancel command that ended it, so that a later cancel answers the same command."""
    session: Child | None = None
    """Of a child session: its row in the registry, as it was made."""
    parked: Mapping[str, Any] | None = None
    """While the run waits for child sessions: its part of the head, and what it waits for (`domain.sessions`)."""

    @property
    def is_run(self) -> bool:
        """True if this command has a run of its own."""
        return self.kind == "run.create" and self.run == self.number

    @property
    def is_call(self) -> bool:
        """True while its content, in place of a user's message, is the call of a tool that code has queued."""
        return any(part["type"] == "tool_call" for part in self.content or ())

    @property
    def is_pending_join(self) -> bool:
        """True while this message waits to be taken in by a run."""
        return self.kind == "run.create" and self.run == 0 and self.state is CommandState.QUEUED


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message in its place. `run` is the run that it belongs to."""

    place: int
    id: str
    run: int
    role: Role
    content: tuple[Mapping[str, Any], ...]
    metadata: Mapping[str, Any]
    created_at: int
    updated_at: int = 0
    silent: bool = False
    incomplete: bool = False
    superseded: bool = False
    deleted: bool = False
    side: str = ""
    """The side of a two-sided agent whose answer or results it holds."""
    child: Mapping[str, Any] | None = None
    """The child that it comes from: `id`, `name`, `title`, `status`, `relationship`, `blocking` (spec section 9)."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """A durable value of the thread: any JSON under a name."""

    name: str
    value: Any
    updated_at: int


class EffectState(StrEnum):
    """What is to become of an effect. The last two are kept for a while, so that nobody schedules it anew."""

    SCHEDULED = "scheduled"
    PARKED = "parked"
    DONE = "done"
    REMOVED = "removed"


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Code that is to run outside of turns at a due time (`domain.effects`). Instants are microseconds, 0: none."""

    id: str
    """Its name inside the thread; the public id is `ThreadRef.effect` of it."""
    name: str
    arguments: Mapping[str, Any]
    at: int
    """When it is, or was, to run."""
    created_at: int
    state: EffectState = EffectState.SCHEDULED
    tries: int = 0
    """Tries that have begun."""
    due_at: int = 0
    """When somebody has to look at it next: to run it, or because a try has gone silent."""
    until: int = 0
    """Until then a try may be at work."""
    nonce: str = ""
    """Tells the newest try from another that began at the same instant."""
    wakes: int = 0
    """Wake-ups that the sweep has named for it."""
    error: str | None = None
    """Why the last try failed."""
    expires_at: int = 0


class Outcome(StrEnum):
    """How a tool call ended (spec section 5)."""

    OK = "ok"
    ERROR = "error"
    REFUSED = "refused"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call: asked for, started, finished. The call id is unique inside the thread."""

    id: str
    run: int
    step: int
    name: str
    arguments: Any
    started_at: int = 0
    ended_at: int = 0
    outcome: Outcome | None = None
    result: Any = None
    logged: int = 0
    """Notes of this call (entries, events, messages, effects) that are stored already, should it run again."""
    said: tuple[int, ...] = ()
    """Numbers of the commands that this call has queued, should it run again."""
    waits: str = ""
    """Id of the question or approval that it waits for."""
    ready: bool = False
    """It was answered, or allowed, and has not been run since: it may start (again)."""
    answers: tuple[Any, ...] = ()
    """Answers to its questions so far, in the order in which it asked."""


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of the thread. Its bytes are an object that is named by their hash.

    A `path` that ends with `/` marks a folder that was made as such: no bytes, no hash. Folders on the way to a file
    need no mark.
    """

    path: str
    bytes: int = 0
    sha256: str = ""
    content_type: str = ""
    created_at: int
    updated_at: int


__all__ = [
    "RUNNING",
    "About",
    "Call",
    "Child",
    "ChildKind",
    "Command",
    "CommandState",
    "Effect",
    "EffectState",
    "File",
    "Head",
    "Inquiry",
    "InquiryKind",
    "Message",
    "ModelSpent",
    "Outcome",
    "Report",
    "ReportKind",
    "Reporting",
    "Role",
    "RunStatus",
    "State",
    "Tokens",
    "Value",
    "Verdict",
    "replace",
]
