"""Files as the tools of a run see them: reads at once, changes by the thread that writes, searches with bounds.

A tool runs on a thread of its own and never writes (decision 0007). It puts bytes away, hands the change to the turn's
thread and goes on when it is stored under the attempt's fencing token; what a lost attempt hands over is never written.
"""

import fnmatch
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from chalicelib.domain import paths
from chalicelib.domain.errors import InvalidRequest, NotFound, RetryLater, TooLarge
from chalicelib.domain.limits import FILE_BYTES, KB, UPLOAD_BYTES
from chalicelib.domain.model import File, Head
from chalicelib.domain.queueing import Draft
from chalicelib.engine.files import ROWS_A_QUERY, UNTYPED, Change, Entry, Shelf, entry_of, new_file
from chalicelib.ports import Cancel, Clock

TEXT = "text/plain; charset=utf-8"
#: How often a tool that waits for its write looks whether its run still wants it.
WAIT_SECONDS = 0.05
#: Bounds of one search: files that are opened, bytes of one and of all, lines found, seconds.
GREP_FILES = 200
GREP_FILE_BYTES, GREP_BYTES = FILE_BYTES, 16 * KB * KB
GREP_MATCHES = 200
GREP_SECONDS = 20.0
GREP_LINE = 500  # characters of a line that are shown
PATTERN_CHARACTERS = 1024
TYPE_CHARACTERS = 200
#: A file with a NUL in its beginning is no text (as git has it).
BINARY_BYTES = 8_000


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Entries of a folder for a tool; `truncated`: there is more than was looked at."""

    entries: list[Entry]
    truncated: bool


@dataclass(frozen=True, kw_only=True)
class Found:
    """Paths that fit a pattern; `truncated`: there may be more."""

    paths: list[str]
    truncated: bool


@dataclass(frozen=True, kw_only=True)
class Match:
    """A line that holds what was searched for; `line` counts from 1."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Grep:
    """Lines that were found; `truncated`: a bound of time, size or number ended the search."""

    matches: list[Match]
    truncated: bool


class Abandoned(Exception):
    """Nobody waits for this tool any more: its time is over, its run has ended or another attempt has taken it."""


class Asked:
    """A change that a tool wants, on its way to the thread that writes; the tool waits for its fate."""

    def __init__(self, call_id: str, change: Change, *, of_run: bool = True) -> None:
        self.call_id = call_id
        self.change = change
        self.of_run = of_run
        """True if what the change tells belongs to the run."""
        self.refusal: Exception | None = None
        self._settled = threading.Event()

    def settle(self, refusal: Exception | None = None) -> None:
        """The change is stored, or refused."""
        self.refusal = refusal
        self._settled.set()

    def wait(self, cancel: Cancel) -> None:
        """Wait until the change is stored. Raises its refusal, or Abandoned if it never will be."""
        while not self._settled.wait(WAIT_SECONDS):
            if cancel.wait(0) and not self._settled.is_set():
                raise Abandoned("The run no longer waits for this tool.")
        if self.refusal is not None:
            raise self.refusal


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """Files for the tools of a run. Bad paths are ValueError; the rest are the errors of Python's own files.

    A change is stored when the call returns: `ask` hands it to the attempt's writing thread, under its fencing token.
    """

    shelf: Shelf
    clock: Clock
    cancel: Cancel
    ask: Callable[[Change], None]

    def write(self, path: str, data: bytes | str, content_type: str | None) -> Entry:
        """Create or replace a file; answers it."""
        with _as_python_has_it():
            raw = data.encode() if isinstance(data, str) else bytes(data)
            if len(raw) > UPLOAD_BYTES:
                raise TooLarge(f"A file has at most {UPLOAD_BYTES} bytes, this one would have {len(raw)}.")
            kind = _type_of(content_type, TEXT if isinstance(data, str) else UNTYPED)
            new = new_file(paths.file_path(path), raw, kind, self.clock.now())
            self.shelf.objects.put(self.shelf.ref, new.sha256, raw)
            stands = [new]

            def change(head: Head) -> Draft | None:
                stands[0], draft = self.shelf.written(head, new)
                return draft

            self.ask(change)
            return entry_of(stands[0])

    def read(self, path: str) -> bytes:
        """The whole file."""
        return b"".join(self.stream(path))

    def stream(self, path: str) -> Iterator[bytes]:
        """The file in pieces of at most 1 MB."""
        with _as_python_has_it():
            row = self.shelf.file(paths.file_path(path))
            yield from self.shelf.objects.read(self.shelf.ref, row.sha256)

    def stat(self, path: str) -> Entry | None:
        """What is at a path, None if nothing is."""
        with _as_python_has_it():
            folder = paths.folder_path(path)
            return Entry(path=folder, kind="directory") if folder == paths.ROOT else self.shelf.entry(folder)

    def entries(self, folder: str) -> Listing:
        """What is directly in a folder."""
        with _as_python_has_it():
            page = self.shelf.entries(paths.folder_path(folder), position=None, limit=ROWS_A_QUERY, queries=1)
            return Listing(entries=page.items, truncated=page.position is not None)

    def delete(self, path: str) -> None:
        """Remove a file."""
        with _as_python_has_it():
            wanted = paths.file_path(path)
            self.ask(lambda head: self.shelf.removed(head, wanted, self.clock.now()))

    def make(self, folder: str) -> None:
        """Make a folder that stays when it is empty; one that is there stays as it is."""
        with _as_python_has_it():
            wanted = paths.folder_path(paths.marker(paths.folder_path(folder)))  # with its mark it must fit as well
            self.ask(lambda head: self.shelf.made(head, wanted, self.clock.now()))

    def remove(self, folder: str) -> None:
        """Remove an empty folder."""
        with _as_python_has_it():
            wanted = paths.folder_path(folder)
            self.ask(lambda head: self.shelf.unmade(head, wanted, self.clock.now()))

    def find(self, pattern: str, folder: str) -> Found:
        """Paths of files below a folder that fit a pattern; see `fits`."""
        with _as_python_has_it():
            _check_pattern(pattern)
            below = paths.folder_path(folder)
            rows, more = self.shelf.walk(below)
            inside = (row.path for row in rows if paths.is_inside(row.path, below))
            return Found(paths=[path for path in inside if fits(path, below, pattern)], truncated=more)

    def grep(self, text: str, folder: str) -> Grep:
        """Lines of text files below a folder, or of one file, that hold a text, literally."""
        with _as_python_has_it():
            _check_pattern(text)
            rows, more = self.shelf.walk(paths.folder_path(folder))
            return self._grep(text, rows, truncated=more)

    def _grep(self, text: str, rows: list[File], *, truncated: bool) -> Grep:
        until = self.clock.monotonic() + GREP_SECONDS
        matches: list[Match] = []
        looked, size = 0, 0
        for row in rows:
            if row.bytes > GREP_FILE_BYTES:
                truncated = True
                continue
            looked, size = looked + 1, size + row.bytes
            over = looked > GREP_FILES or size > GREP_BYTES or self.clock.monotonic() >= until or self.cancel.wait(0)
            if over or len(matches) > GREP_MATCHES:
                truncated = True
                break
            data = b"".join(self.shelf.objects.read(self.shelf.ref, row.sha256))
            matches += _lines(row.path, data, text, GREP_MATCHES + 1 - len(matches))
        return Grep(matches=matches[:GREP_MATCHES], truncated=truncated or len(matches) > GREP_MATCHES)


def fits(path: str, folder: str, pattern: str) -> bool:
    """Whether a path below a folder fits a pattern, segment by segment: `*`, `?` and `[..]` inside a segment, `**` for
    any number of them. A pattern without `/` is for names anywhere below. Time is bounded by the product of lengths.
    """
    below = path[len(paths.marker(folder)) :].split("/")
    if "/" not in pattern:
        return bool(_segment(pattern)(below[-1]))
    wanted = pattern.strip("/").split("/")
    reached = {0}
    for name in below:
        reached = _step(wanted, _opened(wanted, reached), name)
    return len(wanted) in _opened(wanted, reached)


def _opened(wanted: list[str], reached: set[int]) -> set[int]:
    """Places in a pattern, and those that one gets to because `**` may stand for nothing."""
    opened = set(reached)
    for at, segment in enumerate(wanted):
        if at in opened and segment == "**":
            opened.add(at + 1)
    return opened


def _step(wanted: list[str], reached: set[int], name: str) -> set[int]:
    stay = {at for at in reached if at < len(wanted) and wanted[at] == "**"}
    go = {at + 1 for at in reached if at < len(wanted) and wanted[at] != "**" and _segment(wanted[at])(name)}
    return stay | go


@lru_cache(maxsize=256)
def _segment(pattern: str) -> Callable[[str], bool]:
    return lambda name: fnmatch.fnmatchcase(name, pattern)


def _check_pattern(text: str) -> None:
    if not 1 <= len(text) <= PATTERN_CHARACTERS:
        raise InvalidRequest.at("pattern", f"must have 1 to {PATTERN_CHARACTERS} characters")


def _lines(path: str, data: bytes, text: str, most: int) -> list[Match]:
    if b"\x00" in data[:BINARY_BYTES] or text.encode("utf-8", "replace") not in data:
        return []
    found: list[Match] = []
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), start=1):
        if text in line and len(found) < most:
            found.append(Match(path=path, line=number, text=line.rstrip("\r")[:GREP_LINE]))
    return found


@contextmanager
def _as_python_has_it() -> Iterator[None]:
    """Refusals as what Python raises for files, in their own words."""
    try:
        yield
    except NotFound as refusal:
        raise FileNotFoundError(refusal.detail) from None
    except (InvalidRequest, TooLarge) as refusal:
        raise ValueError(refusal.detail) from None
    except RetryLater as refusal:
        raise OSError(refusal.detail) from None


def _type_of(content_type: str | None, default: str) -> str:
    """A media type that fits a header and a row; what a tool made up otherwise is bytes."""
    if content_type is None:
        return default
    fits_header = content_type.isascii() and content_type.isprintable()
    return content_type if fits_header and 0 < len(content_type) <= TYPE_CHARACTERS else UNTYPED
