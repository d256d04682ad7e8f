"""The tool calls of one model step: planned with the answer, run on workers, each result stored as it lands (I6, I7).

A call's life is in its row: asked, started, ended. After a crash the rows say what to do: what has ended is adopted,
what
has not started starts, what had started follows its tool's rule (`on_retry`).
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import entries, values
from chalicelib.domain.entries import LogRow
from chalicelib.domain.events import Fact
from chalicelib.domain.limits import TOOL_RESULT_BYTES
from chalicelib.domain.model import Call, Head, Outcome
from chalicelib.domain.queueing import Draft
from chalicelib.engine import changing, fitting
from chalicelib.engine.agent import Tool
from chalicelib.engine.attempt import Attempt
from chalicelib.engine.ending import completed_call, duration_ms, tell_results
from chalicelib.engine.files import Change, Shelf
from chalicelib.engine.notes import Notebook
from chalicelib.engine.run_files import Asked, RunFiles
from chalicelib.engine.run_hands import RunHands
from chalicelib.engine.speech import AskedCall, Speech
from chalicelib.engine.state import ThreadState
from chalicelib.engine.workers import Flag, Returned

UNKNOWN = "The tool was interrupted; whether it took effect is unknown."
GONE = "The tool no longer exists in this release, so the call did not run."
CUT = "The answer was cut by the output limit, so this call did not run."
#: Results that one write stores: each is in its row and in its event, in a transaction of at most 3 MB (design 4.4).
RESULTS_A_WRITE = 20


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A call of an answer: its row, and its part in the message by the model's own reference."""

    ref: str
    call: Call

    @property
    def part(self) -> dict[str, Any]:
        """The tool_call part of the stored answer."""
        return {"type": "tool_call", "call_id": self.call.id, "name": self.call.name, "arguments": self.call.arguments}


def plan(attempt: Attempt, speech: Speech, *, step: int, taken: frozenset[str], now: int) -> list[Planned]:
    """The calls of an answer as rows: named uniquely, arguments checked, what cannot run already closed."""
    used, planned = set(taken), []
    for asked in speech.calls:
        call_id = _unique(asked, used, attempt.journal.run, step)
        used.add(call_id)
        planned.append(Planned(ref=asked.ref, call=_row(attempt, asked, speech, call_id, step, now)))
    return planned


def begin(attempt: Attempt, calls: list[Call], head: Head, now: int) -> tuple[list[Call], tuple[Fact, ...]]:
    """Start what may start now: all open calls when they may run in parallel, else the first. Rows and events of it."""
    open_calls = [c for c in calls if c.outcome is None]
    if not attempt.agent.parallel_tool_calls:
        open_calls = open_calls[:1]
    ready = [c for c in open_calls if not c.started_at and attempt.covers(_seconds(attempt, c))]
    started = [replace(c, started_at=now) for c in ready]
    return started, tuple(started_call(head, c, now) for c in started)


class Calling:
    """Runs the calls of a step to their end."""

    def __init__(self, attempt: Attempt, step: int, calls: list[Call]) -> None:
        self._attempt = attempt
        self._step = step
        self.calls = {c.id: c for c in calls}
        self._running: dict[str, float] = {}
        self._flags: dict[str, Flag] = {}

    def adopt(self) -> None:
        """After a crash: what had started and has no result runs again or is closed as unknown, as its tool says."""
        now = self._attempt.clock.now()
        ended = []
        for call in [c for c in self.calls.values() if c.outcome is None]:
            tool = self._attempt.tools.get(call.name)
            if tool is None and not call.started_at:
                ended.append(replace(call, outcome=Outcome.ERROR, result=GONE, ended_at=now))
            elif call.started_at and (tool is None or tool.on_retry != "again"):
                ended.append(replace(call, outcome=Outcome.UNKNOWN, result=UNKNOWN, ended_at=now))
        for first in range(0, len(ended), RESULTS_A_WRITE):
            self._store(ended[first : first + RESULTS_A_WRITE])

    def finish(self) -> bool:
        """Run all calls; the tool message is stored with the last result. False: no time left to start one."""
        self._launch_started()
        while self._attempt.journal.head.open_calls:
            if not self._running and not self._store([]):
                return False
            results = self._attempt.hooking.results(self._await()) if self._running else []
            for first in range(0, len(results), RESULTS_A_WRITE):
                self._store(results[first : first + RESULTS_A_WRITE])
        return True

    def _launch_started(self) -> None:
        for call in self.calls.values():
            if call.started_at and call.outcome is None and call.id not in self._running:
                self._launch(call)

    def _launch(self, call: Call) -> None:
        tool = self._attempt.tools[call.name]
        self._attempt.journal.notes.begin(call)
        self._running[call.id] = self._attempt.clock.monotonic() + tool.timeout_seconds
        state = functools.partial(self._state, call)
        self._flags[call.id] = self._attempt.workers.run(tool, state, call.id, dict(call.arguments))

    def _state(self, call: Call, flag: Flag) -> ThreadState:
        ref, notebook = self._attempt.ref, self._notebook(call)
        return ThreadState(
            thread_id=ref.id,
            run_id=ref.run(call.run),
            call_id=call.id,
            idempotency_token=f"{ref.token}.{call.run}.{call.id}",
            arguments=self._attempt.arguments,
            cancel=flag,
            context=self._attempt.context,
            environment=self._attempt.environment,
            files=self._files(call.id, flag),
            notebook=notebook,
            hands=RunHands(attempt=self._attempt, notebook=notebook, ask=self._asking(call.id, flag)),
        )

    def _notebook(self, call: Call) -> Notebook:
        """Log and values for one call: what it notes waits for a write of this thread."""
        attempt = self._attempt
        return Notebook(
            notes=attempt.journal.notes,
            store=attempt.store,
            ref=attempt.ref,
            run=call.run,
            attempt=attempt.journal.attempt,
            call=call,
            tell=attempt.workers.inbox.put,
            environment=attempt.environment,
        )

    def _files(self, call_id: str, flag: Flag) -> RunFiles:
        """The files for one call: it reads by itself, and hands what it wants to change to this thread."""
        attempt, ask = self._attempt, self._asking(call_id, flag)
        shelf = Shelf(store=attempt.store, objects=attempt.objects, ref=attempt.ref)
        return RunFiles(shelf=shelf, clock=attempt.clock, cancel=flag, ask=lambda change: ask(change, True))

    def _asking(self, call_id: str, flag: Flag) -> Callable[[Change, bool], None]:
        """The way of a call's changes to this thread."""

        def ask(change: Change, of_run: bool) -> None:
            asked = Asked(call_id, change, of_run=of_run)
            self._attempt.workers.inbox.put(asked)
            asked.wait(flag)

        return ask

    def _await(self) -> list[Call]:
        """Results that have landed, or calls whose time is over."""
        notes = self._attempt.journal.notes
        first = self._attempt.next(min(notes.due_at or math.inf, *self._running.values()))
        due = notes.due_at
        if due is not None and due <= self._attempt.clock.monotonic() and not isinstance(first, Returned):
            self._attempt.journal.write(lambda head: Draft(after=head))
        happened = [h for h in (first, *self._attempt.landed()) if isinstance(h, Returned | Asked)]
        known = [h for h in happened if h.call_id in self._running]
        for asked in known:
            if isinstance(asked, Asked):
                self._change(asked)
        landed = [h for h in known if isinstance(h, Returned)]
        now = self._attempt.clock.now()
        ended = [replace(self.calls[h.call_id], outcome=h.outcome, result=h.result, ended_at=now) for h in landed]
        done = {call.id for call in ended}
        late = [i for i, until in self._running.items() if until <= self._attempt.clock.monotonic() and i not in done]
        return ended + [self._timed_out(call_id, now) for call_id in late]

    def _change(self, asked: Asked) -> None:
        changing.make(self._attempt.journal, asked)

    def _timed_out(self, call_id: str, now: int) -> Call:
        self._flags[call_id].set()
        call = self.calls[call_id]
        seconds = self._attempt.tools[call.name].timeout_seconds
        text = f"The tool gave no result in {seconds:g} s and was given up."
        return replace(call, outcome=Outcome.ERROR, result=text, ended_at=now)

    def _store(self, ended: list[Call]) -> bool:
        """Store results, start what may start next, tell all results once the last is there. False: nothing to do."""
        now = self._attempt.clock.now()
        whole, ended = ended, [_kept(c) for c in ended]
        artifacts = {
            cut.id: self._put_away(all_of_it)
            for all_of_it, cut in zip(whole, ended, strict=True)
            if cut is not all_of_it
        }
        merged = {**self.calls, **{c.id: c for c in ended}}
        head = self._attempt.journal.head
        started, _ = begin(self._attempt, list(merged.values()), head, now)
        merged |= {c.id: c for c in started}
        complete = all(c.outcome is not None for c in merged.values())
        if not ended and not started and not complete:
            return False

        def decide(at: Head) -> Draft:
            told = [fact for c in ended for fact in _told(at, c, artifacts.get(c.id), now)]
            facts = (*told, *(started_call(at, c, now) for c in started))
            finished = sum(1 for c in ended if c.outcome in (Outcome.OK, Outcome.ERROR))
            after = replace(at, run_calls=at.run_calls + finished)
            logs = tuple(self._row(c, now) for c in ended if c.started_at)
            draft = Draft(after=after, facts=facts, calls=(*ended, *started), logs=logs)
            if not complete:
                return draft
            message = tell_results(self._attempt.ref, after, list(merged.values()), step=self._step, now=now)
            return replace(message, facts=(*facts, *message.facts), calls=draft.calls, logs=logs)

        self._attempt.journal.write(decide, progress=bool(ended))
        self.calls = merged
        for call in ended:
            self._attempt.journal.notes.end(call.id)
            self._running.pop(call.id, None)
        self._launch_started()
        return True

    def _row(self, call: Call, now: int) -> LogRow:
        """A call that ran, as a row of the log."""
        position = list(self.calls).index(call.id) + 1
        body = entries.tool_body(
            name=call.name,
            call_id=call.id,
            outcome=call.outcome or "",
            duration_ms=duration_ms(call),
            arguments=call.arguments,
            result=call.result,
        )
        key = entries.key(now, f"t{call.run}.{call.step}.{position}")
        message_id = self._attempt.ref.answer(call.run, call.step)
        return LogRow(key=key, kind="tool", at=now, run=call.run, message_id=message_id, body=body)

    def _put_away(self, call: Call) -> dict[str, Any]:
        """Store a whole result as an object; what `artifact.created` says of it. A second put changes nothing."""
        stored = self._attempt.journal.put_away(call.result)
        return {
            "artifact_id": self._attempt.ref.artifact(call.run, call.step, list(self.calls).index(call.id) + 1),
            "name": f"{call.name}.json",
            "content_type": stored["content_type"],
            "bytes": stored["bytes"],
            "ref": stored["ref"],
            "call_id": call.id,
        }


def _kept(call: Call) -> Call:
    """A result as the log and the model keep it, at most 64 KB (spec section 13); the call itself if that is all."""
    result, was_cut = values.cut_value(call.result, TOOL_RESULT_BYTES)
    return replace(call, result=result) if was_cut else call


def _told(head: Head, call: Call, artifact: Mapping[str, Any] | None, now: int) -> list[Fact]:
    """What a finished call tells: where its whole result is if the log keeps only a part of it, then the result."""
    completed = completed_call(head, call, now)
    if artifact is None:
        return [completed]
    return [Fact(type="artifact.created", data=artifact, at=now, run=head.run, attempt=head.run_attempt), completed]


def _unique(asked: AskedCall, used: set[str], run: int, step: int) -> str:
    """The model's own id if it is one and new in the thread, else one that says where the call was asked."""
    wanted = values.cut_text(values.safe_text(asked.call_id or ""), 64, "") or f"call-{run}-{step}"
    if wanted not in used:
        return wanted
    return next(name for n in range(2, 1000) if (name := f"{wanted}-{run}-{step}-{n}") not in used)


def _row(attempt: Attempt, asked: AskedCall, speech: Speech, call_id: str, step: int, now: int) -> Call:
    arguments, fault = values.parse_arguments(asked.text)
    call = Call(id=call_id, run=attempt.journal.run, step=step, name=asked.name, arguments=arguments or {})
    if speech.stop is not None and speech.stop.reason == "length":
        fault = CUT
    elif asked.name not in attempt.tools:
        known = ", ".join(sorted(attempt.tools)) or "none"
        fault = f"There is no tool named {asked.name!r}. Known tools: {known}."
    elif fault is None:
        fault = _misfit(attempt.tools[asked.name], arguments or {})
    if fault is None:
        return call
    return replace(call, outcome=Outcome.ERROR, result=fault, ended_at=now)


def _seconds(attempt: Attempt, call: Call) -> float:
    return attempt.tools[call.name].timeout_seconds


def _misfit(tool: Tool, arguments: Mapping[str, Any]) -> str | None:
    """Why the arguments do not fit the tool's schema, or None. A schema that is none refuses every call, in words."""
    return fitting.misfit(tool.parameters, arguments)


def started_call(head: Head, call: Call, now: int) -> Fact:
    data = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
    return Fact(type="tool.started", data=data, at=now, run=head.run, attempt=head.run_attempt)
