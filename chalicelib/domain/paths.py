"""Paths of a thread's files: one text for one file, and no text that leaves the thread (spec section 9, Files).

A path is absolute POSIX inside its thread. It comes here decoded (the door decodes once, and nobody again), and leaves
in the only form that is stored and compared: NFC, whole segments. What could mean something else to anybody is refused
with a sentence, never mended: `.` and `..`, doubled slashes, controls, half characters, a relative path. So what was
asked for is what is stored, and a name that would be mended to another file's never reaches that file.

`place` is the order of a walk through the tree: a folder's content stands directly behind the folder, before any name
that only begins alike (`/t-1` and `/t-10`). So whatever is inside a folder is one range, and nothing else is in it.
"""

import re
import unicodedata

from chalicelib.domain.errors import InvalidRequest

ROOT = "/"
PATH_BYTES = 1024  # spec section 9; with `place` a path is also what DynamoDB takes as a sort key
#: Longer texts are refused unread. NFC can shorten a text, but nobody needs that much of it.
RAW_CHARACTERS = 4 * PATH_BYTES

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")
_HALVES = re.compile("[\ud800-\udfff]")
#: Stands for `/` in a place. No path holds a control, and every character of a path is greater.
_BELOW, _BEYOND = "\x01", "\x02"
_LAST = "\U0010ffff" * (PATH_BYTES // 4)


def file_path(text: str, *, at: str = "path") -> str:
    """The path of a file in its one form. Raises InvalidRequest, with `at` as the place of the fault."""
    path = _path(text, at)
    if path.endswith("/"):
        raise InvalidRequest.at(at, "names a folder; a file's path does not end with `/`")
    return path


def folder_path(text: str, *, at: str = "path") -> str:
    """The path of a folder in its one form: `/` for the root, no `/` at the end of any other. Raises InvalidRequest."""
    path = _path(text, at)
    return path if path == ROOT else path.removesuffix("/")


def marker(folder: str) -> str:
    """The path under which an empty folder is kept: its own with `/` at the end, which no file can have."""
    return folder if folder == ROOT else f"{folder}/"


def is_marker(path: str) -> bool:
    """True for a folder's marker."""
    return path.endswith("/")


def name(path: str) -> str:
    """The last segment."""
    return path.rstrip("/").rpartition("/")[2]


def place(path: str) -> str:
    """Where a path stands in the walk of its tree. Different paths have different places, none longer than its path."""
    return path.removeprefix("/").replace("/", _BELOW)


def range_of(folder: str) -> tuple[str, str]:
    """Places below and above everything that is inside a folder, and nothing else: no path has them itself."""
    return (_BELOW, _LAST) if folder == ROOT else (place(folder) + _BELOW, place(folder) + _BEYOND)


def after(path: str) -> str:
    """A place behind a file, or behind the mark of a folder, and before whatever follows."""
    return place(path) + _BELOW


def behind(folder: str) -> str:
    """A place behind a folder and everything in it."""
    return place(folder) + _BEYOND


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is below a folder, by whole segments; a folder's own marker is, the folder is not."""
    return path != ROOT and path.startswith(marker(folder))


def child(path: str, folder: str) -> str:
    """The entry of `folder` through which one gets to a path inside it."""
    whole = marker(folder)
    return whole + path[len(whole) :].partition("/")[0]


def _path(text: str, at: str) -> str:
    fault = _fault_before(text)
    if fault is None:
        path = unicodedata.normalize("NFC", text)
        fault = _fault_after(path)
        if fault is None:
            return path
    raise InvalidRequest.at(at, fault)


def _fault_before(text: str) -> str | None:
    if not text:
        return "must not be empty"
    if len(text) > RAW_CHARACTERS:
        return f"must have at most {PATH_BYTES} bytes"
    if found := _HALVES.search(text):
        return f"has a lone surrogate (half a character) at character {found.start()}"
    if found := _CONTROLS.search(text):
        what = "a NUL" if found[0] == "\x00" else "a control character"
        return f"has {what} at character {found.start()}"
    return None if text.startswith("/") else "must be absolute: begin with `/`"


def _fault_after(path: str) -> str | None:
    if (size := len(path.encode())) > PATH_BYTES:
        return f"must have at most {PATH_BYTES} bytes of UTF-8, it has {size}"
    segments = path[1:].removesuffix("/").split("/")
    if "" in segments and path != ROOT:
        return "must not contain an empty segment (`//`)"
    if ".." in segments:
        return "must not contain `..`"
    return "must not contain the segment `.`" if "." in segments else None
