"""Files of a thread: what is where, and what a change becomes. Doors of clients and tools of a run use the same rules.

A file's bytes are put away first, under the name of their hash; the write that tells `file.changed` makes them visible,
behind the head's condition. So order, fence and repetition are the log's, and a write that never happened leaves an
object that nothing names. A change that changes nothing (the same bytes and type) writes nothing: whoever sends a
request twice leaves one event.

Folders are there as long as something is in them. One that was made as such has a row of its own until it is removed.
A path is never both a file and a folder, so that every thread's files fit on a disk.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from chalicelib.domain import paths
from chalicelib.domain.errors import InvalidRequest, NotFound
from chalicelib.domain.events import Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import File, Head
from chalicelib.domain.queueing import Draft
from chalicelib.ports import FileObjects, Store

UNTYPED = "application/octet-stream"
#: Rows that one query brings: of paths of 1 KB they are less than the 1 MB that DynamoDB answers at once.
ROWS_A_QUERY = 400
#: Queries that one page of a list makes. Each but the last leaps over a folder or brings whole rows of entries.
QUERIES_A_PAGE = 8

Change = Callable[[Head], Draft | None]
"""A change as a decision on a head; None: there is nothing to change."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file or a folder as it is shown. A folder has no bytes; its instants are known if it was made as such."""

    path: str
    kind: Literal["file", "directory"]
    bytes: int | None = None
    sha256: str | None = None
    content_type: str | None = None
    created_at: int | None = None
    updated_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Entries:
    """A page of a folder. `position` is where the next one begins, None at the end."""

    items: list[Entry]
    position: str | None = None


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """The files of one thread, as they are stored."""

    store: Store
    objects: FileObjects
    ref: ThreadRef

    def entry(self, path: str) -> Entry | None:
        """What is at a path: one query, since a folder's content stands directly behind its own place."""
        row = self.first(path)
        if row is None:
            return None
        return entry_of(row) if row.path in (path, paths.marker(path)) else Entry(path=path, kind="directory")

    def file(self, path: str) -> File:
        """The file at a path. Raises NotFound."""
        row = self.first(path)
        if row is None or row.path != path:
            raise NotFound("There is no file at that path.")
        return row

    def entries(self, folder: str, *, position: str | None, limit: int, queries: int = QUERIES_A_PAGE) -> Entries:
        """What is directly in a folder, from a position on. A page may be short and still have a next one."""
        low, high = paths.range_of(folder)
        low = position or low
        items: list[Entry] = []
        for _ in range(queries):
            rows = self.store.files(self.ref, low=low, high=high, limit=ROWS_A_QUERY)
            for row in rows:
                if row.path == paths.marker(folder):
                    low = paths.after(row.path)
                elif not items or not paths.is_inside(row.path, items[-1].path):
                    if len(items) == limit:
                        return Entries(items=items, position=low)
                    items.append(_seen_from(folder, row))
                    low = paths.after(row.path) if items[-1].kind == "file" else paths.behind(items[-1].path)
            if len(rows) < ROWS_A_QUERY:
                return Entries(items=items)
        return Entries(items=items, position=low)

    def walk(self, path: str) -> tuple[list[File], bool]:
        """The file at a path, or the files in and below a folder; True if there may be more than one query brings."""
        low, high = paths.range_of(path)
        low = low if path == paths.ROOT else paths.place(path)
        rows = self.store.files(self.ref, low=low, high=high, limit=ROWS_A_QUERY)
        return [row for row in rows if not paths.is_marker(row.path)], len(rows) == ROWS_A_QUERY

    def written(self, head: Head, new: File) -> tuple[File, Draft | None]:
        """A file with its new bytes, which are put away already, as it stands then, and the change if it is one.

        Raises InvalidRequest where a folder or a file is in the way.
        """
        old = self.first(new.path)
        if old is not None and old.path != new.path:
            raise InvalidRequest.at("path", f"`{new.path}` is a folder")
        if old is None:
            self._check_way(new.path)
            return new, _told(head, "created", new, files=(new,))
        if (old.sha256, old.bytes, old.content_type) == (new.sha256, new.bytes, new.content_type):
            return old, None
        row = replace(new, created_at=old.created_at)
        return row, _told(head, "updated", row, files=(row,))

    def removed(self, head: Head, path: str, now: int) -> Draft:
        """A file that is gone. Raises NotFound."""
        return _told(head, "deleted", replace(self.file(path), updated_at=now), gone=(path,))

    def made(self, head: Head, folder: str, now: int) -> Draft | None:
        """A folder that stays when it is empty. Raises InvalidRequest where a file is in the way."""
        row = self.first(folder)
        mark = paths.marker(folder)
        if folder == paths.ROOT or (row is not None and row.path == mark):
            return None
        if row is not None and row.path == folder:
            raise InvalidRequest.at("path", f"`{folder}` is a file")
        if row is None:
            self._check_way(folder)
        made = File(path=mark, created_at=now, updated_at=now)
        return _told(head, "created", made, files=(made,))

    def unmade(self, head: Head, folder: str, now: int) -> Draft:
        """An empty folder that is gone. Raises NotFound, and InvalidRequest for one that is not empty."""
        low, high = paths.range_of(folder)
        rows = self.store.files(self.ref, low=low, high=high, limit=2)
        mark = paths.marker(folder)
        if not rows or folder == paths.ROOT:
            raise NotFound("There is no such folder.")
        if len(rows) > 1 or rows[0].path != mark:
            raise InvalidRequest.at("path", f"`{folder}` is not empty")
        return _told(head, "deleted", replace(rows[0], updated_at=now), gone=(mark,))

    def first(self, path: str) -> File | None:
        """The row at a path, else the first one inside it."""
        low, high = paths.place(path), paths.behind(path)
        rows = self.store.files(self.ref, low=low, high=high, limit=1) if path != paths.ROOT else []
        return rows[0] if rows else None

    def _check_way(self, path: str) -> None:
        """A file on the way to a new path: in the order of places nothing else can stand directly before it."""
        low, _ = paths.range_of(paths.ROOT)
        before = self.store.files(self.ref, low=low, high=paths.place(path), limit=1, descending=True)
        if before and not paths.is_marker(before[0].path) and paths.is_inside(path, before[0].path):
            raise InvalidRequest.at("path", f"`{before[0].path}` is a file, nothing can be inside it")


def entry_of(row: File) -> Entry:
    """A row as it is shown."""
    if paths.is_marker(row.path):
        folder = row.path.removesuffix("/")
        return Entry(path=folder, kind="directory", created_at=row.created_at, updated_at=row.updated_at)
    return Entry(
        path=row.path,
        kind="file",
        bytes=row.bytes,
        sha256=row.sha256,
        content_type=row.content_type,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def new_file(path: str, data: bytes, content_type: str, now: int) -> File:
    """A file of these bytes."""
    sha256 = hashlib.sha256(data).hexdigest()
    return File(path=path, bytes=len(data), sha256=sha256, content_type=content_type, created_at=now, updated_at=now)


def added(head: Head, rows: Sequence[File]) -> Draft:
    """New files, whose bytes are put away already, with their events."""
    facts = tuple(fact for row in rows for fact in _told(head, "created", row).facts)
    return Draft(after=head, facts=facts, files=tuple(rows))


def _seen_from(folder: str, row: File) -> Entry:
    path = paths.child(row.path, folder)
    return entry_of(row) if row.path in (path, paths.marker(path)) else Entry(path=path, kind="directory")


def _told(head: Head, change: str, row: File, *, files: tuple[File, ...] = (), gone: tuple[str, ...] = ()) -> Draft:
    """A change with its event; of what is deleted the event names the bytes that are gone."""
    data = {"path": row.path, "change": change, "bytes": row.bytes, "sha256": row.sha256 or None}
    fact = Fact(type="file.changed", data=data, at=row.updated_at)
    return Draft(after=head, facts=(fact,), files=files, gone_files=gone)
