"""What code sees of its thread: `ThreadState`. Agent code depends on this page and on `engine.agent` only.

Inside a run, what changes the thread waits for the attempt's next write, within 5 s, and is gone with an attempt that
loses its run before; files and queued messages are stored when the call returns. Outside a run (endpoints, effects)
everything is stored when the call returns. What is no good is a ValueError, what is not there a LookupError, a store
that does not answer an OSError, and what the thread does not take now is `Refused`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chalicelib.engine.environment import Environment
from chalicelib.engine.refusal import Refused as Refused

if TYPE_CHECKING:  # every agent loads this page, and what stands behind it is for those who make a state
    from chalicelib.engine.asking import Asker
    from chalicelib.engine.files import Entry
    from chalicelib.engine.hands import Hands, Paper
    from chalicelib.engine.kin import Kin, Relative
    from chalicelib.engine.run_files import Found, Grep, Listing, RunFiles
    from chalicelib.ports import Cancel


@dataclass(frozen=True, kw_only=True)
class ThreadState:
    """Handed to tools (whose first parameter is annotated with it), hooks, effects and endpoints.

    `idempotency_token` is the same whenever this very call or effect runs again: give it to services that take one.
    `run_id` is empty outside of a run, `call_id` outside of a tool. `context` is a dict for this one execution (of a
    run: shared by its tools and hooks), never stored.
    """

    thread_id: str
    run_id: str
    call_id: str
    idempotency_token: str
    arguments: Mapping[str, Any]
    cancel: Cancel
    context: dict[str, Any] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment)
    """What `env` goes by, and the border that keeps its secrets inside."""
    files: RunFiles | None = None
    """What the methods of files below go by."""
    notebook: Paper | None = None
    """What `log` and the durable values go by."""
    asker: Asker | None = None
    """What `ask` goes by."""
    kin: Kin | None = None
    """What the family goes by."""
    hands: Hands | None = None
    """What everything else goes by."""

    def wait(self, seconds: float) -> bool:
        """Let time pass inside a tool; True as soon as the result is no longer wanted."""
        return self.cancel.wait(seconds)

    def ask(self, question: Any, options: Sequence[Any] = (), expires_in: float | None = None) -> Any:
        """Put a question to people; answers what they say. The run waits for it at no cost, however long that takes.

        Until there is an answer the code is left here, and then run again from its start: what stands before a question
        happens again. The second question of a call waits for the first. A message of the user in place of an answer,
        and `expires_in` seconds without one, end the call as `refused`. Only in tools.
        """
        if self.asker is None:
            raise RuntimeError("only a tool can ask: it can be set aside until there is an answer")
        return self.asker.ask(question, options, expires_in)

    @property
    def env(self) -> Mapping[str, str]:
        """Settings for agents' code (`TURNLOG_ENV_<NAME>`, `TURNLOG_SECRET_<NAME>`), by name, read-only. A secret that
        code hands over is replaced by a marker before it is stored or shown.
        """
        return self.environment.values

    # -- the thread. Each reads with one request of the table, or none

    @property
    def terminated(self) -> bool:
        """True once the thread has been terminated, as far as this execution knows. No request."""
        return self._hands.terminated

    def status(self) -> dict[str, Any]:
        """`{"state": "idle"|"running"|"failed", "since", "reason"}`, read anew; `since` in microseconds."""
        return self._hands.status()

    def user(self) -> dict[str, Any] | None:
        """Who the thread belongs to, read anew: `{"id", "handle", "roles"}`; None for a thread without a user."""
        return self._hands.user()

    def get_messages(self, limit: int = 50, before: int | None = None, silent: bool = True) -> list[dict[str, Any]]:
        """The newest messages (at most 50), oldest first: bodies as clients see them, each with its `place`.

        `before` is the `place` of a message: the window ends before it. Deleted messages, and silent ones unless
        wanted, are left out, so that a window may be short; it is at the beginning when its first place is 1.
        """
        return self._hands.messages(limit, before, silent)

    def inject_message(
        self, content: Any, role: str = "user", metadata: Mapping[str, Any] | None = None, silent: bool = False
    ) -> str:
        """Place a message (user, assistant or system) in the context and start nothing; answers its id.

        Inside a run the next model step sees it. `content` is a text or a list of parts.
        """
        return self._hands.inject(role, content, metadata, silent)

    def update_message(
        self, message_id: str, content: Any = None, metadata: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Other words or metadata for a message that has its place; answers its body. Its tool calls stay."""
        return self._hands.update(self, message_id, content, metadata)

    def queue_message(self, content: Any, metadata: Mapping[str, Any] | None = None) -> str:
        """Say something as a user does; answers the message's id once it is stored.

        While a run is active it joins it before the next model step, in the order in which messages were accepted. An
        idle thread starts a run. Raises Refused for a terminated thread or a full queue.
        """
        return self._hands.queue(content, metadata)

    def queue_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> str:
        """Have a tool called as if the model had asked for it; answers the id of the message that holds the call.

        It waits for its turn as a message of `queue_message` does, is a step of the run that takes it in, and the model
        goes on from its result. It decides no question and no approval that the run waits for. Raises LookupError for
        a tool that the agent does not have, ValueError for arguments that do not fit it, and Refused as
        `queue_message`.
        """
        return self._hands.queue_tool(name, arguments)

    def emit(self, name: str, data: Any = None) -> None:
        """Tell an event `custom.<name>` with at most 30 KB of JSON. Data that is no object stands as `value`."""
        self._hands.emit(name, data)

    def get_logs(self, limit: int = 50, before: str | None = None) -> list[dict[str, Any]]:
        """The newest rows of the log (at most 50), oldest first, before the row of an id if one is given."""
        return self._hands.logs(limit, before)

    def invoke_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Run a tool of this agent now, inside this code, and answer what it returns. Nothing of it is stored; what it
        raises is raised.
        """
        from chalicelib.engine.fitting import misfit

        tool = self._hands.tool(name)
        given = dict(arguments or {})
        if fault := misfit(tool.parameters, given):
            raise ValueError(fault)
        return tool.run(self, given)

    def terminate(self) -> None:
        """End the thread for good: it takes no more work, and what is in flight, this run included, is cancelled. A
        second call changes nothing.
        """
        self._hands.terminate()

    # -- the family

    @property
    def children(self) -> list[dict[str, Any]]:
        """The newest 50 rows of the registry, newest first: child threads and sessions. One request."""
        return self._kin.children()

    def get_parent_thread(self) -> Relative | None:
        """The thread whose agent made this one, to look at; None for a root."""
        return self._kin.parent()

    def get_child_thread(self, reference_id: str) -> Relative:
        """A child thread by its reference, to look at. Raises LookupError."""
        return self._kin.child(reference_id)

    def notify_parent(self, content: Any) -> bool:
        """Tell the parent something: it reads it as a silent message, and goes on. False: there is no parent, or it has
        closed this child. Once for each call, however often its code runs.
        """
        return self._kin.notify(content)

    def set_status(self, label: str) -> None:
        """Write a free label into this thread's row in the registry of its parent. The last one stands."""
        self._kin.label(label)

    # -- effects: code of this agent that runs outside of turns, at least once

    def schedule_effect(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        at: int | None = None,
        after_seconds: float | None = None,
    ) -> str:
        """Run an effect at an instant (microseconds) or after some seconds, else as soon as possible; answers its id.

        Raises Refused for a terminated thread.
        """
        return self._hands.schedule(name, arguments, at, after_seconds)

    def get_scheduled_effects(self) -> list[dict[str, Any]]:
        """Effects that are to run or were given up, at most 100, by their time: `{"id", "name", "arguments", "at",
        "state": "scheduled"|"parked", "tries", "created_at", "error"?}`.
        """
        return self._hands.effects()

    def remove_scheduled_effect(self, effect_id: str) -> bool:
        """Take an effect back. False: there is none, or it has run. A try that is at work goes on."""
        return self._hands.remove_effect(effect_id)

    # -- notes: visible with the run's next write, within 5 s; gone if the run is taken over by another attempt before

    def log(self, entry: Mapping[str, Any]) -> None:
        """Record an entry in the thread's log; only `name` is needed. Never raises, and starts nothing."""
        if self.notebook is not None:
            self.notebook.log(entry)

    def get_value(self, name: str, default: Any = None) -> Any:
        """A durable value of the thread, as this run has set it or as it is stored. At most one request."""
        return self._notebook.get(name, default)

    def set_value(self, name: str, value: Any) -> None:
        """Keep a value with the thread, of at most 64 KB of JSON. A bad name, or too large a value, is a ValueError."""
        self._notebook.set(name, value)

    # -- files: paths are absolute inside the thread. A bad one is a ValueError, a missing file a FileNotFoundError, a
    #    store that does not answer an OSError. Each read costs one query, and one request for each object

    def write_file(self, path: str, data: bytes | str, content_type: str | None = None) -> Entry:
        """Create or replace a file; it is stored when this returns. The same bytes again change nothing."""
        return self._files.write(path, data, content_type)

    def read_file(self, path: str) -> bytes:
        """A whole file."""
        return self._files.read(path)

    def stream_file(self, path: str) -> Iterator[bytes]:
        """A file in pieces of at most 1 MB."""
        return self._files.stream(path)

    def stat_file(self, path: str) -> Entry | None:
        """What is at a path: a file or a directory; None if nothing is."""
        return self._files.stat(path)

    def list_files(self, path: str = "/") -> Listing:
        """What is directly in a directory; `truncated` says that there is more."""
        return self._files.entries(path)

    def delete_file(self, path: str) -> None:
        """Remove a file."""
        self._files.delete(path)

    def make_directory(self, path: str) -> None:
        """Make a directory that stays when it is empty. One that holds a file needs no making."""
        self._files.make(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        self._files.remove(path)

    def grep_files(self, text: str, path: str = "/") -> Grep:
        """Lines of text files below a path that hold a text, literally; `truncated` says that a bound ended it."""
        return self._files.grep(text, path)

    def find_files(self, pattern: str, path: str = "/") -> Found:
        """Paths below a directory that fit `*.txt` (names) or `docs/**/*.md` (paths); `truncated` says there may be
        more.
        """
        return self._files.find(pattern, path)

    @property
    def _hands(self) -> Hands:
        if self.hands is None:
            raise RuntimeError("this state was made without a thread")
        return self.hands

    @property
    def _kin(self) -> Kin:
        if self.kin is None:
            raise RuntimeError("this state was made without a family")
        return self.kin

    @property
    def _notebook(self) -> Paper:
        if self.notebook is None:
            raise RuntimeError("this state was made without durable values")
        return self.notebook

    @property
    def _files(self) -> RunFiles:
        if self.files is None:
            raise RuntimeError("this state was made without files")
        return self.files
