"""What code of a thread can do with its family: look at children and parent, speak to the parent, label itself.

Children never touch the head or the log of their parent: what they say goes into its inbox, and is told by the parent's
next write. A note of the same call is put once, however often its code runs. Each method makes one request of the table
at most but for reading messages (two), and a note sends one wake-up.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain import values, wire
from chalicelib.domain.children import cut_result
from chalicelib.domain.errors import InvalidRequest, NotFound
from chalicelib.domain.ids import ThreadRef, child_numbers
from chalicelib.domain.model import ChildKind, Head, Report, ReportKind
from chalicelib.engine import messages
from chalicelib.engine.hands import Body, checked_limit, in_python
from chalicelib.engine.log import Log

#: Rows of the registry that one look brings, newest first.
SHOWN = 50
LABEL_CHARACTERS = 160


@dataclass(frozen=True, kw_only=True)
class Relative:
    """Another thread of the family, to look at."""

    log: Log
    ref: ThreadRef

    @property
    def thread_id(self) -> str:
        """Its public id."""
        return self.ref.id

    def status(self) -> Body:
        """`{"state", "since", "reason"}`. Raises LookupError if it is gone."""
        with in_python():
            return wire.status_body(self._head())

    def get_messages(self, limit: int = 50) -> list[Body]:
        """Its newest messages, oldest first, silent ones included."""
        with in_python():
            checked_limit(limit, messages.WINDOW)
            return messages.window(self.log.store, self.ref, self._head(), limit=limit, before=None, silent=True)

    def _head(self) -> Head:
        head = self.log.store.open(self.ref).head
        if head is None or head.deleted_at:
            raise NotFound("There is no such thread any more.")
        return head


@dataclass(kw_only=True)
class Kin:
    """The family of one thread, for one execution. `token` names the execution, `now` gives microseconds."""

    log: Log
    ref: ThreadRef
    head: Head
    token: str
    now: Callable[[], int]
    safe: Callable[[Any], Any]
    notes: int = field(default=0, init=False)

    def children(self) -> list[Body]:
        """The newest rows of the registry, newest first."""
        with in_python():
            rows = self.log.store.children(self.ref, limit=SHOWN, descending=True)
            return [wire.child_body(self.ref, row) for row in rows]

    def parent(self) -> Relative | None:
        """The thread whose agent made this one; None for a root."""
        return Relative(log=self.log, ref=ThreadRef(self.ref.org, self.head.parent)) if self.head.parent else None

    def child(self, reference: str) -> Relative:
        """A child thread by its reference. Raises LookupError."""
        with in_python():
            named = [reference] if isinstance(reference, str) and child_numbers(reference) else []
            row = self.log.store.open(self.ref, head=False, children=named).children.get(reference) if named else None
            if row is None or row.kind is not ChildKind.THREAD:
                raise NotFound(f"This thread has no subagent {reference!r}.")
            return Relative(log=self.log, ref=ThreadRef(self.ref.org, row.token))

    def notify(self, content: Any) -> bool:
        """Tell the parent something now. False: there is nobody to hear it."""
        self.notes += 1
        key = f"{self.head.reference}.note.{self.token}.{self.notes}"
        said = cut_result(self.safe(content))
        return self._tell(
            Report(key=key, reference=self.head.reference, kind=ReportKind.NOTE, result=said, at=self.now())
        )

    def label(self, label: str) -> None:
        """Write a label into the parent's registry; a root has none, and nothing happens."""
        with in_python():
            if not isinstance(label, str) or not label.strip():
                raise InvalidRequest.at("label", "must be a text that is not empty")
        text = values.cut_text(values.safe_text(str(self.safe(label))), LABEL_CHARACTERS)
        key = f"{self.head.reference}.label"
        self._tell(Report(key=key, reference=self.head.reference, kind=ReportKind.LABEL, outcome=text, at=self.now()))

    def _tell(self, report: Report) -> bool:
        if not self.head.parent:
            return False
        parent = ThreadRef(self.ref.org, self.head.parent)
        with in_python():
            told = self.log.store.report(parent, report)
        if told and report.kind is ReportKind.NOTE:
            self.log.wake_for(parent, report.key)
        return told
