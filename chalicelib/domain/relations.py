"""Records of what a thread has to do with others: its children and what they report, and what it asks of people.

Pure data, as `domain.model`, which shows them too: whoever works with a thread takes all records from there.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ChildKind(StrEnum):
    """What a child is (spec section 1)."""

    THREAD = "thread"
    SESSION = "session"


class Reporting(StrEnum):
    """How the outcome of a child reaches its parent (spec section 10)."""

    IMPLICIT = "implicit"
    EXPLICIT = "explicit"


RUNNING = "running"
"""Status of a child that is at work; any other says how it ended, or rests."""


@dataclass(frozen=True, kw_only=True)
class Child:
    """A row of a thread's registry. Whoever moves `status` away from `running` decides what the parent is told."""

    reference: str
    kind: ChildKind
    token: str = ""
    """Of a child thread."""
    run: int = 0
    """Of a session."""
    call_id: str
    """The call that made it: a blocking one waits for it."""
    agent: str = ""
    name: str
    title: str | None = None
    status: str = RUNNING
    label: str | None = None
    reporting: Reporting = Reporting.IMPLICIT
    blocking: bool = False
    resumable: bool = False
    side: str = ""
    """The side of its parent that has made it, and is told of it; "" of a parent with one side."""
    key: str = ""
    """Of a session: what its maker calls it, so that asked for twice it is made once."""
    result: Any = None
    """Of a session that has ended: what it said."""
    muted: bool = False
    """The parent has closed it by itself and told so: what comes from it later is not heard."""
    created_at: int


class ReportKind(StrEnum):
    """What a child tells its parent."""

    OUTCOME = "outcome"
    NOTE = "note"
    LABEL = "label"


@dataclass(frozen=True, kw_only=True)
class Report:
    """Something in the inbox of a thread, from one of its children. Put if absent, drained by the parent."""

    key: str
    """Unique in the inbox for ever: the reference, and what tells this report from the child's others."""
    reference: str
    kind: ReportKind = ReportKind.OUTCOME
    outcome: str = ""
    result: Any = None
    at: int


class InquiryKind(StrEnum):
    """What a person is asked for."""

    QUESTION = "question"
    APPROVAL = "approval"


class Verdict(StrEnum):
    """How a question or an approval was resolved (spec section 8)."""

    ANSWERED = "answered"
    APPROVED = "approve"
    REJECTED = "reject"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Inquiry:
    """A question or an approval: what a call asks of people. `verdict` None: it is open, and whoever resolves it first
    has decided.
    """

    id: str
    kind: InquiryKind
    run: int
    call_id: str
    tool: str
    question: Any = None
    options: tuple[Any, ...] = ()
    arguments: Any = None
    """Of an approval: what the call will be run with."""
    arguments_sha256: str = ""
    created_at: int
    expires_at: int = 0
    verdict: Verdict | None = None
    answer: Any = None
    by: str | None = None
    reason: str | None = None
    decided_at: int = 0
