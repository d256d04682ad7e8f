"""The one door for work (invariant I1): messages and runs become commands in one conditional transaction.

The wake-up follows from the stored row: it is sent at once, and sent again by the sweep until the work is taken. With
an idempotency key a second call answers the same ids with their present state and changes nothing; without one it is
new work.
"""

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from chalicelib.domain import attachments, queueing, wire
from chalicelib.domain.commands import (
    Answer,
    CreateRun,
    CreateThread,
    Delivery,
    Idempotency,
    Part,
    Principal,
    Say,
)
from chalicelib.domain.errors import InvalidRequest, KeyReused, NotFound, QueueFull, ThreadBusy, ThreadTerminated
from chalicelib.domain.ids import ThreadRef, numbered
from chalicelib.domain.model import About, Command, File, Head
from chalicelib.domain.queueing import Ask, Draft, then
from chalicelib.engine.log import commit_of
from chalicelib.ports import Committed, FileObjects, Opened, Remembered, Store
from chalicelib.services.appending import Appender, alive, kept_key, known

if TYPE_CHECKING:
    from chalicelib.engine.agent import Agent

RETRY_AFTER_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class Accept:
    """Accepts new threads, messages and runs."""

    store: Store
    objects: FileObjects
    appender: Appender
    agents: "Mapping[str, Agent]"

    def create_thread(self, p: Principal, ask: CreateThread, idem: Idempotency | None) -> Answer:
        """A new thread, and its first run if it comes with a message. 201 {thread, message?, command?, run?}."""
        if ask.agent not in self.agents:
            raise InvalidRequest.at("agent", f"there is no agent named {ask.agent!r}")
        ref = ThreadRef(p.org, self.appender.ids.token())
        if idem is not None and (seen := self._remembered(ref, idem)) is not None:
            return self._replay(p.org, seen, idem, with_thread=True)
        _check_arguments(self.agents[ask.agent], ask.arguments)
        about = About(title=ask.title, tags=ask.tags, arguments=ask.arguments, user=ask.user)
        now = self.appender.clock.now()
        nonce = self.appender.ids.token()
        head = Head(rev=0, agent=ask.agent, created_at=now, active_at=now, since=now)
        draft = queueing.create(head, about, now)
        if ask.message is not None:
            files, draft = self._with_files(ref, None, draft, self._put_away(ref, ask.message, now))
            first = Ask(
                content=_content(ask.message, files),
                metadata=ask.message.metadata,
                delivery=ask.message.delivery,
                key=idem.key if idem else None,
                nonce=nonce,
                silent=ask.message.silent,
            )
            accepted = queueing.accept(ref, draft.after, first, now)
            draft = replace(accepted, facts=(*draft.facts, *accepted.facts), files=draft.files)
        keep = kept_key(ref, idem, nonce=nonce, now=now, command=_first(draft)) if idem else None
        result = self.appender.log.commit(commit_of(ref, None, draft, now=now, write=nonce, about=about, remember=keep))
        if isinstance(result, Committed):
            self.appender.wake(ref, None, result.head)
            body = {"thread": wire.thread_body(ref, result.head, about)}
            return Answer(status=201, body=body | _work(ref, result.head, draft))
        assert idem is not None, "a new thread can only lose to its own key"
        assert result.remembered is not None, "the refusal brings the row that holds the key"
        return self._replay(p.org, result.remembered, idem, with_thread=True)

    def post_message(self, p: Principal, thread_id: str, ask: Say, idem: Idempotency | None) -> Answer:
        """A user's message. 201 {message, command, run}; run is null while it waits to be taken in."""
        return self._accept(
            p,
            thread_id,
            idem,
            content=_content(ask),
            metadata=ask.metadata,
            delivery=ask.delivery,
            silent=ask.silent,
            say=ask,
        )

    def create_run(self, p: Principal, thread_id: str, ask: CreateRun, idem: Idempotency | None) -> Answer:
        """A run with its input as a user's message. 201 {message, command, run}."""
        return self._accept(
            p,
            thread_id,
            idem,
            content=ask.content,
            metadata={},
            delivery=ask.delivery,
            parent=ask.parent_run_id,
            model=ask.model,
        )

    def continue_thread(self, p: Principal, thread_id: str, idem: Idempotency | None) -> Answer:
        """The agent goes on with no new message. 201 {command, run}; a thread without a message is refused."""

        def has_message(head: Head) -> None:
            if head.commands == 0:
                raise InvalidRequest("There is no message to continue from.")

        return self._accept(p, thread_id, idem, content=None, metadata={}, delivery=Delivery.ENQUEUE, check=has_message)

    def _accept(
        self,
        p: Principal,
        thread_id: str,
        idem: Idempotency | None,
        *,
        content: tuple[Part, ...] | None,
        metadata: Any,
        delivery: Delivery,
        parent: str | None = None,
        model: str | None = None,
        silent: bool = False,
        say: Say | None = None,
        check: Callable[[Head], None] = lambda head: None,
    ) -> Answer:
        ref = known(p.org, thread_id)
        parent_number = _number_of(ref, parent)
        opened = self.store.open(
            ref,
            commands=[parent_number] if parent_number else [],
            key=idem.key if idem else None,
            now=self.appender.clock.now(),
        )
        nonce = self.appender.ids.token()
        ask = Ask(
            content=content,
            metadata=metadata,
            delivery=delivery,
            parent=parent_number,
            model=model,
            key=idem.key if idem else None,
            nonce=nonce,
            silent=silent,
        )
        standing, remembered = opened.head, opened.remembered
        if standing and not remembered:
            _check_free(standing, ask)
        new = self._put_away(ref, say, self.appender.clock.now()) if say and standing and not remembered else []
        for _ in self.appender.tries():
            head = alive(standing)
            if idem is not None and remembered is not None:
                return self._replay(p.org, remembered, idem)
            _check_parent(opened, parent_number)
            _check_open(head)
            _check_free(head, ask)
            check(head)
            now = self.appender.clock.now()
            draft = self._accepted(ref, head, ask, new, now)
            keep = kept_key(ref, idem, nonce=nonce, now=now, command=_first(draft)) if idem else None
            commit = commit_of(ref, head, draft, now=now, write=nonce, remember=keep)
            result = self.appender.log.commit(commit)
            if isinstance(result, Committed):
                self.appender.wake(ref, head, result.head)
                return Answer(status=201, body=_work(ref, result.head, draft))
            standing, remembered = result.head, result.remembered
        raise AssertionError("tries end with RetryLater")

    def _accepted(self, ref: ThreadRef, head: Head, ask: Ask, new: list[File], now: int) -> Draft:
        """The command, with the files that its message brings: they take names that are free on this head."""
        if not new:
            return queueing.accept(ref, head, ask, now)
        files, placed = self._with_files(ref, head, Draft(after=head), new)
        with_files = replace(ask, content=(*(ask.content or ()), *map(_file_part, files)))
        return then(placed, lambda at: queueing.accept(ref, at, with_files, now))

    def _with_files(self, ref: ThreadRef, head: Head | None, draft: Draft, new: list[File]) -> tuple[list[File], Draft]:
        """New files under names that are free in the thread (`head` None: it has none yet), and the draft with them."""
        if not new:
            return [], draft
        from chalicelib.engine.attachments import Bag  # most messages bring nothing
        from chalicelib.engine.files import added

        files = Bag(store=self.store, objects=self.objects).named(ref, new, is_new=head is None)
        return files, then(draft, lambda at: added(at, files))

    def _put_away(self, ref: ThreadRef, say: Say, now: int) -> list[File]:
        """Data that comes with a message, as files whose bytes are stored and that nobody sees yet."""
        found = []
        for part in say.attachments:
            if part["type"] == "data":
                from chalicelib.engine.files import new_file  # most messages bring nothing

                data = base64.b64decode(part["base64"])
                file = new_file(attachments.path_of(part["name"]), data, part["content_type"], now)
                self.objects.put(ref, file.sha256, data)
                found.append(file)
        return found

    def _remembered(self, ref: ThreadRef, idem: Idempotency) -> Remembered | None:
        return self.store.open(ref, head=False, key=idem.key, now=self.appender.clock.now()).remembered

    def _replay(self, org: str, seen: Remembered, idem: Idempotency, *, with_thread: bool = False) -> Answer:
        """The first answer's ids with their present state. Raises KeyReused when the request is another one."""
        if seen.fingerprint != idem.fingerprint:
            raise KeyReused
        ref = ThreadRef(org, seen.token)
        opened = self.store.open(ref, about=with_thread, commands=[seen.command] if seen.command else [])
        head = alive(opened.head)
        body: dict[str, Any] = {}
        if with_thread and opened.about is not None:
            body["thread"] = wire.thread_body(ref, head, opened.about)
        if seen.command:
            body |= present(self.store, ref, head, opened.commands[seen.command])
        return Answer(status=200, body=body, replayed=True)


def present(store: Store, ref: ThreadRef, head: Head, command: Command) -> dict[str, Any]:
    """A run.create as it stands now: its message, itself, and the run that it started or joined."""
    run = command
    if command.run and command.run != command.number:
        run = store.open(ref, head=False, commands=[command.run]).commands[command.run]
    message = None
    if command.place:
        row = store.open(ref, head=False, messages=[command.place]).messages.get(command.place)
        message = wire.message_body(ref, row) if row is not None and not row.deleted else None
    elif command.content is not None:
        message = wire.pending_body(ref, command)
    if command.kind == queueing.SILENT:
        return {"message": message, "command": None, "run": None}
    return {
        "message": message,
        "command": wire.command_body(ref, command, head),
        "run": wire.run_body(ref, run, head) if command.run else None,
    }


def _content(say: Say, new: Iterable[File] = ()) -> tuple[Part, ...]:
    """What is said, with the files that it names and those that it brings."""
    named = (part for part in say.attachments if part["type"] == "file")
    return (*say.content, *named, *map(_file_part, new))


def _file_part(file: File) -> Part:
    return {"type": "file", "path": file.path}


def _work(ref: ThreadRef, head: Head, draft: Draft) -> dict[str, Any]:
    """Message, command and run of a command that was just stored."""
    if not draft.commands:
        return {}
    command = draft.commands[0]
    if command.kind == queueing.SILENT:
        return {"message": wire.message_body(ref, draft.messages[0]), "command": None, "run": None}
    return {
        "message": wire.pending_body(ref, command) if command.content is not None else None,
        "command": wire.command_body(ref, command, head),
        "run": wire.run_body(ref, command, head) if command.run else None,
    }


def _first(draft: Draft) -> int:
    """Number of the command that a draft accepts, 0 if it accepts none."""
    return draft.commands[0].number if draft.commands else 0


def _number_of(ref: ThreadRef, run_id: str | None) -> int:
    """Number of a run of this very thread. Raises NotFound for any other id."""
    if run_id is None:
        return 0
    found = numbered(ref.org, "run", run_id)
    if found is None or found[0] != ref:
        raise NotFound("There is no run with that id in this thread.")
    return found[1]


def _check_arguments(agent: "Agent", arguments: Mapping[str, Any]) -> None:
    """Raises InvalidRequest if the agent requires something else of its threads' arguments."""
    if not agent.required_of_arguments:
        return
    from chalicelib.engine.fitting import faults_of_arguments  # most agents require nothing

    faults = faults_of_arguments(agent.required_of_arguments, arguments)
    if faults:
        raise InvalidRequest(f"The arguments do not fit what agent {agent.name} requires.", faults=faults)


def _check_parent(opened: Opened, number: int) -> None:
    if number and (number not in opened.commands or not opened.commands[number].is_run):
        raise NotFound("There is no run with that id in this thread.")


def _check_open(head: Head) -> None:
    if head.terminated_at:
        raise ThreadTerminated
    if queueing.is_full(head):
        raise QueueFull(retry_after_seconds=RETRY_AFTER_SECONDS)


def _check_free(head: Head, ask: Ask) -> None:
    """Refuse what only an idle thread is asked for, where one is not. A silent message is none: it starts nothing."""
    busy = head.run or head.parked or head.queued or head.pending
    if busy and ask.delivery is Delivery.REJECT and not ask.silent:
        raise ThreadBusy("A run is running, queued or waiting.")
