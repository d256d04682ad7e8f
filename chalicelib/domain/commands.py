"""What may be asked of Turnlog, as records: the doors build them, `accept` takes them. Shapes are checked before they
exist.

A record here is already safe: its values passed the border of `domain.values` and the limits of spec section 13.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Part = Mapping[str, Any]


class Level(StrEnum):
    """What a credential may do inside its org, lowest first."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Who asks. The org comes from the credential and from nowhere else."""

    org: str
    key_id: str
    level: Level
    user: str | None = None
    roles: tuple[str, ...] = ()
    key_sha256: str = ""
    """SHA-256 of the API key that was shown, as hex: what a ticket and a websocket stay bound to."""


class Delivery(StrEnum):
    """What happens to a message while a run is running, queued or waiting."""

    JOIN = "join"
    ENQUEUE = "enqueue"
    REJECT = "reject"


@dataclass(frozen=True, kw_only=True)
class Idempotency:
    """The caller's key and the fingerprint of what was asked (64 hex digits)."""

    key: str
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class Say:
    """A message of a user."""

    content: tuple[Part, ...]
    attachments: tuple[Part, ...] = ()
    metadata: Mapping[str, Any]
    delivery: Delivery = Delivery.JOIN
    silent: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateThread:
    """A new thread, and its first message if there is one."""

    agent: str
    title: str | None = None
    arguments: Mapping[str, Any]
    tags: tuple[str, ...] = ()
    user: str | None = None
    message: Say | None = None


@dataclass(frozen=True, kw_only=True)
class CreateRun:
    """A run.create by the front door of runs: `input` becomes a user message."""

    content: tuple[Part, ...]
    parent_run_id: str | None = None
    model: str | None = None
    delivery: Delivery = Delivery.ENQUEUE


@dataclass(frozen=True, kw_only=True)
class PatchThread:
    """New title and/or tags; None leaves the old one."""

    title: str | None = None
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class PatchMessage:
    """New content and/or metadata; None leaves the old one."""

    content: tuple[Part, ...] | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class WriteLog:
    """An entry for a thread's log, as its row will say it (`domain.entries`)."""

    body: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class AnswerQuestion:
    """What a person says to a question: any JSON."""

    answer: Any


@dataclass(frozen=True, kw_only=True)
class Decide:
    """A person's decision on an approval."""

    approve: bool
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class StartUpload:
    """A file that is to be uploaded: its path in its one form, and what will be sent."""

    path: str
    bytes: int
    content_type: str
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class Upload:
    """An upload that was begun; `nonce` names its object. The door hands it out signed, nothing of it is stored."""

    nonce: str
    ask: StartUpload


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request to an endpoint of an agent. Headers that hold credentials are left out; `body` is a JSON value."""

    method: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a service answers to a door: HTTP status, JSON body, and whether it is the replay of an earlier request."""

    status: int
    body: Any
    replayed: bool = False


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page of a list. `next` is the position after the last item (JSON-safe), None at the end; the door signs it."""

    items: list[Any]
    next: Any = None
