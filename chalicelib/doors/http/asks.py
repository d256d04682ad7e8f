"""Bodies of the mutating routes become the records of `domain.commands`, or one refusal that names every fault.

It must not know services or events. Defaults are filled in here, so that a body with explicit defaults and one
without them are the same ask, and have the same fingerprint.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from chalicelib.domain import entries
from chalicelib.domain.commands import (
    AnswerQuestion,
    CreateRun,
    CreateThread,
    Decide,
    Delivery,
    PatchMessage,
    PatchThread,
    Say,
    StartUpload,
    WriteLog,
)
from chalicelib.domain.errors import InvalidRequest
from chalicelib.domain.limits import (
    ARGUMENTS_BYTES,
    METADATA_BYTES,
    TAG_CHARACTERS,
    TAGS,
    TITLE_CHARACTERS,
    TOOL_RESULT_BYTES,
)
from chalicelib.doors.body import join_path
from chalicelib.doors.http.content import MEDIA_CHARACTERS, MEDIA_TYPE, attachments, file_path, parts
from chalicelib.doors.http.fields import Form, body_form, json_bytes, open_form

A = TypeVar("A")

REASON_CHARACTERS = 1000  # ours: the model reads it
NAME_CHARACTERS = 200  # ours, for names that the spec leaves open: agent, model, user, parent run
UNTYPED = "application/octet-stream"
_SHA256 = re.compile("[0-9a-f]{64}")
_LATER_DELIVERIES = ("interrupt", "rollback")  # spec section 3; they come with the queue


def nothing(value: Any) -> None:
    """A body of a route that needs none: an empty object."""
    form = body_form(value)
    form.close()
    form.faults.check()


def create_thread(value: Any) -> CreateThread:
    """Body of POST /threads."""
    form = body_form(value)
    agent = form.text("agent", most=NAME_CHARACTERS, required=True)
    ask = CreateThread(
        agent=agent or "",
        title=_title(form),
        arguments=form.mapping("arguments", most_bytes=ARGUMENTS_BYTES) or {},
        tags=_tags(form) or (),
        user=form.text("user", most=NAME_CHARACTERS),
        message=_first_message(form),
    )
    return _finished(form, ask)


def post_message(value: Any) -> Say:
    """Body of POST messages."""
    form = body_form(value)
    return _finished(form, _say(form))


def create_run(value: Any) -> CreateRun:
    """Body of POST runs."""
    form = body_form(value)
    ask = CreateRun(
        content=_content(form, "input", required=True) or (),
        parent_run_id=form.text("parent_run_id", most=NAME_CHARACTERS),
        model=form.text("model", most=NAME_CHARACTERS),
        delivery=_delivery(form, Delivery.ENQUEUE),
    )
    return _finished(form, ask)


def patch_thread(value: Any) -> PatchThread:
    """Body of PATCH of a thread; at least one field."""
    form = body_form(value)
    ask = PatchThread(title=_title(form), tags=_tags(form))
    _something(form, value, "title, tags")
    return _finished(form, ask)


def patch_message(value: Any) -> PatchMessage:
    """Body of PATCH of a message; at least one field."""
    form = body_form(value)
    ask = PatchMessage(
        content=_content(form, "content"),
        metadata=form.mapping("metadata", most_bytes=METADATA_BYTES),
    )
    _something(form, value, "content, metadata")
    return _finished(form, ask)


def write_log(value: Any) -> WriteLog:
    """Body of POST logs. Only a name is needed; what is wrong besides is dropped or cut, as it is from code."""
    body_form(value)
    if not entries.usable_name(value):
        raise InvalidRequest.at("name", "is required: a text that is not empty")
    return WriteLog(body=entries.app_body(value))


def put_value(value: Any) -> Any:
    """Body of PUT of a durable value: any JSON as `value`."""
    form = body_form(value)
    return _finished(form, form.any("value", required=True))


def answer_question(value: Any) -> AnswerQuestion:
    """Body of POST answer: any JSON as `answer`."""
    form = body_form(value)
    answer = form.any("answer", required=True)
    if (size := json_bytes(answer)) > TOOL_RESULT_BYTES:  # it becomes what the model reads as the result
        form.faults.add_large(form.at("answer"), size, TOOL_RESULT_BYTES)
    return _finished(form, AnswerQuestion(answer=answer))


def decide(value: Any) -> Decide:
    """Body of POST decision."""
    form = body_form(value)
    decision = form.typed("decision", str, required=True)
    if decision is not None and decision not in ("approve", "reject"):
        form.faults.add(form.at("decision"), "must be approve or reject")
    reason = form.text("reason", most=REASON_CHARACTERS)
    return _finished(form, Decide(approve=decision == "approve", reason=reason))


def start_upload(value: Any) -> StartUpload:
    """Body of POST uploads."""
    form = body_form(value)
    path = form.typed("path", str, required=True)
    size = form.typed("bytes", int, required=True)
    if size is not None and size < 0:
        form.faults.add(form.at("bytes"), "must not be negative")
    kind = form.text("content_type", most=MEDIA_CHARACTERS)
    if kind and not MEDIA_TYPE.fullmatch(kind):
        form.faults.add(form.at("content_type"), "must be a media type such as image/png")
    sha256 = form.typed("sha256", str)
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        form.faults.add(form.at("sha256"), "must be 64 hex digits in lower case")
    ask = StartUpload(
        path=file_path(path, form) if path is not None else "",
        bytes=size or 0,
        content_type=kind or UNTYPED,
        sha256=sha256,
    )
    return _finished(form, ask)


def _finished(form: Form, ask: A) -> A:
    form.close()
    form.faults.check()
    return ask


def _something(form: Form, value: Any, names: str) -> None:
    if value == {}:
        form.faults.add("", f"at least one of {names} is required")


def _first_message(form: Form) -> Say | None:
    value = form.any("message")
    if not form.has("message"):
        return None
    path = form.at("message")
    if isinstance(value, str):
        return Say(content=parts(value, path, form.faults), metadata={})
    inner = open_form(value, path, form.faults)
    say = _say(inner)
    inner.close()
    return say


def _say(form: Form) -> Say:
    return Say(
        content=_content(form, "content", required=True) or (),
        attachments=attachments(form.any("attachments"), form.at("attachments"), form.faults)
        if form.has("attachments")
        else (),
        metadata=form.mapping("metadata", most_bytes=METADATA_BYTES) or {},
        delivery=_delivery(form, Delivery.JOIN),
        silent=form.typed("silent", bool) or False,
    )


def _content(form: Form, name: str, *, required: bool = False) -> tuple[Mapping[str, Any], ...] | None:
    value = form.any(name, required=required)
    return parts(value, form.at(name), form.faults) if form.has(name) else None


def _delivery(form: Form, default: Delivery) -> Delivery:
    value = form.typed("delivery", str)
    if value is None:
        return default
    if value in _LATER_DELIVERIES:
        form.faults.add(form.at("delivery"), f"`{value}` is not available yet; {', '.join(Delivery)} are")
        return default
    try:
        return Delivery(value)
    except ValueError:
        form.faults.add(form.at("delivery"), f"must be one of {', '.join(Delivery)}")
        return default


def _title(form: Form) -> str | None:
    return form.text("title", least=0, most=TITLE_CHARACTERS)


def _tags(form: Form) -> tuple[str, ...] | None:
    """Tags are a set: one that is there twice is kept once."""
    value = form.typed("tags", list)
    if value is None:
        return None
    path = form.at("tags")
    if len(value) > TAGS:
        form.faults.add(path, f"has {len(value)} tags, the limit is {TAGS}")
    for n, tag in enumerate(value[:TAGS]):
        if not isinstance(tag, str) or not 1 <= len(tag) <= TAG_CHARACTERS:
            form.faults.add(join_path(path, n), f"must be a string of 1 to {TAG_CHARACTERS} characters")
    return tuple(dict.fromkeys(tag for tag in value if isinstance(tag, str)))
