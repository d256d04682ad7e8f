"""States of a thread outside of its runs, for endpoints and effects: each change is a write of its own, stored at once.

Nobody holds a lease here: a change is decided on the head as it was last seen and written unless it has moved, else
decided again on the head that stands. So this code and a run in flight may work on one thread at the same time. What an
effect changes is remembered under its token and a number: a try that begins anew finds what an earlier one has done.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chalicelib.domain import effects as rules
from chalicelib.domain import entries, queueing, wire
from chalicelib.domain.commands import Delivery
from chalicelib.domain.entries import LogRow
from chalicelib.domain.errors import NotFound, QueueFull, RetryLater, ThreadTerminated
from chalicelib.domain.events import Fact
from chalicelib.domain.ids import ThreadRef, effect_name
from chalicelib.domain.model import About, Head, Message, Value
from chalicelib.domain.queueing import Ask, Draft
from chalicelib.engine import effects, messages
from chalicelib.engine.agent import Agent
from chalicelib.engine.environment import Environment
from chalicelib.engine.files import Change, Shelf
from chalicelib.engine.hands import Body, Refused, Runnable, checked_limit, in_python, tool_of
from chalicelib.engine.hooks import Blocked
from chalicelib.engine.kin import Kin
from chalicelib.engine.log import commit_of
from chalicelib.engine.notes import check_name, checked_value
from chalicelib.engine.run_files import Abandoned, RunFiles
from chalicelib.engine.run_hands import user_body
from chalicelib.engine.state import ThreadState
from chalicelib.engine.updating import Updating, hook_failure
from chalicelib.ports import Cancel, Committed, FileObjects, Remembered, Store
from chalicelib.services.appending import KEPT_MICROS, Appender, alive, the_house
from chalicelib.services.cancel import Cancel as CancelService

log = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class Outside:
    """Makes states of threads that no run stands behind."""

    agents: Mapping[str, Agent]
    store: Store
    objects: FileObjects
    appender: Appender
    cancel: CancelService
    environment: Environment = field(default_factory=Environment)

    def state(
        self, ref: ThreadRef, head: Head, about: About, agent: Agent, *, token: str, again: bool, cancel: Cancel
    ) -> ThreadState:
        """A state for one execution. `again`: the same token may come again, and then finds what it has done."""
        desk = Desk(
            store=self.store,
            appender=self.appender,
            environment=self.environment,
            ref=ref,
            head=head,
            cancel=cancel,
            token=token if again else None,
        )
        shelf = Shelf(store=self.store, objects=self.objects, ref=ref)
        return ThreadState(
            thread_id=ref.id,
            run_id="",
            call_id="",
            idempotency_token=token,
            arguments=dict(about.arguments),
            cancel=cancel,
            environment=self.environment,
            files=RunFiles(
                shelf=shelf,
                clock=self.appender.clock,
                cancel=cancel,
                ask=desk.change,
            ),
            notebook=OutsidePaper(desk=desk),
            hands=OutsideHands(
                desk=desk, agent=agent, agents=self.agents, arguments=about.arguments, cancel=self.cancel
            ),
            kin=Kin(
                log=self.appender.log,
                ref=ref,
                head=head,
                token=token,
                now=self.appender.clock.now,
                safe=self.environment.safe,
            ),
        )


@dataclass(kw_only=True)
class Desk:
    """Where one execution writes from. `head` is the thread's head as it saw it last."""

    store: Store
    appender: Appender
    environment: Environment
    ref: ThreadRef
    head: Head
    cancel: Cancel
    token: str | None
    """What numbered changes are remembered under; None: they are not."""
    numbered: int = 0

    def write(self, change: Callable[[Head], tuple[Draft | None, str]], once: int = 0) -> str:
        """Make a change true and answer what it names. `once`: the number it is remembered under. Raises NotFound,
        RetryLater, what the change refuses, and Abandoned when nobody waits for this execution any more.
        """
        standing: Head | None = self.head
        for _ in self.appender.tries():
            self.check()
            before = alive(standing)
            draft, named = change(before)
            if draft is None:
                return named
            now = self.appender.clock.now()
            write = self.appender.ids.token()
            commit = commit_of(self.ref, before, draft, now=now, write=write, remember=self.kept(once, named))
            result = self.appender.log.commit(commit)
            if isinstance(result, Committed):
                self.head = result.head
                self.appender.wake(self.ref, before, result.head)
                return named
            if result.remembered is not None:
                return result.remembered.nonce
            standing = result.head
        raise AssertionError("tries end with RetryLater")

    def change(self, change: Change) -> None:
        """Make a change true that names nothing."""
        self.write(lambda head: (change(head), ""))

    def next(self) -> int:
        """The number of the next change that is remembered."""
        self.numbered += 1
        return self.numbered

    def kept(self, number: int, named: str) -> Remembered | None:
        """What a numbered change is remembered as. No client can send such a key: it has spaces."""
        if self.token is None or not number:
            return None
        return Remembered(
            key=f"effect {self.token} {number}",
            fingerprint="",
            token=self.ref.token,
            command=0,
            nonce=named,
            expires_at=self.appender.clock.now() + KEPT_MICROS,
        )

    def check(self) -> None:
        """Raises Abandoned when the time of this execution is over."""
        if self.cancel.wait(0):
            raise Abandoned("Nobody waits for this code any more.")


@dataclass(frozen=True, kw_only=True)
class OutsidePaper:
    """`hands.Paper`: entries and values, each stored when the call returns."""

    desk: Desk

    def log(self, entry: Any) -> None:
        """See the state. What cannot be stored is told in the function's own log."""
        desk, number = self.desk, self.desk.next()
        body = entries.app_body(desk.environment.safe(entry) if desk.environment.secrets else entry)
        now = desk.appender.clock.now()
        try:
            desk.check()
            row = LogRow(
                key=entries.key(now, desk.appender.ids.token()),
                kind="app",
                at=now,
                message_id=messages.newest(desk.store, desk.ref, desk.head),
                body=body,
            )
            desk.store.log(desk.ref, row, remember=desk.kept(number, row.key), now=now)
        except (RetryLater, Abandoned):
            log.warning("an entry was not stored", extra={"action": "entry_lost", "thread_id": desk.ref.id})

    def set(self, name: str, value: Any) -> None:
        """See the state."""
        with in_python():
            self.desk.check()
            checked = checked_value(name, self.desk.environment.safe(value))
            row = Value(name=name, value=checked, updated_at=self.desk.appender.clock.now())
            if not self.desk.store.put_value(self.desk.ref, row):
                raise NotFound

    def get(self, name: str, default: Any) -> Any:
        """See the state."""
        with in_python():
            check_name(name)
            stored = self.desk.store.open(self.desk.ref, head=False, values=[name]).values.get(name)
            return default if stored is None else stored.value


@dataclass(frozen=True, kw_only=True)
class OutsideHands:
    """`hands.Hands` of one execution."""

    desk: Desk
    agent: Agent
    """The thread's own: this is its code."""
    agents: Mapping[str, Agent]
    arguments: Mapping[str, Any]
    cancel: CancelService

    @property
    def terminated(self) -> bool:
        """See the state."""
        return bool(self.desk.head.terminated_at)

    def messages(self, limit: int, before: int | None, silent: bool) -> list[Body]:
        """See the state."""
        desk = self.desk
        with in_python():
            checked_limit(limit, messages.WINDOW)
            return messages.window(desk.store, desk.ref, desk.head, limit=limit, before=before, silent=silent)

    def inject(self, role: str, content: Any, metadata: Mapping[str, Any] | None, silent: bool) -> str:
        """See the state."""
        desk = self.desk
        with in_python():
            parts = messages.content_of(content, desk.environment.safe)
            about, as_role = messages.metadata_of(metadata, desk.environment.safe), messages.role_of(role)

            def change(head: Head) -> tuple[Draft, str]:
                message = Message(
                    place=head.messages + 1,
                    id=desk.ref.placed(head.messages + 1),
                    run=0,
                    role=as_role,
                    content=parts,
                    metadata=about,
                    created_at=desk.appender.clock.now(),
                    silent=bool(silent),
                )
                return messages.placed(desk.ref, head, message), message.id

            return desk.write(change, desk.next())

    def update(self, state: Any, message_id: str, content: Any, metadata: Mapping[str, Any] | None) -> Body:
        """See the state. There is no run to end: what a hook blocks is refused."""
        desk, stands = self.desk, list[Message]()
        around = Updating(hooks=self.agent.hooks, safe=desk.environment.safe, failed=self._hook_failed)
        with in_python():
            wanted = {"content": content, "metadata": metadata}
            try:
                if self.agent.hooks.before_update_message is not None:
                    row = messages.find(desk.store, desk.ref, desk.head, message_id)
                    wanted = around.before(state, wire.message_body(desk.ref, row), wanted)
                parts, about = messages.change_of(wanted, desk.environment.safe)

                def change(head: Head) -> tuple[Draft, str]:
                    row = messages.find(desk.store, desk.ref, head, message_id)
                    new, draft = messages.changed(desk.ref, head, row, parts, about, desk.appender.clock.now())
                    stands[:] = [new]
                    return draft, ""

                desk.write(change)
                around.after(state, wire.message_body(desk.ref, stands[0]))
            except Blocked as blocked:
                raise Refused(desk.environment.hide_text(str(blocked))) from None
            return wire.message_body(desk.ref, stands[0])

    def _hook_failed(self, name: str, fault: str) -> None:
        desk, now = self.desk, self.desk.appender.clock.now()
        key = entries.key(now, f"h{desk.appender.ids.token()}")
        row = LogRow(key=key, kind="handler", at=now, body=hook_failure(name, fault))
        desk.store.log(desk.ref, row, remember=None, now=now)

    def queue(self, content: Any, metadata: Mapping[str, Any] | None) -> str:
        """See the state."""
        safe = self.desk.environment.safe
        with in_python():
            return self._queue(messages.content_of(content, safe), messages.metadata_of(metadata, safe))

    def queue_tool(self, name: str, arguments: Mapping[str, Any] | None) -> str:
        """See the state."""
        with in_python():
            return self._queue(messages.call_of(self._playable(name), arguments, self.desk.environment.safe), {})

    def _queue(self, parts: tuple[Mapping[str, Any], ...], about: Mapping[str, Any]) -> str:
        desk, nonce = self.desk, self.desk.appender.ids.token()

        def change(head: Head) -> tuple[Draft, str]:
            if head.terminated_at:
                raise ThreadTerminated
            if queueing.is_full(head):
                raise QueueFull(retry_after_seconds=RETRY_AFTER_SECONDS)
            ask = Ask(content=parts, metadata=about, delivery=Delivery.JOIN, nonce=nonce)
            draft = queueing.accept(desk.ref, head, ask, desk.appender.clock.now())
            return draft, desk.ref.user_message(draft.commands[0].number)

        return desk.write(change, desk.next())

    def status(self) -> Body:
        """See the state."""
        with in_python():
            return wire.status_body(alive(self.desk.store.open(self.desk.ref).head))

    def user(self) -> Body | None:
        """See the state."""
        with in_python():
            about = self.desk.store.open(self.desk.ref, head=False, about=True).about
            return user_body(about.user if about else None)

    def logs(self, limit: int, before: str | None) -> list[Body]:
        """See the state."""
        desk = self.desk
        with in_python():
            checked_limit(limit, messages.LOG_ROWS)
            now = desk.appender.clock.now()
            return messages.log_window(desk.store, desk.ref, desk.head, limit=limit, before=before, now=now)

    def emit(self, name: str, data: Any) -> None:
        """See the state."""
        desk = self.desk
        with in_python():
            kind, told = messages.event_of(name, data, desk.environment.safe)
            fact = Fact(type=kind, data=told, at=desk.appender.clock.now())
            desk.write(lambda head: (Draft(after=head, facts=(fact,)), ""), desk.next())

    def schedule(self, name: str, arguments: Mapping[str, Any] | None, at: int | None, after: float | None) -> str:
        """See the state."""
        desk, number = self.desk, self.desk.next()
        with in_python():
            desk.check()
            now = desk.appender.clock.now()
            planned = effects.planned(
                self.agent.effects, name, arguments, at=at, after=after, now=now, environment=desk.environment
            )
            own = desk.appender.ids.token() if desk.token is None else rules.name_of(desk.token, number)
            if not desk.store.schedule(desk.ref, replace(planned, id=own)):
                raise ThreadTerminated
            return desk.ref.effect(own)

    def effects(self) -> list[Body]:
        """See the state."""
        with in_python():
            return effects.listed(self.desk.ref, self.desk.store.effects(self.desk.ref, after="", limit=effects.LISTED))

    def remove_effect(self, effect_id: str) -> bool:
        """See the state."""
        desk = self.desk
        with in_python():
            desk.check()
            name = effect_name(desk.ref, effect_id) if isinstance(effect_id, str) else None
            expires_at = desk.appender.clock.now() + rules.KEPT
            return name is not None and desk.store.remove_effect(desk.ref, name, expires_at=expires_at)

    def terminate(self) -> None:
        """See the state."""
        with in_python():
            self.desk.check()
            self.cancel.terminate(the_house(self.desk.ref.org), self.desk.ref.id, None)

    def tool(self, name: str) -> Runnable:
        """See the state."""
        with in_python():
            return tool_of({one.name: one for one in self.agent.tools_for(self.arguments)}, name)

    def _playable(self, name: str) -> Runnable:
        """A tool of the agent that plays the thread now. Raises NotFound, Refused."""
        from chalicelib.engine import playing  # most code outside of runs queues no tool

        agent, unplayable = playing.player(self.agents, self.desk.head)
        tools, broken = playing.tools_of(agent, self.arguments, self.agents)
        if fault := unplayable or broken:
            raise Refused(fault)
        return tool_of(tools, name)
