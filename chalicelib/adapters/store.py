"""The Store port on one DynamoDB table: reads by computed keys, the commit, the lease as single conditional updates.

It must not know what the numbers of a head mean to the engine, only where they are kept. Guarantees: reads are strongly
consistent unless they go by an index; a write states its condition in the same request; what may pass is retried with
the same request, and a write whose answer was lost is recognised by its own name.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate, islice
from typing import NamedTuple, TypeVar

from pynamodb.expressions.operand import Path

from chalicelib.adapters import commit as commits
from chalicelib.adapters import effects as effect_rows
from chalicelib.adapters import keys, logs, pages, rows, upward
from chalicelib.adapters.codec import Item, Value, to_json
from chalicelib.adapters.keys import Key
from chalicelib.adapters.table import Refused, Table
from chalicelib.adapters.writes import Test, number, update
from chalicelib.domain.entries import LogRow
from chalicelib.domain.events import Event
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import About, Child, Command, Effect, File, Head, Inquiry, Message, Report
from chalicelib.domain.model import Value as DurableValue
from chalicelib.ports import Commit, Committed, Due, Logged, LogPage, Moved, Opened, Remembered

T = TypeVar("T")

SORT, ACTIVITY, DUE = Path("sk"), Path("act_sk"), Path("due_at")
ABOUT_THREADS = 50  # two rows a thread, 100 keys in a batch read


class Family(NamedTuple):
    """Rows that are numbered from 1 without holes and kept in blocks."""

    size: int
    partition: Callable[[ThreadRef, int], str]
    newest: Callable[[Head], int]


COMMANDS = Family(size=keys.COMMANDS_IN_BLOCK, partition=keys.commands, newest=lambda head: head.commands)
MESSAGES = Family(size=keys.MESSAGES_IN_BLOCK, partition=keys.messages, newest=lambda head: head.messages)


class TableStore:
    """`ports.Store` on a table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def open(
        self,
        ref: ThreadRef,
        *,
        head: bool = True,
        about: bool = False,
        commands: Collection[int] = (),
        messages: Collection[int] = (),
        calls: Collection[str] = (),
        values: Collection[str] = (),
        inquiries: Collection[str] = (),
        children: Collection[str] = (),
        effects: Collection[str] = (),
        spent: bool = False,
        key: str | None = None,
        now: int = 0,
    ) -> Opened:
        """See the port. Raises ValueError for more than 100 rows."""
        of_commands = {keys.command(ref, number): number for number in commands}
        of_messages = {keys.message(ref, place): place for place in messages}
        of_calls = {keys.call(ref, call_id): call_id for call_id in calls}
        of_values = {keys.value(ref, name): name for name in values}
        of_inquiries = {keys.inquiry(ref, inquiry_id): inquiry_id for inquiry_id in inquiries}
        of_children = {keys.child(ref, reference): reference for reference in children}
        of_effects = {keys.effect(ref, name): name for name in effects}
        singles = [keys.head(ref)] * head + [keys.about(ref)] * about + [keys.spent(ref)] * spent
        of_key = [keys.idempotency(ref.org, key)] if key is not None else []
        of_rows = [*of_commands, *of_messages, *of_calls, *of_values, *of_inquiries, *of_children, *of_effects]
        found = self._table.get([*singles, *of_rows, *of_key])
        return Opened(
            head=_shaped(found, keys.head(ref), rows.head_of),
            about=_shaped(found, keys.about(ref), rows.about_of),
            commands={number: rows.command_of(found[at]) for at, number in of_commands.items() if at in found},
            messages={place: rows.message_of(found[at]) for at, place in of_messages.items() if at in found},
            calls={call_id: rows.call_of(found[at]) for at, call_id in of_calls.items() if at in found},
            values={name: rows.value_of(found[at]) for at, name in of_values.items() if at in found},
            inquiries={name: rows.inquiry_of(found[at]) for at, name in of_inquiries.items() if at in found},
            children={name: rows.child_of(found[at]) for at, name in of_children.items() if at in found},
            effects={name: rows.effect_of(found[at]) for at, name in of_effects.items() if at in found},
            app_cost=rows.app_cost_of(found.get(keys.spent(ref))),
            remembered=_alive(found.get(of_key[0]) if of_key else None, now),
        )

    def commit(self, commit: Commit) -> Committed | Moved:
        """See the port. Raises ValueError for a commit that is larger than AWS takes."""
        result = commits.send(self._table, commits.plan(commit, self._table.name))
        if isinstance(result, Moved) and result.closed and commit.upward and commit.upward.act == "report":
            return self.commit(replace(commit, upward=None))  # the parent does not want to know: it happens without
        return result

    def remember(self, org: str, row: Remembered, now: int) -> Remembered:
        """See the port."""
        try:
            self._table.write("put_item", commits.remember(self._table.name, org, row, now))
        except Refused as refused:
            return rows.remembered_of(refused.item) if refused.item else row
        return row

    def take(self, ref: ThreadRef, *, now: int, until: int, nonce: str, takeover: bool) -> tuple[Head | None, bool]:
        """See the port. The due time stands: the sweep puts it off while the lease lives, which spares a short turn
        two writes of the index.
        """
        ended = Test("lu", "<=", number(now)) if takeover else Test("lu", "absent")
        head, mine = self._take(ref, ended, until, nonce, epoch=takeover)
        if takeover and head and not mine and not head.lease_until:
            return self._take(ref, Test("lu", "absent"), until, nonce, epoch=False)
        return head, mine

    def renew(self, ref: ThreadRef, *, run: int, attempt: int, until: int) -> Head | None:
        """See the port. An end that is reached already is answered and not written again, so that `rev` rises once."""
        fence = (Test("run", "=", number(run)), Test("att", "=", number(attempt)), Test("lu", "<", number(until)))
        put = {"lu": number(until), "due_at": number(until), "due_pk": rows.due_pk(ref)}
        try:
            return self._move(ref, *fence, put=put, add={"rev": 1})
        except Refused as refused:
            head = rows.head_of(refused.item) if refused.item else None
            held = head and (head.run, head.run_attempt) == (run, attempt) and head.lease_until >= until
            return head if held else None

    def claim(self, ref: ThreadRef, *, rev: int, due_at: int, wake: bool, epoch: bool) -> Head | None:
        """See the port. After a lost answer it says None although it may have happened; the due time brings it back."""
        add = {"rev": 1} | ({"wk": 1} if wake else {}) | ({"ep": 1} if epoch else {})
        put = {"due_at": number(due_at), "due_pk": rows.due_pk(ref)} if due_at else {}
        try:
            return self._move(
                ref, Test("rev", "=", number(rev)), put=put, remove=() if put else ("due_at", "due_pk"), add=add
            )
        except Refused:
            return None

    def events(self, ref: ThreadRef, *, after: int, limit: int, max_bytes: int) -> list[Event]:
        """See the port."""
        found: list[Event] = []
        left = max_bytes
        for page in self._pages(ref, after, limit):
            events = [event for event in pages.events(page) if event.seq > after]
            fits = len(events) if len(page.text) <= left else _fitting(events, left, at_least=0 if found else 1)
            found += events[:fits]
            left -= len(page.text)
            if fits < len(events) or len(found) >= limit or left <= 0:
                break
        return found[:limit]

    def commands(
        self, ref: ThreadRef, *, after: int, before: int, limit: int, descending: bool = False
    ) -> list[Command]:
        """See the port."""
        found = self._numbered(COMMANDS, ref, after + 1, before - 1, limit, descending)
        return [rows.command_of(item) for item in islice(found, limit)]

    def messages(
        self, ref: ThreadRef, *, after: int, before: int, limit: int, descending: bool = False
    ) -> list[Message]:
        """See the port."""
        found = self._numbered(MESSAGES, ref, after + 1, before - 1, limit, descending)
        return [rows.message_of(item) for item in islice(found, limit)]

    def files(self, ref: ThreadRef, *, low: str, high: str, limit: int, descending: bool = False) -> list[File]:
        """See the port."""
        between = SORT.between(low, high)
        found = self._table.query(keys.files(ref), between, limit=limit, descending=descending)
        return [rows.file_of(item) for item in islice(found, limit)]

    def inquiries(self, ref: ThreadRef, *, after: str, limit: int) -> list[Inquiry]:
        """See the port."""
        behind = SORT > keys.inquiry(ref, after).sk if after else None
        found = self._table.query(keys.inquiries(ref), behind, limit=limit)
        return [rows.inquiry_of(item) for item in islice(found, limit)]

    def children(self, ref: ThreadRef, *, after: str = "", limit: int, descending: bool = False) -> list[Child]:
        """See the port."""
        last = keys.child(ref, after).sk if after else ""
        behind = (SORT < last if descending else SORT > last) if after else None
        found = self._table.query(keys.children(ref), behind, limit=limit, descending=descending)
        return [rows.child_of(item) for item in islice(found, limit)]

    def inbox(self, ref: ThreadRef, *, limit: int) -> list[Report]:
        """See the port."""
        found = self._table.query(keys.inbox(ref), limit=limit)
        return [rows.report_of(item) for item in islice(found, limit)]

    def report(self, parent: ThreadRef, report: Report) -> bool:
        """See the port."""
        return upward.report(self._table, parent, report)

    def log(self, ref: ThreadRef, row: LogRow, *, remember: Remembered | None, now: int) -> Logged:
        """See the port."""
        kept = commits.remember(self._table.name, ref.org, remember, now) if remember else None
        return logs.write(self._table, ref, row, kept)

    def log_rows(self, ref: ThreadRef, keys: Collection[str]) -> list[LogRow]:
        """See the port."""
        return logs.by_keys(self._table, ref, keys)

    def logs(self, ref: ThreadRef, *, after: str, before: str, limit: int, descending: bool = False) -> LogPage:
        """See the port."""
        return logs.page(self._table, ref, after=after, before=before, limit=limit, descending=descending)

    def put_value(self, ref: ThreadRef, value: DurableValue) -> bool:
        """See the port."""
        return logs.put_value(self._table, ref, value)

    def remove_value(self, ref: ThreadRef, name: str) -> bool:
        """See the port."""
        return logs.remove_value(self._table, ref, name)

    def newest_threads(self, org: str, *, before: str, limit: int) -> list[tuple[str, ThreadRef]]:
        """See the port."""
        older = ACTIVITY < before if before else None
        found = self._table.query(
            keys.activity_partition(org), older, limit=limit, descending=True, index="by_activity"
        )
        return [(item["act_sk"]["S"], ref) for item, ref in _threads(islice(found, limit))]

    def due(self, shard: int, *, until: int, limit: int) -> list[Due]:
        """See the port."""
        found = self._table.query(keys.due_partition(shard), DUE <= until, limit=limit, index="by_due")
        return [
            Due(ref=ref, effect=keys.effect_at(item["pk"]["S"], item["sk"]["S"]) or "")
            for item, ref in _threads(islice(found, limit))
        ]

    def schedule(self, ref: ThreadRef, effect: Effect) -> bool:
        """See the port."""
        return effect_rows.schedule(self._table, ref, effect)

    def effects(self, ref: ThreadRef, *, after: str, limit: int) -> list[Effect]:
        """See the port."""
        return effect_rows.page(self._table, ref, after=after, limit=limit)

    def claim_effect(self, ref: ThreadRef, name: str, *, now: int, due_at: int) -> Effect | None:
        """See the port."""
        return effect_rows.claim(self._table, ref, name, now=now, due_at=due_at)

    def take_effect(self, ref: ThreadRef, name: str, *, now: int, until: int, nonce: str) -> Effect | None:
        """See the port."""
        return effect_rows.take(self._table, ref, name, now=now, until=until, nonce=nonce)

    def settle_effect(self, ref: ThreadRef, taken: Effect, after: Effect, row: LogRow) -> bool:
        """See the port."""
        return effect_rows.settle(self._table, ref, taken, after, row)

    def remove_effect(self, ref: ThreadRef, name: str, *, expires_at: int) -> bool:
        """See the port."""
        return effect_rows.remove(self._table, ref, name, expires_at=expires_at)

    def about(self, refs: Collection[ThreadRef]) -> Mapping[ThreadRef, tuple[Head, About]]:
        """See the port. Threads without a head are left out."""
        if len(refs) > ABOUT_THREADS:
            raise ValueError(f"{len(refs)} threads do not fit into one batch read")
        found = self._table.get([key(ref) for ref in refs for key in (keys.head, keys.about)])
        return {
            ref: (rows.head_of(found[keys.head(ref)]), rows.about_of(found[keys.about(ref)]))
            for ref in refs
            if keys.head(ref) in found and keys.about(ref) in found
        }

    def _take(self, ref: ThreadRef, ended: Test, until: int, nonce: str, *, epoch: bool) -> tuple[Head | None, bool]:
        fence = (Test("run", "exists"), Test("wt", "absent"), Test("de", "absent"), ended)
        add = {"rev": 1, "att": 1, "sl": 1} | ({"ep": 1} if epoch else {})
        try:
            return self._move(ref, *fence, put={"lu": number(until), "ln": {"S": nonce}}, add=add), True
        except Refused as refused:
            head = rows.head_of(refused.item) if refused.item else None
            return head, head is not None and head.lease_nonce == nonce

    def _move(
        self,
        ref: ThreadRef,
        *fence: Test,
        put: Mapping[str, Value],
        remove: Collection[str] = (),
        add: Mapping[str, int],
    ) -> Head:
        """One conditional update of the head. Raises Refused."""
        request = update(self._table.name, keys.head(ref), *fence, put=put, remove=remove, add=add)
        answer = self._table.write("update_item", {**request, "ReturnValues": "ALL_NEW"})
        return rows.head_of(answer["Attributes"])

    def _pages(self, ref: ThreadRef, after: int, limit: int) -> Iterator[pages.Page]:
        """Pages from the one with after + 1 on, as far as they are there without a gap."""
        expected = after + 1
        while True:
            block = keys.event_block(expected)
            after_key = SORT > keys.padded(expected - 1)
            for item in self._table.query(keys.events(ref, block), after_key, limit=limit):
                page = pages.page_of(item)
                if page.first > expected:
                    return
                yield page
                expected = page.last + 1
            if keys.event_block(expected) == block:
                return

    def _numbered(
        self, family: Family, ref: ThreadRef, first: int, last: int, limit: int, descending: bool
    ) -> Iterator[Item]:
        """Rows first..last of a family. Numbers have no holes, but for one place that may be kept for tool results:
        where two are missing, nothing more is there yet.
        """
        last = min(last, keys.HIGHEST)
        if first > last:
            return
        for block in keys.blocks(first, last, family.size, descending=descending):
            low, high = max(first, block * family.size + 1), min(last, (block + 1) * family.size)
            between = SORT.between(keys.padded(low), keys.padded(high))
            query = self._table.query(family.partition(ref, block), between, limit=limit, descending=descending)
            count = 0
            for count, item in enumerate(query, 1):  # noqa: B007 the count outlives the loop
                yield item
            if count == 0 and descending:
                yield from self._numbered_below_newest(family, ref, first, low - 1, limit)
                return
            if count < high - low and not descending:
                return

    def _numbered_below_newest(
        self, family: Family, ref: ThreadRef, first: int, last: int, limit: int
    ) -> Iterator[Item]:
        """A caller that asks from above the newest number must not walk through empty blocks: the head knows it."""
        head = self.open(ref).head
        newest = min(last, family.newest(head)) if head else 0
        yield from self._numbered(family, ref, first, newest, limit, True)


def _shaped(found: Mapping[Key, Item], key: Key, shape: Callable[[Item], T]) -> T | None:
    return shape(found[key]) if key in found else None


def _alive(item: Item | None, now: int) -> Remembered | None:
    row = rows.remembered_of(item) if item else None
    return row if row and row.expires_at > now else None


def _fitting(events: Collection[Event], max_bytes: int, *, at_least: int) -> int:
    """How many of the first events have data of at most `max_bytes` together."""
    total = accumulate(len(to_json(event.data).encode()) for event in events)
    return max(at_least, sum(1 for size in total if size <= max_bytes))


def _threads(items: Iterable[Item]) -> Iterator[tuple[Item, ThreadRef]]:
    for item in items:
        ref = keys.thread_of(item["pk"]["S"])
        if ref:
            yield item, ref
