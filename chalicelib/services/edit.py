"""Later edits by people: title and tags of a thread, content and metadata of a message, removal. They never touch a
run.

The old text of a message stays in the log until retention. An edit that is sent twice is told twice and changes the row
once; removing what is gone answers NotFound.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import wire
from chalicelib.domain.commands import Part, PatchMessage, PatchThread, Principal
from chalicelib.domain.errors import InvalidRequest, NotFound, ThreadBusy
from chalicelib.domain.events import Fact
from chalicelib.domain.ids import MessageTag, ThreadRef, message_tag
from chalicelib.domain.model import About, Head, Message, Role
from chalicelib.domain.queueing import Draft
from chalicelib.engine import messages
from chalicelib.engine.log import commit_of
from chalicelib.ports import Committed, Opened, Store
from chalicelib.services.appending import Appender, alive, known

IN_FLIGHT = "The run that this message belongs to is still in flight."


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Edits threads and messages."""

    store: Store
    appender: Appender

    def patch_thread(self, p: Principal, thread_id: str, ask: PatchThread) -> dict[str, Any]:
        """New title and tags; answers the thread."""
        ref = known(p.org, thread_id)
        for _ in self.appender.tries():
            opened = self.store.open(ref, about=True)
            head, about = alive(opened.head), _patched(opened, ask)
            told: dict[str, Any] = {} if ask.title is None else {"title": about.title}
            told |= {} if ask.tags is None else {"tags": list(about.tags)}
            now = self.appender.clock.now()
            draft = Draft(after=head, facts=(Fact(type="thread.updated", data=told, at=now),))
            commit = commit_of(ref, head, draft, now=now, write=self.appender.ids.token(), about=about)
            result = self.appender.log.commit(commit)
            if isinstance(result, Committed):
                return wire.thread_body(ref, result.head, about)
        raise AssertionError("tries end with RetryLater")

    def patch_message(self, p: Principal, thread_id: str, message_id: str, ask: PatchMessage) -> dict[str, Any]:
        """New content and metadata; answers the message. Raises ThreadBusy while it is pending or in flight."""
        ref = known(p.org, thread_id)
        changed: list[Message] = []

        def decide(head: Head, row: Message, now: int) -> Draft:
            new = replace(
                row,
                content=row.content if ask.content is None else _edited(row, ask.content),
                metadata=row.metadata if ask.metadata is None else ask.metadata,
                updated_at=now,
            )
            changed[:] = [new]
            data = {"message": wire.message_body(ref, new)}
            return Draft(after=head, facts=(Fact(type="message.updated", data=data, at=now),), messages=(new,))

        self._edit(ref, message_id, decide)
        return wire.message_body(ref, changed[0])

    def delete_message(self, p: Principal, thread_id: str, message_id: str) -> None:
        """Take a message out of the conversation; one with calls takes their results along."""
        ref = known(p.org, thread_id)

        def decide(head: Head, row: Message, now: int) -> Draft:
            rows = [row, *self._results_of(ref, head, row)]
            gone = tuple(replace(r, deleted=True, content=(), metadata={}) for r in rows)
            facts = tuple(Fact(type="message.deleted", data={"message_id": r.id}, at=now) for r in rows)
            return Draft(after=head, facts=facts, messages=gone)

        self._edit(ref, message_id, decide)

    def _edit(self, ref: ThreadRef, message_id: str, decide: Callable[[Head, Message, int], Draft]) -> None:
        tag = message_tag(ref, message_id)
        for _ in self.appender.tries():
            head = alive(self.store.open(ref).head)
            if tag is None:
                raise NotFound
            row = self._find(ref, head, tag, message_id)
            now = self.appender.clock.now()
            draft = decide(head, row, now)
            commit = commit_of(ref, head, draft, now=now, write=self.appender.ids.token())
            if isinstance(self.appender.log.commit(commit), Committed):
                return

    def _find(self, ref: ThreadRef, head: Head, tag: MessageTag, message_id: str) -> Message:
        if tag.run and tag.run == head.run and tag.step <= head.run_steps + 1:
            raise ThreadBusy(IN_FLIGHT)  # it may have no place yet
        row = messages.find(self.store, ref, head, message_id)
        if row.run and row.run in (head.run, head.parked):
            raise ThreadBusy(IN_FLIGHT)
        return row

    def _results_of(self, ref: ThreadRef, head: Head, row: Message) -> list[Message]:
        """The message with the results of this one's calls."""
        calls = {part["call_id"] for part in row.content if part["type"] == "tool_call"}
        if not calls:
            return []
        behind = self.store.messages(ref, after=row.place, before=head.messages + 1, limit=10)
        return [m for m in behind if m.role is Role.TOOL and not m.deleted and _answers(m, calls)]


def _edited(row: Message, content: tuple[Part, ...]) -> tuple[Part, ...]:
    """New words of a message; the calls of an answer stay, since their results do. Results are not anybody's words."""
    if row.role is Role.TOOL:
        raise InvalidRequest.at("content", "the results of tools cannot be edited")
    return (*content, *(part for part in row.content if part["type"] == "tool_call"))


def _answers(message: Message, calls: set[str]) -> bool:
    return any(part.get("call_id") in calls for part in message.content)


def _patched(opened: Opened, ask: PatchThread) -> About:
    if opened.about is None:
        raise NotFound
    about = opened.about
    return replace(
        about,
        title=about.title if ask.title is None else ask.title,
        tags=about.tags if ask.tags is None else ask.tags,
    )
