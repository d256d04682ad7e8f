"""The tool calls of one model step: run on workers, each result stored as it lands (I6, I7), people asked meanwhile.

A call's life is in its row: asked for, started, waiting, ended. After a crash the rows say what to do: what has ended
is adopted, what has not started starts, what waits goes on waiting, what had started follows its tool's rule
(`on_retry`).
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from chalicelib.domain import children as family
from chalicelib.domain import entries, people, queueing, values
from chalicelib.domain.children import Heard
from chalicelib.domain.entries import LogRow
from chalicelib.domain.events import Fact
from chalicelib.domain.limits import TOOL_RESULT_BYTES
from chalicelib.domain.model import Call, File, Head, Outcome, Verdict
from chalicelib.domain.people import Decision
from chalicelib.domain.queueing import Draft, then
from chalicelib.domain.sessions import GATHER, park
from chalicelib.engine import changing, children, playing, sessions
from chalicelib.engine.asides import Aside
from chalicelib.engine.asking import Asker, Question
from chalicelib.engine.attempt import WATCH_SECONDS, Attempt
from chalicelib.engine.ending import completed_call, duration_ms, next_session, tell_results
from chalicelib.engine.files import Change, Shelf, added
from chalicelib.engine.notes import Notebook
from chalicelib.engine.planning import Begun, begin, candidates
from chalicelib.engine.prompt_tool import PromptTool
from chalicelib.engine.registry import reports
from chalicelib.engine.run_files import Asked, RunFiles
from chalicelib.engine.run_hands import RunHands
from chalicelib.engine.state import ThreadState
from chalicelib.engine.waiting import pending_joins
from chalicelib.engine.workers import Flag, Returned

UNKNOWN = "The tool was interrupted; whether it took effect is unknown."
GONE = "The tool no longer exists in this release, so the call did not run."
#: Results that one write stores: each is in its row and in its event, in a transaction of at most 3 MB (design 4.4).
RESULTS_A_WRITE = 20


class _Unchanged(Exception):
    """A decision that leaves everything as it is: nothing is written."""


class Left(Enum):
    """How the calls of a step were left."""

    FINISHED = "finished"
    NO_TIME = "no time"
    """This invocation has no time to start the next call."""
    WAITING = "waiting"
    """The run waits for people, and its lease is released."""


class Calling:
    """Runs the calls of a step to their end."""

    def __init__(self, attempt: Attempt, step: int, calls: list[Call]) -> None:
        self._attempt = attempt
        self._step = step
        self.calls = {c.id: c for c in calls}
        self._running: dict[str, float] = {}
        self._own: list[Call] = []
        """Calls that the turn plays itself."""
        self._flags: dict[str, Flag] = {}

    def adopt(self) -> None:
        """After a crash: what had started and has no result runs again or is closed as unknown, as its tool says."""
        now = self._attempt.clock.now()
        ended = []
        for call in [c for c in self.calls.values() if c.outcome is None and not c.waits]:
            tool = self._attempt.tools.get(call.name)
            if tool is not None and (call.ready or tool.by_the_turn):
                continue
            if tool is None and not call.started_at:
                ended.append(replace(call, outcome=Outcome.ERROR, result=GONE, ended_at=now))
            elif call.started_at and (tool is None or tool.on_retry != "again"):
                ended.append(replace(call, outcome=Outcome.UNKNOWN, result=UNKNOWN, ended_at=now))
            if call.started_at and isinstance(tool, PromptTool):
                Aside(attempt=self._attempt, tool=tool, call=call).lost()
        for first in range(0, len(ended), RESULTS_A_WRITE):
            self._store(ended[first : first + RESULTS_A_WRITE])

    def finish(self) -> Left:
        """Run all calls; the tool message is stored with the last result."""
        self._launch_started()
        while self._attempt.journal.head.open_calls:
            if self._own:
                self._perform()
                continue
            if not self._running and not self._store([]):
                if not all(call.waits for call in candidates(self._attempt, list(self.calls.values()))):
                    return Left.NO_TIME
                if self._wait():
                    return Left.WAITING
                continue
            results = self._attempt.hooking.results(self._await()) if self._running else []
            for first in range(0, len(results), RESULTS_A_WRITE):
                self._store(results[first : first + RESULTS_A_WRITE])
        return Left.FINISHED

    def _launch_started(self) -> None:
        for call in self.calls.values():
            runs = call.started_at and call.outcome is None and not call.waits and not call.ready
            if runs and call.id not in self._running and call not in self._own:
                self._launch(call)

    def _wait(self) -> bool:
        """Every call whose turn it is waits, for people or for children: release the run until they have settled it.
        False: they have by now, or a message came in their place; go on.
        """
        if self._hear() or self._gather():
            return False

        def decide(head: Head) -> Draft:
            self._look_at_waiting()
            waiting = [call for call in self.calls.values() if call.waits]
            if not waiting or any(call.ready for call in self.calls.values()):
                raise _Unchanged
            if all(call.waits == GATHER for call in waiting):
                return self._parked(head, waiting)
            waiting = [call for call in waiting if call.waits != GATHER]
            ids = [call.waits for call in waiting if people.is_inquiry(call.waits)]
            inquiries = self._attempt.store.open(self._attempt.ref, head=False, inquiries=ids).inquiries
            now, on = self._attempt.clock.now(), tuple(call.waits for call in waiting)
            if not inquiries:
                return queueing.wait(head, queueing.AWAITING_CHILDREN, on, now=now)
            if self._spoken_to(head):  # a message came in the place of decisions: it goes on with that
                asked_by = [(inquiries[call.waits], call) for call in waiting if call.waits in inquiries]
                return people.resolve_all(head, asked_by, Decision(verdict=Verdict.SUPERSEDED), now)
            ends = [inquiry.expires_at for inquiry in inquiries.values() if inquiry.expires_at]
            return queueing.wait(head, queueing.AWAITING_HUMAN, on, now=now, due_at=min(ends, default=0))

        try:
            after = self._attempt.journal.write(decide, progress=True)
        except _Unchanged:
            return False
        self._look_at_waiting()
        return after.waiting is not None or after.run != self._attempt.journal.run

    def _spoken_to(self, head: Head) -> bool:
        """True if a message of a user waits to be taken in. Reads only if something does."""
        store, ref = self._attempt.store, self._attempt.ref
        joins = pending_joins(store, ref, head.free_from, head.commands) if head.free_pending else ()
        return any(not join.is_call for join in joins)

    def _gather(self) -> bool:
        """Settle the calls whose sessions have all ended by now. False: there is none."""
        gathering = [call for call in self.calls.values() if call.waits == GATHER]
        settled = [done for call in gathering if (done := sessions.gathered(self._attempt, call)) is not None]
        if settled:
            self._store(settled)
        return bool(settled)

    def _parked(self, head: Head, gathering: list[Call]) -> Draft:
        """The run makes room for the sessions that it gathers, until they have ended."""
        attempt = self._attempt
        references, runs = sessions.runs_of(attempt, gathering)
        then_goes = next_session(attempt.store, attempt.ref, head, runs)
        if then_goes is None:
            raise _Unchanged
        row = attempt.store.open(attempt.ref, head=False, commands=[head.run]).commands[head.run]
        return park(head, row, references, runs, then_goes, attempt.clock.now())

    def _perform(self) -> None:
        """Play calls of the turn's own, and store what came of them."""
        some, self._own = self._own[:RESULTS_A_WRITE], self._own[RESULTS_A_WRITE:]
        order = list(self.calls)
        played = [
            playing.perform(self._attempt, call) or children.perform(self._attempt, call, order.index(call.id) + 1)
            for call in some
        ]
        for call in played:
            made = children.made_by(self._attempt, call, order.index(call.id) + 1)
            if made is not None:
                self._attempt.hooking.call("after_subagent_created", made)
        self._store(played)

    def _hear(self) -> bool:
        """Take in what children have reported; a call that waited for one has its result. False: nothing was there."""
        attempt = self._attempt
        heard = reports(attempt.store, attempt.ref) if attempt.journal.head.children else []
        if heard:
            now = attempt.clock.now()
            told, brought = attempt.bag.bring_home(attempt.ref, heard, now)
            self._store(children.settled_calls(self.calls.values(), told, now), told, brought)
        return bool(heard)

    def _look_at_waiting(self) -> None:
        """What others have decided about calls that wait."""
        waiting = [call.id for call in self.calls.values() if call.waits]
        if waiting:
            self.calls |= self._attempt.store.open(self._attempt.ref, head=False, calls=waiting).calls

    def _launch(self, call: Call) -> None:
        tool = self._attempt.tools[call.name]
        if tool.by_the_turn:
            self._own.append(call)
            return
        self._attempt.journal.notes.begin(call)
        self._running[call.id] = self._attempt.clock.monotonic() + tool.timeout_seconds
        state, given_up = functools.partial(self._state, call), None
        if isinstance(tool, PromptTool):
            aside = Aside(attempt=self._attempt, tool=tool, call=call)
            tool, given_up = replace(tool, run=aside.run), aside.give_up
        self._flags[call.id] = self._attempt.workers.run(tool, state, call.id, dict(call.arguments), given_up)

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
            asker=Asker(call_id=call.id, answers=call.answers),
            kin=self._attempt.kin(f"{call.run}.{call.id}"),
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
        asking = any(call.waits for call in self.calls.values())
        look_at = self._attempt.clock.monotonic() + WATCH_SECONDS if asking else math.inf
        first = self._attempt.next(min(notes.due_at or math.inf, look_at, *self._running.values()))
        due = notes.due_at
        if due is not None and due <= self._attempt.clock.monotonic() and not isinstance(first, Returned):
            self._attempt.journal.write(lambda head: Draft(after=head))
        if asking and self._attempt.clock.monotonic() >= look_at:
            self._look_at_waiting()
            self._hear()
        happened = [h for h in (first, *self._attempt.landed()) if isinstance(h, Returned | Asked | Question)]
        known = [h for h in happened if h.call_id in self._running]
        for asked in known:
            if isinstance(asked, Asked):
                self._change(asked)
            elif isinstance(asked, Question):
                self._put(asked)
        landed = [h for h in known if isinstance(h, Returned)]
        now = self._attempt.clock.now()
        ended = [replace(self.calls[h.call_id], outcome=h.outcome, result=h.result, ended_at=now) for h in landed]
        done = {call.id for call in ended}
        late = [i for i, until in self._running.items() if until <= self._attempt.clock.monotonic() and i not in done]
        return ended + [self._timed_out(call_id, now) for call_id in late]

    def _change(self, asked: Asked) -> None:
        changing.make(self._attempt.journal, asked)

    def _put(self, asked: Question) -> None:
        """A call has a question for people: it waits from now on, and its worker is gone."""
        known, now = self.calls[asked.call_id], self._attempt.clock.now()
        call = self._attempt.journal.notes.calls.get(known.id, known)  # with the count of what it has noted
        position, number = list(self.calls).index(call.id) + 1, len(call.answers) + 1
        question_id = self._attempt.ref.question(call.run, call.step, position, number)
        inquiry = people.question_of(call, question_id, asked.question, asked.options, asked.expires_in, now)
        waiting = replace(call, waits=inquiry.id)
        self._attempt.journal.write(
            lambda head: Draft(
                after=head, facts=(people.asked(head, inquiry),), calls=(waiting,), inquiries=(inquiry,)
            ),
            progress=True,
        )
        self.calls[call.id] = waiting
        self._attempt.journal.notes.end(call.id)
        self._running.pop(call.id)

    def _timed_out(self, call_id: str, now: int) -> Call:
        self._flags[call_id].set()
        call = self.calls[call_id]
        seconds = self._attempt.tools[call.name].timeout_seconds
        text = f"The tool gave no result in {seconds:g} s and was given up."
        return replace(call, outcome=Outcome.ERROR, result=text, ended_at=now)

    def _store(self, ended: list[Call], heard: Sequence[Heard] = (), brought: Sequence[File] = ()) -> bool:
        """Store results (or what a call waits for), start what may start next, tell all results once the last is there;
        with what children have reported, and brought. False: nothing to do.
        """
        now = self._attempt.clock.now()
        whole, ended = ended, [_kept(c) for c in ended]
        artifacts = {
            cut.id: self._put_away(all_of_it)
            for all_of_it, cut in zip(whole, ended, strict=True)
            if cut is not all_of_it
        }
        merged = {**self.calls, **{c.id: c for c in ended}}
        begun = self._begin(merged, now)
        merged |= {c.id: c for c in begun.calls}
        complete = all(c.outcome is not None for c in merged.values())
        if not ended and not begun.calls and not complete and not heard:
            return False
        name = f"{self._attempt.journal.run}.{self._attempt.journal.attempt}.{now}"

        def decide(head: Head) -> Draft:
            hearing = then(
                added(head, brought), lambda at: family.hear(self._attempt.ref, at, heard, nonce=name, now=now)
            )
            return then(hearing, results)

        def results(at: Head) -> Draft:
            told = [fact for c in ended if c.outcome for fact in _told(at, c, artifacts.get(c.id), now)]
            finished = sum(1 for c in ended if c.outcome in (Outcome.OK, Outcome.ERROR))
            after = replace(at, run_calls=at.run_calls + finished)
            logs = tuple(self._row(c, now) for c in ended if c.started_at and c.outcome)
            stored = then(Draft(after=after, facts=tuple(told), calls=tuple(ended), logs=logs), begun.along)
            if not complete:
                return stored
            every = list(merged.values())
            in_place = then(stored, lambda at: tell_results(self._attempt.ref, at, every, step=self._step, now=now))
            return then(in_place, lambda at: playing.handed_over(self._attempt, at, every, now))

        self._attempt.journal.write(decide, progress=bool(ended or heard))
        self.calls = merged
        for call in ended:
            self._attempt.journal.notes.end(call.id)
            self._running.pop(call.id, None)
        self._launch_started()
        return True

    def _begin(self, calls: Mapping[str, Call], now: int) -> Begun:
        return begin(self._attempt, list(calls.values()), self._attempt.journal.head, now)

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
        message_id = self._attempt.ref.asking(call.id, call.run, call.step)
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
