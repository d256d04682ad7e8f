"""The hands of a state inside a run: what code does waits for the attempt's next write, behind its fencing token (I3).

A tool or a hook runs on a thread of its own and never writes (decision 0007). Notes ride along; what has to be stored
when the call returns is handed to the turn's thread (`ask`). Reads go to the store at once.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import effects as rules
from chalicelib.domain import endings, queueing, wire
from chalicelib.domain.commands import Delivery
from chalicelib.domain.errors import QueueFull, ThreadTerminated
from chalicelib.domain.ids import effect_name
from chalicelib.domain.model import EffectState, Head, Message
from chalicelib.domain.queueing import Ask, Draft
from chalicelib.engine import effects, messages
from chalicelib.engine.attempt import Attempt
from chalicelib.engine.files import Change
from chalicelib.engine.hands import Body, Refused, Runnable, checked_limit, in_python, tool_of
from chalicelib.engine.hooks import Blocked
from chalicelib.engine.notes import Notebook
from chalicelib.engine.updating import Updating, hook_failure

RETRY_AFTER_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class RunHands:
    """`hands.Hands` of one call or hook. `ask` hands over a change and its being of the run, and waits for its fate."""

    attempt: Attempt
    notebook: Notebook
    ask: Callable[[Change, bool], None]

    @property
    def terminated(self) -> bool:
        """See the state."""
        return bool(self._head.terminated_at)

    def messages(self, limit: int, before: int | None, silent: bool) -> list[Body]:
        """See the state."""
        with in_python():
            checked_limit(limit, messages.WINDOW)
            a = self.attempt
            return messages.window(a.store, a.ref, self._head, limit=limit, before=before, silent=silent)

    def inject(self, role: str, content: Any, metadata: Mapping[str, Any] | None, silent: bool) -> str:
        """See the state."""
        with in_python():
            safe = self.attempt.environment.safe
            parts, about = messages.content_of(content, safe), messages.metadata_of(metadata, safe)
            return self.notebook.place(messages.role_of(role), parts, about, bool(silent))

    def update(self, state: Any, message_id: str, content: Any, metadata: Mapping[str, Any] | None) -> Body:
        """See the state. A second call with the same words changes nothing but the instant."""
        a, stands = self.attempt, list[Message]()
        around = Updating(hooks=a.agent.hooks, safe=a.environment.safe, failed=self._hook_failed)
        with in_python(), self._blocking():
            wanted = {"content": content, "metadata": metadata}
            if a.agent.hooks.before_update_message is not None:
                row = messages.find(a.store, a.ref, self._head, message_id)
                wanted = around.before(state, wire.message_body(a.ref, row), wanted)
            parts, about = messages.change_of(wanted, a.environment.safe)

            def change(head: Head) -> Draft:
                row = messages.find(a.store, a.ref, head, message_id)
                new, draft = messages.changed(a.ref, head, row, parts, about, a.clock.now())
                stands[:] = [new]
                return draft

            self.ask(change, False)
            around.after(state, wire.message_body(a.ref, stands[0]))
            return wire.message_body(a.ref, stands[0])

    def queue(self, content: Any, metadata: Mapping[str, Any] | None) -> str:
        """See the state. A call that runs again after a crash finds what it has queued before."""
        safe, number = self.attempt.environment.safe, self.notebook.next_said()
        with in_python():
            return self._queue(messages.content_of(content, safe), messages.metadata_of(metadata, safe), number)

    def queue_tool(self, name: str, arguments: Mapping[str, Any] | None) -> str:
        """See the state. A call that runs again after a crash finds what it has queued before."""
        number = self.notebook.next_said()
        with in_python():
            return self._queue(messages.call_of(self.tool(name), arguments, self.attempt.environment.safe), {}, number)

    def _queue(self, parts: tuple[Mapping[str, Any], ...], about: Mapping[str, Any], number: int) -> str:
        a = self.attempt
        if number <= len(self.notebook.call.said):
            return a.ref.user_message(self.notebook.call.said[number - 1])
        said = [0]

        def change(head: Head) -> Draft:
            _check_open(head)
            nonce = f"{head.run}.{head.run_attempt}.{self.notebook.call.id}.{number}"
            ask = Ask(content=parts, metadata=about, delivery=Delivery.JOIN, nonce=nonce)
            draft = queueing.accept(a.ref, head, ask, a.clock.now())
            said[0] = draft.commands[0].number
            counted = self.notebook.counted(number, said[0])
            return replace(draft, calls=(counted,) if counted else ())

        self.ask(change, False)
        return a.ref.user_message(said[0])

    def status(self) -> Body:
        """See the state."""
        with in_python():
            return wire.status_body(self.attempt.store.open(self.attempt.ref).head or self._head)

    def user(self) -> Body | None:
        """See the state."""
        with in_python():
            about = self.attempt.store.open(self.attempt.ref, head=False, about=True).about
            return user_body(about.user if about else None)

    def logs(self, limit: int, before: str | None) -> list[Body]:
        """See the state."""
        a = self.attempt
        with in_python():
            checked_limit(limit, messages.LOG_ROWS)
            return messages.log_window(a.store, a.ref, self._head, limit=limit, before=before, now=a.clock.now())

    def emit(self, name: str, data: Any) -> None:
        """See the state."""
        with in_python():
            kind, told = messages.event_of(name, data, self.attempt.environment.safe)
            self.notebook.emit(kind, told)

    def schedule(self, name: str, arguments: Mapping[str, Any] | None, at: int | None, after: float | None) -> str:
        """See the state."""
        a = self.attempt
        with in_python():
            if self._head.terminated_at:
                raise ThreadTerminated
            row = effects.planned(
                a.agent.effects, name, arguments, at=at, after=after, now=a.clock.now(), environment=a.environment
            )
            return a.ref.effect(self.notebook.schedule(row))

    def effects(self) -> list[Body]:
        """See the state."""
        a = self.attempt
        with in_python():
            stored = {row.id: row for row in a.store.effects(a.ref, after="", limit=effects.LISTED)}
            return effects.listed(a.ref, list({**stored, **self.notebook.notes.scheduled()}.values()))

    def remove_effect(self, effect_id: str) -> bool:
        """See the state."""
        a = self.attempt
        with in_python():
            name = effect_name(a.ref, effect_id) if isinstance(effect_id, str) else None
            if name is None:
                return False
            waiting = self.notebook.notes.scheduled().get(name)
            row = waiting or a.store.open(a.ref, head=False, effects=[name]).effects.get(name)
            if row is None or row.state not in (EffectState.SCHEDULED, EffectState.PARKED):
                return False
            self.notebook.take_back(rules.removed(row, a.clock.now()))
            return True

    def terminate(self) -> None:
        """See the state. What is queued is taken back by the sweep."""
        a = self.attempt

        def change(head: Head) -> Draft | None:
            if head.terminated_at:
                return None
            ended = endings.terminate(head, a.clock.now())
            after = endings.ask_cancel(endings.left_over(ended.after), head.commands, a.clock.now())
            return replace(ended, after=after)

        with in_python():
            self.ask(change, False)

    def tool(self, name: str) -> Runnable:
        """See the state."""
        with in_python():
            return tool_of(self.attempt.tools, name)

    def _hook_failed(self, name: str, fault: str) -> None:
        self.notebook.tell_failure(hook_failure(name, fault))

    @contextmanager
    def _blocking(self) -> Iterator[None]:
        """A hook that blocks ends the run once this tool has ended."""
        try:
            yield
        except Blocked as blocked:
            self.attempt.blocked = self.attempt.environment.hide_text(str(blocked)) or "A hook has blocked the run."
            raise Refused(self.attempt.blocked) from None

    @property
    def _head(self) -> Head:
        """The head as this attempt has seen it last."""
        return self.attempt.journal.head


def user_body(user: str | None) -> Body | None:
    """A thread's user. Handle and roles come with users of their own; until then the name stands for the handle."""
    return None if user is None else {"id": user, "handle": user, "roles": []}


def _check_open(head: Head) -> None:
    if head.terminated_at:
        raise ThreadTerminated
    if queueing.is_full(head):
        raise QueueFull(retry_after_seconds=RETRY_AFTER_SECONDS)
