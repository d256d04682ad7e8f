"""Messages and log rows as code handles them: read as a window, placed, found by their id, changed.

Pure decisions and bounded reads, used inside runs and outside of them. What code says passes the same limits as what
clients say; a fault is InvalidRequest or TooLarge. It must not know who writes, nor when.
"""

from collections.abc import Callable, Mapping
from typing import Any

from chalicelib.domain import entries, values, wire
from chalicelib.domain.errors import InvalidRequest, NotFound, ThreadBusy, TooLarge
from chalicelib.domain.events import Fact
from chalicelib.domain.ids import ThreadRef, message_tag
from chalicelib.domain.limits import CONTENT_BYTES, EMIT_BYTES, METADATA_BYTES
from chalicelib.domain.model import Head, Message, Role, replace
from chalicelib.domain.queueing import Draft
from chalicelib.engine.hands import Runnable
from chalicelib.ports import Store

Body = dict[str, Any]
Safe = Callable[[Any], Any]
"""The border: any value as a safe JSON value (`engine.environment`)."""

#: Messages that one read brings: a batch read takes 100 keys, and some are for what came since the head was read.
WINDOW, NEWER = 50, 40
#: Rows of the log that one read brings: a row may have some 300 KB.
LOG_ROWS = 50
#: Clocks of two functions may differ: rows are looked for so much beyond the thread's beginning and now.
SKEW_MICROS = 600 * 1_000_000
#: Newest places among which the newest message is looked for: one may be kept for results, some may be deleted.
PLACES = 4
#: What may be injected: results of tools belong to their calls.
ROLES = (Role.USER, Role.ASSISTANT, Role.SYSTEM)
_PARTS: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "file": ("path",),
    "data": ("name", "content_type", "base64"),
}
_NAME_CHARACTERS = 128


def content_of(value: Any, safe: Safe) -> tuple[Mapping[str, Any], ...]:
    """Content of a message: a text, or a list of parts. Raises InvalidRequest, TooLarge."""
    given = safe(value)
    parts = [{"type": "text", "text": given}] if isinstance(given, str) else given
    if not isinstance(parts, list) or not parts:
        raise InvalidRequest.at("content", "must be a text or a list of parts that is not empty")
    for number, part in enumerate(parts):
        wanted = _PARTS.get(str(part.get("type"))) if isinstance(part, dict) else None
        if wanted is None or any(not isinstance(part.get(name), str) for name in wanted):
            raise InvalidRequest.at(f"content.{number}", "must be a text, file or data part with its texts")
    if (size := values.size(parts)) > CONTENT_BYTES:
        raise TooLarge.at("content", f"has {size} bytes, the limit is {CONTENT_BYTES}")
    return tuple(parts)


def call_of(tool: Runnable, arguments: Mapping[str, Any] | None, safe: Safe) -> tuple[Mapping[str, Any], ...]:
    """Content of the message that queues a tool. Raises InvalidRequest, TooLarge."""
    from chalicelib.engine.fitting import misfit  # only those who queue a tool pay for it

    given = safe({} if arguments is None else dict(arguments))
    if fault := misfit(tool.parameters, given):
        raise InvalidRequest.at("arguments", fault)
    part = {"type": "tool_call", "name": tool.name, "arguments": given}
    if (size := values.size(part)) > CONTENT_BYTES:
        raise TooLarge.at("arguments", f"have {size} bytes, the limit is {CONTENT_BYTES}")
    return (part,)


def metadata_of(value: Mapping[str, Any] | None, safe: Safe) -> dict[str, Any]:
    """Metadata of a message. Raises InvalidRequest, TooLarge."""
    given = safe({} if value is None else value)
    if not isinstance(given, dict):
        raise InvalidRequest.at("metadata", "must be an object")
    if (size := values.size(given)) > METADATA_BYTES:
        raise TooLarge.at("metadata", f"has {size} bytes, the limit is {METADATA_BYTES}")
    return given


def change_of(
    wanted: Mapping[str, Any], safe: Safe
) -> tuple[tuple[Mapping[str, Any], ...] | None, dict[str, Any] | None]:
    """What a message is to become: content and metadata, None for what stays. Raises as `content_of`."""
    content, metadata = wanted.get("content"), wanted.get("metadata")
    return (
        None if content is None else content_of(content, safe),
        None if metadata is None else metadata_of(metadata, safe),
    )


def role_of(value: Any) -> Role:
    """Role of a message that code places. Raises InvalidRequest."""
    if value not in ROLES:
        raise InvalidRequest.at("role", f"must be one of {', '.join(ROLES)}")
    return Role(value)


def event_of(name: Any, data: Any, safe: Safe) -> tuple[str, dict[str, Any]]:
    """Type and data of an event that code emits; data that is no object stands as `value`. Raises as `content_of`."""
    if not isinstance(name, str) or not 1 <= len(name) <= _NAME_CHARACTERS or not _is_plain(name):
        rule = f"1 to {_NAME_CHARACTERS} letters, digits and . _ : -"
        raise InvalidRequest.at("name", f"must have {rule}")
    given = safe(data)
    told = given if isinstance(given, dict) else {"value": given}
    if (size := values.size(told)) > EMIT_BYTES:
        raise TooLarge.at("data", f"has {size} bytes, the limit is {EMIT_BYTES}")
    return f"custom.{name}", told


def _is_plain(name: str) -> bool:
    return name.isascii() and all(letter.isalnum() or letter in "._:-" for letter in name)


def window(store: Store, ref: ThreadRef, head: Head, *, limit: int, before: int | None, silent: bool) -> list[Body]:
    """Messages before a place, the newest ones without one, oldest first; each with its `place`. One batch read, unless
    very much has come since the head was read.
    """
    if before is not None:
        places = range(max(1, before - limit), before)
        return _shown(ref, store.open(ref, head=False, messages=places).messages, silent)
    first = max(1, head.messages - limit + 1)
    opened = store.open(ref, messages=range(first, head.messages + NEWER + 1))
    standing = opened.head or head
    found = opened.messages
    if standing.messages > head.messages + NEWER:
        places = range(max(1, standing.messages - limit + 1), standing.messages + 1)
        found = store.open(ref, head=False, messages=places).messages
    return _shown(ref, found, silent)[-limit:]


def _shown(ref: ThreadRef, found: Mapping[int, Message], silent: bool) -> list[Body]:
    rows = [found[place] for place in sorted(found)]
    return [{**wire.message_body(ref, m), "place": m.place} for m in rows if not m.deleted and (silent or not m.silent)]


def log_window(store: Store, ref: ThreadRef, head: Head, *, limit: int, before: str | None, now: int) -> list[Body]:
    """The newest rows of the log, before the row of an id if one is given; oldest first. One query for each day."""
    high = entries.key(now + SKEW_MICROS, "")
    if before is not None:
        prefix = f"{entries.PREFIX}_{ref.token}_"
        if not before.startswith(prefix) or not before.removeprefix(prefix)[:17].isdecimal():
            raise InvalidRequest.at("before", "is not the id of a row of this thread's log")
        high = before.removeprefix(prefix)
    low = entries.key(head.created_at - SKEW_MICROS, "")
    page = store.logs(ref, after=low, before=high, limit=limit, descending=True)
    return [entries.row_body(ref, row) for row in reversed(page.rows)]


def newest(store: Store, ref: ThreadRef, head: Head) -> str | None:
    """Id of the newest message of the conversation: at most one read. The first of a thread counts before it has its
    place: it is there, and the command with the number 1 carries it.
    """
    if not head.messages:
        return ref.user_message(1) if head.commands else None
    places = range(max(1, head.messages - PLACES + 1), head.messages + 1)
    shown = [row for row in store.open(ref, head=False, messages=places).messages.values() if not row.deleted]
    return max(shown, key=lambda row: row.place).id if shown else None


def placed(ref: ThreadRef, head: Head, message: Message, *, attempt: int = 0) -> Draft:
    """A message that code places at the end of the conversation; it starts nothing."""
    data = {"message": wire.message_body(ref, message)}
    fact = Fact(type="message.completed", data=data, at=message.created_at, run=message.run, attempt=attempt)
    return Draft(after=replace(head, messages=message.place), facts=(fact,), messages=(message,))


def changed(
    ref: ThreadRef, head: Head, row: Message, content: tuple[Mapping[str, Any], ...] | None, metadata: Any, now: int
) -> tuple[Message, Draft]:
    """A message with other words, and the write that makes them true. Its calls stay, since their results do."""
    if row.role is Role.TOOL and content is not None:
        raise InvalidRequest.at("content", "the results of tools cannot be edited")
    calls = tuple(part for part in row.content if part["type"] == "tool_call")
    new = replace(
        row,
        content=row.content if content is None else (*content, *calls),
        metadata=row.metadata if metadata is None else metadata,
        updated_at=now,
    )
    fact = Fact(type="message.updated", data={"message": wire.message_body(ref, new)}, at=now)
    return new, Draft(after=head, facts=(fact,), messages=(new,))


def find(store: Store, ref: ThreadRef, head: Head, message_id: Any) -> Message:
    """The placed message of an id: at most two reads, more only for a run of more than 100 messages. Raises NotFound,
    and ThreadBusy for one that has no place yet.
    """
    tag = message_tag(ref, message_id) if isinstance(message_id, str) else None
    if tag is None:
        raise NotFound("There is no message with that id in this thread.")
    place = tag.place or (_place_of_command(store, ref, tag.command) if tag.command else 0)
    row = (
        store.open(ref, head=False, messages=[place]).messages.get(place)
        if place
        else _of_run(store, ref, head, tag.run, message_id)
    )
    if row is None or row.deleted or row.id != message_id:
        raise NotFound("There is no message with that id in this thread.")
    return row


def _place_of_command(store: Store, ref: ThreadRef, number: int) -> int:
    command = store.open(ref, head=False, commands=[number]).commands.get(number)
    if command is None or (command.content is None and not command.place):
        raise NotFound("There is no message with that id in this thread.")
    if not command.place:
        raise ThreadBusy("The message is still pending.")
    return command.place


def _of_run(store: Store, ref: ThreadRef, head: Head, run: int, message_id: str) -> Message | None:
    first, last = head.run_first, head.messages
    if run != head.run:
        row = store.open(ref, head=False, commands=[run]).commands.get(run)
        first, last = (row.first, row.last) if row else (0, 0)
    after = first - 1
    while first and (rows := store.messages(ref, after=after, before=last + 1, limit=100)):
        for message in rows:
            if message.id == message_id:
                return message
        after = rows[-1].place
    return None
