"""The queue's door: a wake-up names a thread, the turn is taken. What cannot be read is told and dropped: it holds no
work.
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from chalicelib import bootstrap
from chalicelib.domain.ids import ThreadRef, thread_ref

log = logging.getLogger(__name__)


class TakeTurn(Protocol):
    """Works on a thread."""

    def run(self, ref: ThreadRef, remaining: Callable[[], float], /) -> None: ...


class House(Protocol):
    """What this door needs from the house."""

    @property
    def take_turn(self) -> TakeTurn: ...


def run(event: Mapping[str, Any], context: Any, *, house: Callable[[], House] = bootstrap.house) -> dict[str, Any]:
    """Work on the threads of a batch (of one). An error leaves the record in the queue, and those of its group behind
    it.

    Answers `batchItemFailures`, in case a deployment asks for partial batches.
    """
    failed: list[str] = []
    blocked: set[str] = set()
    for record in event.get("Records", ()):
        group = record.get("attributes", {}).get("MessageGroupId", "")
        if group in blocked or not _worked(record, context, house):
            blocked.add(group)
            failed.append(record["messageId"])
    if failed and len(failed) == len(event.get("Records", ())):
        raise RuntimeError(f"no wake-up of this batch could be worked on: {failed}")
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


def _worked(record: Mapping[str, Any], context: Any, house: Callable[[], House]) -> bool:
    ref = _thread_of(record)
    if ref is None:
        log.error("wake-up cannot be read", extra={"action": "wake_unreadable", "message_id": record.get("messageId")})
        return True
    try:
        house().take_turn.run(ref, lambda: max(0.0, context.get_remaining_time_in_millis() / 1000))
    except Exception:  # the queue's own retry is the answer to whatever went wrong here
        log.exception("wake-up failed", extra={"action": "wake_failed", "thread_id": ref.id})
        return False
    return True


def _thread_of(record: Mapping[str, Any]) -> ThreadRef | None:
    """The thread that a wake-up names, or None if it is none that we have sent."""
    try:
        body = json.loads(record["body"])
        if body["v"] != 1 or body["kind"] != "wake":
            return None
        return thread_ref(body["org"], body["thread"])
    except (KeyError, TypeError, ValueError):
        return None
