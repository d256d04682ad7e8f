"""`content` and `input` of a message (spec section 3, "Bodies"): a string or parts, checked and measured.

It must not know routes. A string is one text part, so that both forms are one thing from here on. What counts against
the limit of 256 KB is the UTF-8 of what the caller wrote: texts, paths, names and base64, without the JSON around it.
"""

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

from chalicelib.domain import paths
from chalicelib.domain.attachments import path_of
from chalicelib.domain.commands import Part
from chalicelib.domain.errors import InvalidRequest
from chalicelib.domain.limits import ATTACHMENTS, CONTENT_BYTES
from chalicelib.doors.body import join_path
from chalicelib.doors.http.fields import Faults, Form, open_form

# Ours: with the JSON around them, 1,000 parts of a full content still fit a row (limits.ITEM_BYTES).
PARTS = 1_000
MEDIA_CHARACTERS = 200  # ours; what a header and a row hold easily
_NAME_CHARACTERS = 255
MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(; ?[\w.+-]+=[ -~]+)?", re.ASCII)


def parts(value: Any, path: str, faults: Faults) -> tuple[Part, ...]:
    """Content in its one form; () if it is wrong, and then the faults say so."""
    if isinstance(value, str):
        found = [_text_part(value, path, faults)]
    elif isinstance(value, list):
        found = _list(value, path, faults)
    else:
        faults.add(path, "must be a string or a list of parts")
        return ()
    size = sum(len(text.encode()) for part in found for name, text in part.items() if name != "type")
    if size > CONTENT_BYTES:
        faults.add_large(path, size, CONTENT_BYTES)
    return tuple(found)


def attachments(value: Any, path: str, faults: Faults) -> tuple[Part, ...]:
    """At most 20: files of the thread by their path, or data that becomes one. `type` may be left out."""
    if not isinstance(value, list):
        faults.add(path, "must be a list")
        return ()
    if len(value) > ATTACHMENTS:
        faults.add(path, f"has {len(value)} attachments, the limit is {ATTACHMENTS}")
        return ()
    return tuple(_attachment(item, join_path(path, n), faults) for n, item in enumerate(value))


def _attachment(value: Any, path: str, faults: Faults) -> dict[str, str]:
    if isinstance(value, dict) and "type" not in value:
        value = {**value, "type": "file" if "path" in value else "data"}
    part = _part(value, path, faults, ("file", "data"))
    if part.get("type") == "data" and part["name"]:
        try:
            path_of(part["name"], at=join_path(path, "name"))
        except InvalidRequest as refusal:
            faults.wrong += refusal.faults
    return part


def _list(value: list[Any], path: str, faults: Faults) -> list[dict[str, str]]:
    if not 1 <= len(value) <= PARTS:
        faults.add(path, f"must have 1 to {PARTS} parts, it has {len(value)}")
        return []
    return [_part(item, join_path(path, n), faults, tuple(_READERS)) for n, item in enumerate(value)]


def _part(value: Any, path: str, faults: Faults, kinds: tuple[str, ...]) -> dict[str, str]:
    form = open_form(value, path, faults)
    kind = form.typed("type", str, required=True)
    if kind is None:
        return {}
    if kind not in kinds:
        faults.add(form.at("type"), f"must be one of {', '.join(kinds)}")
        return {}
    part = {"type": kind, **_READERS[kind](form)}
    form.close()
    return part


def _text_part(text: str, path: str, faults: Faults) -> dict[str, str]:
    if not text:
        faults.add(path, "must not be empty")
    return {"type": "text", "text": text}


def _text(form: Form) -> dict[str, str]:
    return _text_part(form.typed("text", str, required=True) or "", form.at("text"), form.faults)


def _file(form: Form) -> dict[str, str]:
    path = form.typed("path", str, required=True)
    return {"path": file_path(path, form) if path is not None else ""}


def file_path(path: str, form: Form) -> str:
    """The field `path` of a form in its one form (`domain.paths`); "" if it is wrong, and then the faults say so."""
    try:
        return paths.file_path(path, at=form.at("path"))
    except InvalidRequest as refusal:
        form.faults.wrong += refusal.faults
        return ""


def _data(form: Form) -> dict[str, str]:
    name = form.text("name", most=_NAME_CHARACTERS, required=True) or ""
    content_type = form.text("content_type", most=_NAME_CHARACTERS, required=True) or ""
    if content_type and not MEDIA_TYPE.fullmatch(content_type):
        form.faults.add(form.at("content_type"), "must be a media type such as image/png")
    encoded = form.typed("base64", str, required=True) or ""
    if not _is_base64(encoded):
        form.faults.add(form.at("base64"), "is not valid base64")
    return {"name": name, "content_type": content_type, "base64": encoded}


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


_READERS: dict[str, Callable[[Form], dict[str, str]]] = {"text": _text, "file": _file, "data": _data}
