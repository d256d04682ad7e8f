"""Canonical events: the one discriminated union that every engine, reader and export speaks (spec section 5).

A `Fact` is what somebody wants to tell; it becomes an `Event` when it gets its number in a commit. Event ids follow
from thread and number, so an event that was renumbered before it was stored leaves no trace of the first try.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SCHEMA_VERSION = 1

#: type -> fields that `data` always has. `custom.<name>` is open.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "thread.created": ("agent", "arguments"),
    "thread.updated": (),
    "thread.status": ("state", "since", "reason"),
    "thread.terminated": (),
    "thread.forked": ("from_thread", "at_seq"),
    "run.queued": ("command_id", "delivery"),
    "run.started": ("agent", "model", "version"),
    "run.reconciling": ("adopted",),
    "run.waiting": ("reason", "on"),
    "run.resumed": ("reason", "on"),
    "run.completed": ("reason", "usage", "cost_usd"),
    "run.failed": ("reason", "error"),
    "run.cancelled": ("reason", "finished_calls"),
    "message.queued": ("message",),
    "message.completed": ("message",),
    "message.updated": ("message",),
    "message.started": ("message_id", "role"),
    "message.delta": ("message_id", "text"),
    "message.deleted": ("message_id",),
    "message.reset": ("message_id", "reason"),
    "reasoning.delta": ("message_id", "text"),
    "reasoning.completed": ("message_id", "text"),
    "tool.started": ("call_id", "name", "arguments"),
    "tool.progress": ("call_id", "progress"),
    "tool.completed": ("call_id", "name", "outcome", "result", "duration_ms"),
    "plan.updated": ("items",),
    "file.changed": ("path", "change"),
    "artifact.created": ("artifact_id", "name", "content_type", "bytes", "ref"),
    "artifact.delivered": ("artifact_id", "to"),
    "question.requested": ("question_id", "question"),
    "question.resolved": ("question_id", "outcome"),
    "approval.requested": ("approval_id", "call_id", "tool", "arguments", "arguments_sha256"),
    "approval.resolved": ("approval_id", "decision"),
    "child.started": ("reference_id", "kind", "name", "blocking"),
    "child.updated": ("reference_id", "status"),
    "child.completed": ("reference_id", "outcome"),
    "usage.updated": ("model", "input_tokens", "output_tokens"),
    "step.recorded": ("step",),
}

TERMINAL = frozenset({"run.completed", "run.failed", "run.cancelled"})

#: Where the large field of an event is. What is not listed is never large.
HEAVY: Mapping[str, str] = {
    "thread.created": "arguments",
    "tool.started": "arguments",
    "tool.completed": "result",
    "tool.progress": "progress",
    "reasoning.completed": "text",
    "run.failed": "error",
    "plan.updated": "items",
    "approval.requested": "arguments",
    "question.requested": "question",
    "question.resolved": "answer",
}


@dataclass(frozen=True, kw_only=True)
class Fact:
    """Something that has happened, without its number. `run` 0: it belongs to the thread."""

    type: str
    data: Mapping[str, Any]
    at: int
    run: int = 0
    attempt: int = 0


@dataclass(frozen=True, kw_only=True)
class Event:
    """A fact with its number in the thread's log; immutable."""

    seq: int
    type: str
    data: Mapping[str, Any]
    at: int
    run: int = 0
    attempt: int = 0


def is_known(event_type: str) -> bool:
    """True for a type of the union."""
    return event_type in FIELDS or event_type.startswith("custom.")
