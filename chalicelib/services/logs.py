"""The log of a thread by the front door: an entry from outside becomes a row, and the rows are listed.

An entry has nothing to do with work: it creates no message and no event, starts nothing and wakes nobody. It is refused
for nothing but a missing name. With an idempotency key a second call answers the row of the first, and the costs of a
row are added to the thread's sum once, in the write that stores it.

Rows of all kinds are in one list, in the order of their instants. A page of a filtered list, or of a thread that was
silent for long, may be short and still have a next one.
"""

from dataclasses import dataclass
from typing import Any

from chalicelib.domain import entries, values
from chalicelib.domain.commands import Answer, Idempotency, Page, Principal, WriteLog
from chalicelib.domain.entries import LogRow
from chalicelib.domain.errors import KeyReused, NotFound
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import RESPONSE_BYTES
from chalicelib.engine import messages
from chalicelib.ports import Remembered, Store
from chalicelib.services.appending import Appender, alive, kept_key, known

#: Rows that one read brings: a row may have some 300 KB, a page has at most 1 MB.
ROWS_A_READ = 32
#: Rows that one request looks at for a filtered list.
SCANNED_ROWS = 1_000
#: Clocks of two functions may differ: rows are looked for so much beyond the thread's beginning and now.
SKEW_MICROS = 600 * 1_000_000


@dataclass(frozen=True, kw_only=True)
class Logs:
    """Logs of threads."""

    store: Store
    appender: Appender

    def write_log(self, p: Principal, thread_id: str, ask: WriteLog, idem: Idempotency | None) -> Answer:
        """An entry from outside. 201 with its row."""
        ref = known(p.org, thread_id)
        now = self.appender.clock.now()
        opened = self.store.open(ref, key=idem.key if idem else None, now=now)
        head = alive(opened.head)
        if idem is not None and opened.remembered is not None:
            return self._replay(p.org, opened.remembered, idem)
        row = LogRow(
            key=entries.key(now, self.appender.ids.token()),
            kind="app",
            at=now,
            message_id=messages.newest(self.store, ref, head),
            body=ask.body,
        )
        kept = kept_key(ref, idem, nonce=row.key, now=now) if idem else None
        logged = self.store.log(ref, row, remember=kept, now=now)
        if logged.stored:
            return Answer(status=201, body=entries.row_body(ref, row))
        if idem is not None and logged.remembered is not None:
            return self._replay(p.org, logged.remembered, idem)
        raise NotFound

    def list_logs(
        self,
        p: Principal,
        thread_id: str,
        *,
        kind: str | None,
        level: str | None,
        descending: bool,
        limit: int,
        position: Any,
    ) -> Page:
        """Rows of the log in the order of their instants, or the newest first."""
        ref = known(p.org, thread_id)
        head = alive(self.store.open(ref).head)
        low = entries.key(head.created_at - SKEW_MICROS, "")
        high = entries.key(self.appender.clock.now() + SKEW_MICROS, "")
        items: list[dict[str, Any]] = []
        size, seen, last = 0, 0, position
        while seen < SCANNED_ROWS:
            after, before = (low, last or high) if descending else (last or low, high)
            page = self.store.logs(ref, after=after, before=before, limit=ROWS_A_READ, descending=descending)
            for row in page.rows:
                body = entries.row_body(ref, row)
                if kind in (None, row.kind) and level in (None, row.body.get("app_level")):
                    size += values.size(body)
                    if items and (len(items) == limit or size > RESPONSE_BYTES):
                        return Page(items=items, next=last)
                    items.append(body)
                last = row.key
            if page.reached is None:
                return Page(items=items)
            last, seen = page.reached, seen + len(page.rows)
            if len(page.rows) < ROWS_A_READ:  # the bound of days, not of rows, has ended it
                break
        return Page(items=items, next=last)

    def _replay(self, org: str, seen: Remembered, idem: Idempotency) -> Answer:
        """The row of the first answer. Raises KeyReused when the request is another one."""
        if seen.fingerprint != idem.fingerprint:
            raise KeyReused
        ref = ThreadRef(org, seen.token)
        alive(self.store.open(ref).head)
        found = self.store.log_rows(ref, [seen.nonce])
        if not found:
            raise NotFound
        return Answer(status=200, body=entries.row_body(ref, found[0]), replayed=True)
