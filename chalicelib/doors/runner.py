"""The queue's door: a wake-up names a thread, the turn is taken; or an effect, which is tried. What cannot be read is
told and dropped: it holds no work.
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


class RunEffect(Protocol):
    """Tries an effect of a thread."""

    def run(self, ref: ThreadRef, effect_id: str, remaining: Callable[[], float], /) -> None: ...


class House(Protocol):
    """What this door needs from the house."""

    @property
    def take_turn(self) -> TakeTurn: ...
    @property
    def run_effect(self) -> RunEffect: ...


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
    named = _named(record)
    if named is None:
        log.error("wake-up cannot be read", extra={"action": "wake_unreadable", "message_id": record.get("messageId")})
        return True
    ref, effect_id = named

    def remaining() -> float:
        return max(0.0, float(context.get_remaining_time_in_millis()) / 1000)

    try:
        if effect_id is None:
            house().take_turn.run(ref, remaining)
        else:
            house().run_effect.run(ref, effect_id, remaining)
    except Exception:  # the queue's own retry is the answer to whatever went wrong here
        log.exception("wake-up failed", extra={"action": "wake_failed", "thread_id": ref.id})
        return False
    return True


def _named(record: Mapping[str, Any]) -> tuple[ThreadRef, str | None] | None:
    """The thread that a wake-up names, and the effect if it names one; None if it is none that we have sent."""
    try:
        body = json.loads(record["body"])
        if body["v"] != 1 or body["kind"] not in ("wake", "effect"):
            return None
        ref = thread_ref(body["org"], body["thread"])
        effect_id = str(body["effect"]) if body["kind"] == "effect" else None
    except (KeyError, TypeError, ValueError):
        return None
    return None if ref is None else (ref, effect_id)
