"""Threads that do the waiting of a turn: one reads the model, one runs each tool. They never write anything.

Whatever happens on them arrives in one inbox, in order; the turn takes it from there on its own thread, so all writes
of an attempt are made by one thread and need no lock. A worker whose result is no longer wanted is told by its
`Cancel` and left behind: a late result meets an inbox that nobody reads.
"""

import asyncio
import contextvars
import inspect
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from chalicelib.domain import values
from chalicelib.domain.errors import ModelError
from chalicelib.domain.model import Outcome
from chalicelib.engine.agent import Tool, ToolFailure
from chalicelib.engine.asking import Asking, Question
from chalicelib.engine.notes import Noted
from chalicelib.engine.run_files import Asked
from chalicelib.engine.state import ThreadState
from chalicelib.ports import Cancel, Chunk, Model, ModelRequest

log = logging.getLogger(__name__)


class Flag:
    """A `Cancel` that can be raised once; `given_up` is called then."""

    def __init__(self, given_up: Callable[[], None] | None = None) -> None:
        self._event = threading.Event()
        self._given_up = given_up

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds`; True as soon as the work is no longer wanted."""
        return self._event.wait(seconds)

    def set(self) -> None:
        """The work is no longer wanted."""
        self._event.set()
        if self._given_up is not None:
            self._given_up()


@dataclass(frozen=True, kw_only=True)
class Said:
    """A chunk of the model call `call`."""

    call: int
    chunk: Chunk


@dataclass(frozen=True, kw_only=True)
class Silent:
    """The model call `call` is over; `error` says why if it failed."""

    call: int
    error: ModelError | None


@dataclass(frozen=True, kw_only=True)
class Returned:
    """A tool call has its outcome."""

    call_id: str
    outcome: Outcome
    result: Any


Happening = Said | Silent | Returned | Asked | Noted | Question


class Workers:
    """The workers of one attempt and their inbox."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[Happening] = queue.SimpleQueue()
        self._flags: list[Flag] = []

    def ask(self, model: Model, request: ModelRequest, call: int) -> Flag:
        """Read a model's answer on a thread of its own; raise the flag answered to stop it."""
        flag = self._flag()
        _spawn(lambda: self._read(model, request, call, flag), f"model-{call}")
        return flag

    def run(
        self,
        tool: Tool,
        state: Callable[[Flag], ThreadState],
        call_id: str,
        arguments: dict[str, Any],
        given_up: Callable[[], None] | None = None,
    ) -> Flag:
        """Run a tool on a thread of its own. `given_up` is called with the flag."""
        flag = self._flag(given_up)
        _spawn(lambda: self._call(tool, state(flag), call_id, arguments), f"tool-{call_id}")
        return flag

    def dismiss(self) -> None:
        """Nothing that any worker does is wanted any more."""
        for flag in self._flags:
            flag.set()

    def _flag(self, given_up: Callable[[], None] | None = None) -> Flag:
        flag = Flag(given_up)
        self._flags.append(flag)
        return flag

    def _read(self, model: Model, request: ModelRequest, call: int, flag: Flag) -> None:
        error: ModelError | None = None
        try:
            for chunk in chunks(model, request, flag):
                self.inbox.put(Said(call=call, chunk=chunk))
        except ModelError as failure:
            error = failure
        self.inbox.put(Silent(call=call, error=error))

    def _call(self, tool: Tool, state: ThreadState, call_id: str, arguments: dict[str, Any]) -> None:
        try:
            outcome, result = played(tool, state, arguments)
        except Asking as asking:
            self.inbox.put(asking.question)
        else:
            self.inbox.put(Returned(call_id=call_id, outcome=outcome, result=result))


def chunks(model: Model, request: ModelRequest, cancel: Cancel) -> Iterator[Chunk]:
    """What a model says, until it is not wanted any more. Raises ModelError alone."""
    try:
        for chunk in model.stream(request, cancel):
            yield chunk
            if cancel.wait(0):
                return
    except (ModelError, GeneratorExit):
        raise
    except BaseException as failure:  # a provider's bug is this call's failure: nobody else would hear of it
        log.exception("model raised")
        raise ModelError(None, str(values.safe(failure)), retryable=False) from failure


def played(tool: Tool, state: ThreadState, arguments: dict[str, Any]) -> tuple[Outcome, Any]:
    """How a call of a tool's code ends. Raises Asking."""
    try:
        value = tool.run(state, arguments)
        if inspect.isawaitable(value):
            value = asyncio.run(_awaited(value))
        return Outcome.OK, state.environment.safe(value)
    except ToolFailure as failure:
        said = failure.args[0] if failure.args else "The tool failed."
        return Outcome.ERROR, state.environment.safe(said)
    except Asking:
        raise
    except BaseException as failure:  # noqa: BLE001 - what raises is a result, `sys.exit` too (spec section 7)
        return Outcome.ERROR, state.environment.safe(failure)


async def _awaited(value: Any) -> Any:
    return await value


def _spawn(work: Callable[[], None], name: str) -> None:
    context = contextvars.copy_context()
    threading.Thread(target=lambda: context.run(work), name=name, daemon=True).start()
