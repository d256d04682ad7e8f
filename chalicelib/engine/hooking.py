"""The hooks of a run: called on a thread of their own while the turn waits, watches its lease and makes their changes.

Whatever a hook answers passes the border of values and the shape that its place has; what does not fit leaves the data
as it was. It guarantees that no hook raises into a turn but by `RunBlocked`, and that an agent without hooks pays
nothing.
"""

import asyncio
import inspect
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import pairing, values, wire
from chalicelib.domain.events import Fact
from chalicelib.domain.model import Call, Command, Head, Message, Outcome, Role
from chalicelib.engine import changing, context, messages
from chalicelib.engine.attempt import WATCH_SECONDS, Attempt
from chalicelib.engine.files import Shelf
from chalicelib.engine.hooks import Blocked
from chalicelib.engine.notes import Notebook
from chalicelib.engine.run_files import Asked, RunFiles
from chalicelib.engine.run_hands import RunHands
from chalicelib.engine.speech import AskedCall, Speech
from chalicelib.engine.state import ThreadState
from chalicelib.engine.updating import UNFIT, blocked_by, hook_failure
from chalicelib.engine.workers import Flag

Parts = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class RunBlocked(Exception):
    """A hook wants the run to end."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class _Ended:
    """A hook is over."""

    value: Any = None
    error: BaseException | None = None


class Hooking:
    """The hooks of one attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._hooks = attempt.agent.hooks
        self._edited: dict[int, Command] = {}

    # -- messages

    def begin(self) -> None:
        """Before the first write of a run that has not started: the new thread, and the run's own message."""
        attempt = self._attempt
        if attempt.journal.head.run_started_at:
            return
        if not attempt.journal.head.balance_at:
            self.call("after_thread_created")
        if attempt.command.content is not None and not attempt.command.place:
            edited = self._edit(attempt.command)
            if edited is not attempt.command:
                self._edited[edited.number] = edited
                attempt.command = edited

    def told_anew(self, head: Head, placed: Sequence[Message], now: int) -> tuple[Fact, ...]:
        """A run's own message was told when it was accepted; if it is another now, it is told again: a hook has changed
        it, or it is the call of a side.
        """
        return tuple(
            Fact(
                type="message.updated",
                data={"message": wire.message_body(self._attempt.ref, message)},
                at=now,
                run=head.run,
                attempt=head.run_attempt,
            )
            for message in placed
            if self._attempt.command.number in self._edited or message.side
        )

    def prepare(self, joins: Sequence[Command]) -> None:
        """Let the hooks see joins before a write takes them in."""
        if self._hooks.before_create_message is None and self._hooks.after_create_message is None:
            return
        for join in joins:
            if join.number not in self._edited:
                self._edited[join.number] = self._edit(join)

    def prepared(self, joins: Sequence[Command]) -> tuple[Command, ...]:
        """Those of these joins that the hooks have seen, as they left them. Called inside of a write."""
        if self._hooks.before_create_message is None and self._hooks.after_create_message is None:
            return tuple(joins)
        seen = [join for join in joins if join.number in self._edited]
        return tuple(
            replace(join, content=self._edited[join.number].content, metadata=self._edited[join.number].metadata)
            for join in seen
        )

    def answer(self, speech: Speech) -> tuple[Parts, Mapping[str, Any]] | None:
        """Text parts and metadata of an answer, if hooks have something to do with it. Its calls stay as they are."""
        if self._hooks.before_create_message is None and self._hooks.after_create_message is None:
            return None
        attempt = self._attempt
        body = {
            "id": speech.message_id,
            "thread_id": attempt.ref.id,
            "run_id": attempt.ref.run(attempt.journal.run),
            "role": Role.ASSISTANT.value,
            "content": [_part(part) for part in speech.parts],
            "metadata": {},
        }
        parts, metadata = self._created(body)
        return tuple(part for part in parts if part["type"] == "text"), metadata

    def _edit(self, command: Command) -> Command:
        if command.is_call:  # nobody's words: the hooks of tools see it
            return command
        body = wire.pending_body(self._attempt.ref, command)
        parts, metadata = self._created(body)
        if list(parts) == body["content"] and metadata == (command.metadata or {}):
            return command
        return replace(command, content=parts, metadata=metadata)

    def _created(self, body: dict[str, Any]) -> tuple[Parts, Mapping[str, Any]]:
        """Content and metadata of a message once its hooks have seen it."""
        metadata = {name: value for name, value in body["metadata"].items() if name != "queued"}
        before = {**body, "metadata": metadata}
        changed = self.call("before_create_message", before, fits=_is_message) or before
        parts, about = tuple(changed["content"]), changed.get("metadata", {})
        self.call("after_create_message", {**before, "content": list(parts), "metadata": about})
        return parts, about

    # -- what the model is shown

    def context(self, rows: Sequence[Message]) -> tuple[Mapping[str, Any], ...]:
        """The context of a model step."""
        attempt = self._attempt
        shown = context.assemble(attempt.ref, self._filtered(rows))
        sent = self.call("prefilter_llm_history", [dict(one) for one in shown], fits=_are_messages)
        return shown if sent is None else pairing.repair(sent)

    def _filtered(self, rows: Sequence[Message]) -> Sequence[Message]:
        """The rows that a filter keeps, with the words that it gives them; it cannot add any, nor move them."""
        if self._hooks.filter_messages is None:
            return rows
        usable = [row for row in rows if not row.deleted and not row.superseded]
        bodies = [wire.message_body(self._attempt.ref, row) for row in usable]
        kept = self.call("filter_messages", bodies, fits=_are_messages)
        if kept is None:
            return rows
        by_id = {body["id"]: body for body in kept}
        return [replace(row, content=tuple(by_id[row.id]["content"])) for row in usable if row.id in by_id]

    def system(self, text: str) -> str:
        """The system prompt of a model step."""
        changed = self.call("after_system_message", text, fits=lambda value: isinstance(value, str))
        return text if changed is None else str(changed)

    # -- tools

    def results(self, ended: Sequence[Call]) -> list[Call]:
        """Calls that have just ended, with the results that their hooks leave."""
        if self._attempt.blocked is not None:
            raise RunBlocked(self._attempt.blocked)
        return [self._result(call) for call in ended]

    def _result(self, call: Call) -> Call:
        after = "after_tool_call_success" if call.outcome is Outcome.OK else "after_tool_call_failure"
        for name in (after, "before_store_tool_result"):
            told = {"call_id": call.id, "name": call.name, "arguments": call.arguments, "outcome": call.outcome}
            changed = self.call(name, told, call.result)
            if changed is not None:
                call = replace(call, result=changed)
        return call

    # -- calling

    def call(self, name: str, *given: Any, fits: Callable[[Any], bool] = lambda value: True) -> Any:
        """What a hook answers, safe; None if there is no such hook, or it changes nothing. Raises RunBlocked, and what
        the watch raises.
        """
        hook = getattr(self._hooks, name)
        if hook is None:
            return None
        attempt = self._attempt
        began = attempt.clock.monotonic()
        ended = self._played(hook, name, given)
        answer = attempt.environment.safe(ended.value)
        if ended.error is None and (answer is None or fits(answer)):
            return answer
        fault = UNFIT if ended.error is None else attempt.environment.hide_text(str(values.safe(ended.error)))
        duration_ms = int((attempt.clock.monotonic() - began) * 1000)
        self._notebook().tell_failure(hook_failure(name, fault, duration_ms))
        if isinstance(ended.error, Blocked):
            raise RunBlocked(blocked_by(fault))
        return None

    def _played(self, hook: Callable[..., Any], name: str, given: tuple[Any, ...]) -> _Ended:
        """Run a hook to its end or its deadline; make its changes meanwhile."""
        attempt, flag = self._attempt, Flag()
        inbox: queue.SimpleQueue[_Ended | Asked] = queue.SimpleQueue()
        state = self._state(name, flag, inbox)
        until = attempt.clock.monotonic() + self._hooks.timeout_seconds
        threading.Thread(target=lambda: inbox.put(_run(hook, state, given)), name=f"hook-{name}", daemon=True).start()
        try:
            while (left := until - attempt.clock.monotonic()) > 0:
                attempt.watch(attempt.clock.monotonic())
                try:
                    happened = inbox.get(timeout=min(left, WATCH_SECONDS))
                except queue.Empty:
                    continue
                if isinstance(happened, _Ended):
                    return happened
                changing.make(attempt.journal, happened)
        finally:
            flag.set()
        return _Ended(error=TimeoutError(f"no result in {self._hooks.timeout_seconds:g} s"))

    def _state(self, name: str, flag: Flag, inbox: queue.SimpleQueue[Any]) -> ThreadState:
        attempt = self._attempt
        notebook = self._notebook()

        def ask(change: Any, of_run: bool) -> None:
            asked = Asked("", change, of_run=of_run)
            inbox.put(asked)
            asked.wait(flag)

        shelf = Shelf(store=attempt.store, objects=attempt.objects, ref=attempt.ref)
        return ThreadState(
            thread_id=attempt.ref.id,
            run_id=attempt.ref.run(attempt.journal.run),
            call_id="",
            idempotency_token=f"{attempt.ref.token}.{attempt.journal.run}.{attempt.journal.head.run_steps}.{name}",
            arguments=attempt.arguments,
            cancel=flag,
            context=attempt.context,
            environment=attempt.environment,
            files=RunFiles(shelf=shelf, clock=attempt.clock, cancel=flag, ask=lambda change: ask(change, True)),
            notebook=notebook,
            hands=RunHands(attempt=attempt, notebook=notebook, ask=ask),
            kin=attempt.kin(f"{attempt.journal.run}.{attempt.journal.head.run_steps}.{name}"),
        )

    def _notebook(self) -> Notebook:
        """What hooks note waits for a write of the turn, as that of tools does."""
        attempt, journal = self._attempt, self._attempt.journal
        return Notebook(
            notes=journal.notes,
            store=attempt.store,
            ref=attempt.ref,
            run=journal.run,
            attempt=journal.attempt,
            call=Call(id="", run=journal.run, step=journal.head.run_steps, name="", arguments={}),
            tell=lambda noted: None,  # the turn waits for the hook and writes next
            environment=attempt.environment,
            newest=attempt.newest,
        )


def _run(hook: Callable[..., Any], state: ThreadState, given: tuple[Any, ...]) -> _Ended:
    """A hook on its thread. It gets copies: what it does to them in place is not what it answers."""
    try:
        answer = hook(state, *(values.safe(one) for one in given))
        return _Ended(value=asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer)
    except BaseException as error:  # noqa: BLE001 - the turn decides
        return _Ended(error=error)


async def _awaited(value: Any) -> Any:
    return await value


def _part(part: str | AskedCall) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "tool_call", "name": part.name, "arguments": values.parse_arguments(part.text)[0]}


def _is_message(value: Any) -> bool:
    """True for a message whose content and metadata could be stored."""
    if not isinstance(value, dict) or not isinstance(value.get("metadata", {}), dict):
        return False
    parts = value.get("content")
    if not isinstance(parts, list):
        return False
    plain = [part for part in parts if not (isinstance(part, dict) and part.get("type") == "tool_call")]
    try:
        messages.metadata_of(value.get("metadata", {}), values.safe)
        return not plain or bool(messages.content_of(plain, values.safe))
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it does not fit
        return False


def _are_messages(value: Any) -> bool:
    """True for messages that could be shown to a model."""
    return isinstance(value, list) and all(
        isinstance(one, dict)
        and isinstance(one.get("id"), str)
        and one.get("role") in tuple(Role)
        and isinstance(one.get("content"), list)
        and all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in one["content"])
        for one in value
    )
