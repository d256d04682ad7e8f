"""Attachments as they are stored: put beside those that are there, and carried from one thread of a family to another.

Bytes are put, or copied, before the write that makes them visible, under the name of their content: twice changes
nothing. The write is a decision on the head of the thread that gets them, as every change of its files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chalicelib.domain import attachments, paths
from chalicelib.domain.children import Heard
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import ChildKind, File
from chalicelib.ports import FileObjects, Store

#: Names that are looked at for a free one; a folder with more gets names that differ by their content.
LOOKED_AT = 1_000


@dataclass(frozen=True, kw_only=True)
class Bag:
    """Puts attachments into threads."""

    store: Store
    objects: FileObjects

    def named(self, ref: ThreadRef, files: Sequence[File], *, is_new: bool = False) -> list[File]:
        """Files under names that are free in the thread, as it stands now; a new one has none."""
        taken = set() if is_new else self._taken(ref)
        found = []
        for file in files:
            path = attachments.free(file.path, taken)
            taken.add(path)
            found.append(replace(file, path=path))
        return found

    def carry(self, source: ThreadRef, target: ThreadRef, text: str, now: int) -> list[File]:
        """Copy the attachments that a text mentions; answers them as they stood in the source."""
        found = []
        for path in attachments.mentioned(text):
            place = paths.place(path)
            rows = self.store.files(source, low=place, high=place, limit=1)
            if rows:
                self.objects.copy(source, target, rows[0].sha256)
                found.append(replace(rows[0], created_at=now, updated_at=now))
        return found

    def bring_home(self, ref: ThreadRef, heard: Sequence[Heard], now: int) -> tuple[list[Heard], tuple[File, ...]]:
        """Reports whose words mention attachments of the child: copied to the parent under names that are free there,
        the words rewritten. The files become visible with the write that tells the reports.
        """
        told: list[Heard] = []
        brought: list[File] = []
        for report, child in heard:
            if child.kind is ChildKind.THREAD and isinstance(report.result, str):
                found = self.carry(ThreadRef(ref.org, child.token), ref, report.result, now)
                placed = self.named(ref, found) if found else []
                moved = {old.path: new.path for old, new in zip(found, placed, strict=True)}
                report = replace(report, result=attachments.rewritten(report.result, moved))
                brought += placed
            told.append((report, child))
        return told, tuple(brought)

    def _taken(self, ref: ThreadRef) -> set[str]:
        low, high = paths.range_of(attachments.FOLDER)
        return {row.path for row in self.store.files(ref, low=low, high=high, limit=LOOKED_AT)}
