"""The one way into a thread's log: large fields go to object storage first, then the commit makes everything visible
at once.

An object that was put for a commit that never happened is unreachable and harmless: it is named by its content.
"""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import values
from chalicelib.domain.errors import RetryLater
from chalicelib.domain.events import HEAVY, Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import INLINE_EVENT_BYTES
from chalicelib.domain.model import About, Head
from chalicelib.domain.queueing import Draft
from chalicelib.ports import Blobs, Commit, Committed, Moved, Queue, Remembered, Store, Upward

log = logging.getLogger(__name__)

#: What the envelope around `data` takes at most, so that the whole event stays within the inline limit.
ENVELOPE_BYTES = 512


@dataclass(frozen=True, kw_only=True)
class Log:
    """Appends to threads."""

    store: Store
    blobs: Blobs
    queue: Queue

    def commit(self, commit: Commit) -> Committed | Moved:
        """As `Store.commit`, with the large field of each large event put away before. What a child reports with it
        wakes the parent.
        """
        facts = tuple(self._slim(commit.ref, fact) for fact in commit.facts)
        result = self.store.commit(replace(commit, facts=facts))
        if isinstance(result, Committed) and commit.upward and commit.upward.report:
            self.wake_for(ThreadRef(commit.ref.org, commit.upward.parent), commit.upward.report.key)
        return result

    def wake_for(self, parent: ThreadRef, report: str) -> None:
        """Say that there is something in a thread's inbox. If it cannot be said, the sweep finds the report."""
        try:
            self.queue.wake_inbox(parent, report)
        except RetryLater:
            log.warning("parent not woken; the sweep will", extra={"action": "wake_failed", "thread_id": parent.id})

    def _slim(self, ref: ThreadRef, fact: Fact) -> Fact:
        if not _is_large(fact):
            return fact
        message = fact.data.get("message")
        if isinstance(message, Mapping):
            named = {"id": message["id"], "role": message["role"]}
            return replace(fact, data={**self.put_away(ref, fact.data), **named})
        field = HEAVY.get(fact.type, max(fact.data, key=lambda name: values.size(fact.data[name])))
        return replace(fact, data={**fact.data, field: self.put_away(ref, fact.data[field])})

    def put_away(self, ref: ThreadRef, value: Any) -> dict[str, Any]:
        """Store a JSON value as an object; answers what stands in its place. A second put changes nothing."""
        data = values.dumps(value).encode()
        sha256 = hashlib.sha256(data).hexdigest()
        self.blobs.put(ref, sha256, data, "application/json")
        return {"ref": sha256, "bytes": len(data), "sha256": sha256, "content_type": "application/json"}


def commit_of(
    ref: ThreadRef,
    before: Head | None,
    draft: Draft,
    *,
    now: int,
    write: str,
    about: About | None = None,
    remember: Remembered | None = None,
    upward: Upward | None = None,
) -> Commit:
    """A draft as the transaction that makes it true."""
    return Commit(
        ref=ref,
        before=before,
        after=draft.after,
        facts=draft.facts,
        about=about,
        commands=draft.commands,
        messages=draft.messages,
        new_calls=draft.new_calls,
        calls=draft.calls,
        files=draft.files,
        gone_files=draft.gone_files,
        logs=draft.logs,
        values=draft.values,
        inquiries=draft.inquiries,
        children=draft.children,
        heard=draft.heard,
        upward=upward or _upward(draft),
        effects=draft.effects,
        remember=remember,
        now=now,
        write=write,
    )


def _upward(draft: Draft) -> Upward | None:
    if draft.report is None:
        return None
    head = draft.after
    return Upward(parent=head.parent, reference=head.reference, act="report", report=draft.report)


def _is_large(fact: Fact) -> bool:
    return values.size(fact.data) > INLINE_EVENT_BYTES - ENVELOPE_BYTES
