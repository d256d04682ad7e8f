"""Reading: threads, messages, runs, steps, commands and events as the caller's org may see them. Nothing here writes.

Pages are bounded in items and bytes. A page of a filtered list may be short and still have a next one.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chalicelib.domain import queueing, values, wire
from chalicelib.domain.commands import Page, Principal
from chalicelib.domain.errors import NotFound
from chalicelib.domain.ids import ThreadRef, numbered
from chalicelib.domain.limits import LIST_DEFAULT, RESPONSE_BYTES
from chalicelib.domain.model import About, Command, CommandState, Head, Message
from chalicelib.engine.agent import Agent
from chalicelib.engine.waiting import commands_between
from chalicelib.ports import Blobs, Clock, Store
from chalicelib.services.appending import alive, known

#: Threads that one request looks at for a filtered list: bounded whatever the org's size.
SCANNED_THREADS = 500
#: Messages that one read brings: a message may have 256 KB, a page has at most 1 MB.
ROWS_A_READ = 16
CHILDREN_SHOWN = 50  # spec section 3, a thread
#: A long poll looks at the head this often: soon after it began, then more rarely (seconds).
FIRST_POLL_SECONDS = 0.04
LONGEST_POLL_SECONDS = 0.4
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, kw_only=True)
class Read:
    """All reads of the front door."""

    store: Store
    blobs: Blobs
    clock: Clock
    agents_by_name: Mapping[str, Agent]

    def thread(self, p: Principal, thread_id: str, include: Collection[str]) -> dict[str, Any]:
        """A thread; each included list as {"items", "position"}: its first page."""
        ref = known(p.org, thread_id)
        opened = self.store.open(ref, about=True)
        head = alive(opened.head)
        newest = self.store.children(ref, limit=CHILDREN_SHOWN, descending=True) if head.children else []
        children = [wire.child_body(ref, row) for row in newest]
        body = wire.thread_body(ref, head, _about(opened.about), children)
        if "messages" in include:
            body["messages"] = _part(self._messages(ref, head, False, False, LIST_DEFAULT, None))
        if "runs" in include:
            body["runs"] = _part(self._runs(ref, head, LIST_DEFAULT, None))
        if "steps" in include:
            body["steps"] = {"items": self._first_steps(ref, head), "position": None}
        return body

    def children(self, p: Principal, thread_id: str, *, limit: int, position: Any) -> Page:
        """Rows of the registry, newest first."""
        ref = known(p.org, thread_id)
        alive(self.store.open(ref).head)
        rows = self.store.children(ref, after=position or "", limit=limit + 1, descending=True)
        items = [wire.child_body(ref, row) for row in rows[:limit]]
        return Page(items=items, next=rows[limit - 1].reference if len(rows) > limit else None)

    def threads(
        self,
        p: Principal,
        *,
        agent: str | None,
        tag: str | None,
        state: str | None,
        q: str | None,
        limit: int,
        position: Any,
    ) -> Page:
        """Threads of the org, newest activity first. `q` is literal, in title and tags, whatever its case."""

        def wanted(head: Head, about: About) -> bool:
            words = [about.title or "", *about.tags]
            return (
                (agent is None or head.agent == agent)
                and (tag is None or tag in about.tags)
                and (state is None or head.state == state)
                and (q is None or any(q.casefold() in word.casefold() for word in words))
            )

        def row(ref: ThreadRef, head: Head, about: About) -> dict[str, Any] | None:
            return wire.thread_body(ref, head, about) if wanted(head, about) else None

        return self._scan(p.org, row, limit, position)

    def roots(self, p: Principal, *, limit: int, position: Any) -> Page:
        """Threads that have a run, newest activity first, each with its latest run."""

        def row(ref: ThreadRef, head: Head, about: About) -> dict[str, Any] | None:
            if not head.last_run:
                return None
            run = self.store.open(ref, head=False, commands=[head.last_run]).commands.get(head.last_run)
            if run is None:  # deleted and purged since the head was read
                return None
            return {"thread": wire.thread_body(ref, head, about), "run": wire.run_body(ref, run, head)}

        return self._scan(p.org, row, limit, position)

    def messages(
        self, p: Principal, thread_id: str, *, descending: bool, silent: bool, limit: int, position: Any
    ) -> Page:
        """Messages in the order of the conversation; what waits for its run comes last."""
        ref = known(p.org, thread_id)
        head = alive(self.store.open(ref).head)
        return self._messages(ref, head, descending, silent, limit, position)

    def runs(self, p: Principal, thread_id: str, *, limit: int, position: Any) -> Page:
        """Runs of a thread in accepted order."""
        ref = known(p.org, thread_id)
        return self._runs(ref, alive(self.store.open(ref).head), limit, position)

    def run(self, p: Principal, run_id: str) -> dict[str, Any]:
        """One run."""
        ref, head, command = self._run(p, run_id)
        return wire.run_body(ref, command, head)

    def steps(self, p: Principal, run_id: str, *, limit: int, position: Any) -> Page:
        """The step lane of a run."""
        step = wire.done_step(self._run(p, run_id)[2])
        return Page(items=[step] if step and position is None else [])

    def command(self, p: Principal, command_id: str) -> dict[str, Any]:
        """One command."""
        found = numbered(p.org, "cmd", command_id)
        if found is None:
            raise NotFound
        return self._command(*found)

    def command_by_key(self, p: Principal, key: str) -> dict[str, Any]:
        """The command that an idempotency key stands for."""
        now = self.clock.now()
        seen = self.store.open(ThreadRef(p.org, ""), head=False, key=key, now=now).remembered
        if seen is None or not seen.command:
            raise NotFound
        return self._command(ThreadRef(p.org, seen.token), seen.command)

    def events(self, p: Principal, thread_id: str, *, after: int, limit: int, wait: float) -> dict[str, Any]:
        """Events after a number; with `wait` seconds to wait for the first. A number past the end is the end."""
        ref = known(p.org, thread_id)
        until, pause = self.clock.monotonic() + wait, FIRST_POLL_SECONDS
        while True:
            head = alive(self.store.open(ref).head)
            events = []
            if head.seq > after:
                stored = self.store.events(ref, after=after, limit=limit, max_bytes=RESPONSE_BYTES)
                # What came after the head was read is left for the next page: events and status are of one moment.
                events = [event for event in stored if event.seq <= head.seq]
            left = until - self.clock.monotonic()
            if events or left <= 0:
                break
            self.clock.sleep(min(pause, left))
            pause = min(LONGEST_POLL_SECONDS, pause * 1.5)
        cursor = events[-1].seq if events else min(after, head.seq)
        items = [wire.event_body(ref, event) for event in events]
        return {"items": items, "cursor": cursor, "status": wire.status_body(head)}

    def blob(self, p: Principal, thread_id: str, name: str) -> tuple[bytes, str]:
        """What an event's large field stands for."""
        ref = known(p.org, thread_id)
        alive(self.store.open(ref).head)
        found = self.blobs.get(ref, name) if _SHA256.match(name) else None
        if found is None:
            raise NotFound
        return found

    def blob_address(self, p: Principal, thread_id: str, name: str) -> str:
        """Where a large field that does not fit an answer can be fetched; only for one that `blob` has answered."""
        return self.blobs.address(known(p.org, thread_id), name)

    def agents(self, p: Principal) -> list[dict[str, Any]]:
        """The agents of this deployment."""
        return [_agent_body(agent) for agent in self.agents_by_name.values()]

    def _scan(
        self, org: str, row: Callable[[ThreadRef, Head, About], dict[str, Any] | None], limit: int, position: Any
    ) -> Page:
        items: list[dict[str, Any]] = []
        before, seen, size = position or "", 0, 0
        while seen < SCANNED_THREADS:
            found = self.store.newest_threads(org, before=before, limit=50)
            rows = self.store.about([ref for _, ref in found])
            for at, ref in found:
                head, about = rows.get(ref, (None, None))
                body = row(ref, head, about) if head and about and not head.deleted_at else None
                size += values.size(body) if body else 0
                if items and body and (len(items) == limit or size > RESPONSE_BYTES):
                    return Page(items=items, next=before)
                before = at
                items += [body] if body else []
            seen += len(found)
            if len(found) < 50:
                return Page(items=items)
        return Page(items=items, next=before)

    def _messages(self, ref: ThreadRef, head: Head, descending: bool, silent: bool, limit: int, position: Any) -> Page:
        rows = self._conversation(ref, head, descending, position)
        items: list[dict[str, Any]] = []
        size, last = 0, position
        for at, body in rows:
            if body is None or (body["silent"] and not silent):
                last = at
                continue
            size += values.size(body)
            if items and (len(items) == limit or size > RESPONSE_BYTES):
                return Page(items=items, next=last)
            items.append(body)
            last = at
        return Page(items=items)

    def _conversation(
        self, ref: ThreadRef, head: Head, descending: bool, position: Any
    ) -> Iterator[tuple[Any, dict[str, Any] | None]]:
        """(position, body) of the messages from a position on: placed ones, then those that wait (or the other way)."""
        kind, number = position or (None, 0)
        placed = self._placed(ref, head, descending, number if kind == "placed" else 0)
        waiting = self._waiting(ref, head, descending, number if kind == "waiting" else 0)
        parts = [("waiting", waiting), ("placed", placed)] if descending else [("placed", placed), ("waiting", waiting)]
        names = [name for name, _ in parts]
        for name, part in parts[names.index(kind) if kind else 0 :]:
            yield from (([name, at], body) for at, body in part)

    def _placed(
        self, ref: ThreadRef, head: Head, descending: bool, number: int
    ) -> Iterator[tuple[int, dict[str, Any] | None]]:
        low, high = (0, number or head.messages + 1) if descending else (number, head.messages + 1)
        while True:
            rows = self.store.messages(ref, after=low, before=high, limit=ROWS_A_READ, descending=descending)
            yield from ((row.place, _body(ref, row)) for row in rows)
            if not rows:
                return
            low, high = (low, rows[-1].place) if descending else (rows[-1].place, high)

    def _waiting(
        self, ref: ThreadRef, head: Head, descending: bool, number: int
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        unstarted = head.run if not head.run_started_at else 0
        low = min((n for n in (unstarted, head.first_queued, head.first_pending) if n), default=0)
        if not low:
            return
        rows = [row for row in commands_between(self.store, ref, low, head.commands) if _waits(row)]
        for row in reversed(rows) if descending else rows:
            if not number or (row.number < number if descending else row.number > number):
                yield row.number, wire.pending_body(ref, row)

    def _runs(self, ref: ThreadRef, head: Head, limit: int, position: Any) -> Page:
        items: list[dict[str, Any]] = []
        last = position or 0
        for row in commands_between(self.store, ref, last + 1, head.commands):
            if row.is_run:
                if len(items) == limit:
                    return Page(items=items, next=last)
                items.append(wire.run_body(ref, row, head))
            last = row.number
        return Page(items=items)

    def _first_steps(self, ref: ThreadRef, head: Head) -> list[dict[str, Any]]:
        rows = (row for row in commands_between(self.store, ref, 1, head.commands) if row.is_run)
        steps = (wire.done_step(row) for row, _ in zip(rows, range(LIST_DEFAULT), strict=False))
        return [step for step in steps if step]

    def _run(self, p: Principal, run_id: str) -> tuple[ThreadRef, Head, Command]:
        found = numbered(p.org, "run", run_id)
        if found is None:
            raise NotFound
        ref, number = found
        opened = self.store.open(ref, commands=[number])
        head, command = alive(opened.head), opened.commands.get(number)
        if command is None or not command.is_run:
            raise NotFound
        return ref, head, command

    def _command(self, ref: ThreadRef, number: int) -> dict[str, Any]:
        opened = self.store.open(ref, commands=[number])
        head, command = alive(opened.head), opened.commands.get(number)
        if command is None or command.kind == queueing.SILENT:
            raise NotFound
        return wire.command_body(ref, command, head)


def _about(about: About | None) -> About:
    if about is None:
        raise NotFound
    return about


def _part(page: Page) -> dict[str, Any]:
    return {"items": page.items, "position": page.next}


def _body(ref: ThreadRef, row: Message) -> dict[str, Any] | None:
    return None if row.deleted else wire.message_body(ref, row)


def _waits(row: Command) -> bool:
    """A message that has no place in the conversation yet."""
    return row.content is not None and row.place == 0 and row.state is CommandState.QUEUED


def _agent_body(agent: Agent) -> dict[str, Any]:
    body: dict[str, Any] = {"name": agent.name, "kind": agent.kind}
    if agent.title is not None:
        body["title"] = agent.title
    if agent.description is not None:
        body["description"] = agent.description
    tools = () if callable(agent.tools) else agent.tools_for({})
    return body | {"tools": [{"name": tool.name, "description": tool.description} for tool in tools]}
