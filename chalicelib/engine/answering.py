"""One model step's answer: ask, tell while it comes, store it once. A stored answer is never asked for again (I7).

Deltas are coalesced (spec section 5): the first flush at 2 KB or 150 ms, then each max(150 ms, 5% of the answer's age)
but at most 1 s, or at 16 KB. What is not yet told when the answer ends goes into `message.completed` alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import wire
from chalicelib.domain.entries import LogRow
from chalicelib.domain.errors import ModelError
from chalicelib.domain.events import Fact
from chalicelib.domain.model import Head, Message, Role, Tokens
from chalicelib.domain.queueing import Draft
from chalicelib.engine import counting
from chalicelib.engine.attempt import Attempt
from chalicelib.engine.counting import Asked
from chalicelib.engine.ending import OpenAnswer, close_answer
from chalicelib.engine.speech import Speech
from chalicelib.engine.workers import Said, Silent
from chalicelib.ports import ModelRequest, Stop

FIRST_FLUSH_BYTES = 2 * 1024
FLUSH_BYTES = 16 * 1024
FLUSH_SECONDS = 0.15
FLUSH_AGE_SHARE = 0.05
FLUSH_SECONDS_AT_MOST = 1.0
#: A failed or truncated answer is asked for again this often, after these pauses in seconds.
RETRY_PAUSES = (0.5, 2.0)
CUT_OFF = "The run ended before the answer was whole."
TRUNCATED = "the answer ended without a finish reason"


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The model gave no usable answer in all tries; `speech` is what was said in the last one."""

    error: ModelError
    speech: Speech


class Answering:
    """Asks for one answer, again if it must, and keeps the log in step."""

    def __init__(self, attempt: Attempt, messages: tuple[Mapping[str, Any], ...]) -> None:
        self._attempt = attempt
        self._messages = messages
        self._system = attempt.hooking.system(attempt.agent.system_for(attempt.arguments))
        self._opened_at = self._asked_at = attempt.clock.monotonic()
        self._fault = CUT_OFF
        self.speech = self._new_speech()
        self.edited: tuple[tuple[Mapping[str, Any], ...], Mapping[str, Any]] | None = None
        """Text parts and metadata that hooks have left of the whole answer."""

    def ask(self) -> Speech | Failed:
        """The whole answer, or why there is none. Raises LeaseLost, CancelSeen; `speech` then holds what was said."""
        for pause in (*RETRY_PAUSES, None):
            error = self._listen()
            if error is None:
                return self.speech
            self._fault = error.detail
            if pause is None or not error.retryable:
                return Failed(error=error, speech=self.speech)
            self._reset("truncated" if error.detail == TRUNCATED else "model_error")
            self._attempt.rest(pause)
        raise AssertionError("the last try has no pause")

    def close(self, head: Head, now: int) -> Draft:
        """The decision that closes what was said so far, as an incomplete message; only a count if nothing was said."""
        self.speech.finish(now)
        row = self._row(head, now, self._fault)
        if not self.speech.begun:
            return Draft(after=self._called(head, Tokens()), logs=(row,))
        facts = tuple(self.speech.facts)
        answer = OpenAnswer(message_id=self.speech.message_id, text=self.speech.text)
        closed = close_answer(self._attempt.ref, head, answer, now=now)
        counted, usage = self.count(closed.after, now)
        told = (usage,) if self.speech.usage != Tokens() else ()
        return replace(closed, after=counted, facts=(*facts, *closed.facts, *told), logs=(row,))

    def count(self, head: Head, now: int) -> tuple[Head, Fact]:
        """This call and its tokens, on the run and as the event that tells of them."""
        return counting.counted(self._attempt, head, self._asked(None), now)

    def _called(self, head: Head, usage: Tokens) -> Head:
        return counting.called(self._attempt, head, self._attempt.model, usage)

    def stored(self, head: Head, now: int, calls: Mapping[str, dict[str, Any]]) -> Draft:
        """The decision that stores the finished answer."""
        message = Message(
            place=head.messages + 1,
            id=self.speech.message_id,
            run=head.run,
            role=Role.ASSISTANT,
            content=self.speech.content(dict(calls)) if self.edited is None else (*self.edited[0], *calls.values()),
            metadata={} if self.edited is None else self.edited[1],
            created_at=now,
            side=head.side,
        )
        data = {"message": wire.message_body(self._attempt.ref, message)}
        completed = Fact(type="message.completed", data=data, at=now, run=head.run, attempt=head.run_attempt)
        counted, usage = self.count(head, now)
        after = replace(
            counted,
            messages=message.place + 1 if calls else message.place,  # the place behind calls is kept for their results
            run_steps=head.run_steps + 1,
            open_message=0,
            open_calls=message.place if calls else 0,
        )
        row = self._row(head, now, None)
        return Draft(after=after, facts=(*self.speech.facts, completed, usage), messages=(message,), logs=(row,))

    def _row(self, head: Head, now: int, error: str | None) -> LogRow:
        """The model call as a row of the log; `error` says why its answer does not count."""
        shown = self.speech.message_id if self.speech.begun or error is None else self._newest
        return counting.row(self._attempt, head, self._asked(error), shown, now)

    def _asked(self, error: str | None) -> Asked:
        attempt = self._attempt
        return Asked(
            model=attempt.model,
            speech=self.speech,
            duration_ms=int((attempt.clock.monotonic() - self._asked_at) * 1000),
            request={"messages": len(self._messages), "tools": len(attempt.tools)},
            error=error,
        )

    @property
    def _newest(self) -> str | None:
        """The newest message that the model was shown."""
        return self._messages[-1]["id"] if self._messages else None

    def _new_speech(self) -> Speech:
        journal = self._attempt.journal
        message_id = self._attempt.ref.answer(journal.run, journal.head.run_steps + 1)
        return Speech(message_id=message_id, run=journal.run, attempt=journal.attempt)

    def _listen(self) -> ModelError | None:
        """Hear one model call to its end; None if it is a whole answer."""
        attempt = self._attempt
        begun_at = self._asked_at = attempt.clock.monotonic()
        deadline = begun_at + attempt.agent.model_seconds
        call = attempt.journal.head.model_calls
        try:
            model = attempt.models.resolve(attempt.model)
        except ModelError as error:
            return error
        flag = attempt.workers.ask(model, self._request(call), call)
        try:
            return self._hear(begun_at, deadline, call)
        finally:
            flag.set()

    def _hear(self, begun_at: float, deadline: float, call: int) -> ModelError | None:
        attempt, last_flush = self._attempt, None
        while True:
            flush_at = self._flush_at(begun_at, last_flush)
            happening = attempt.next(deadline if flush_at is None else min(deadline, flush_at))
            if isinstance(happening, Said) and happening.call == call:
                self.speech.take(happening.chunk, attempt.clock.now())
            elif isinstance(happening, Silent) and happening.call == call:
                return self._verdict(happening.error)
            if self.speech.too_long:
                return self._verdict(None, cut=True)
            if attempt.clock.monotonic() >= deadline:
                return ModelError(None, f"no whole answer in {attempt.agent.model_seconds:.0f} s", retryable=True)
            if self._must_flush(begun_at, last_flush):
                last_flush = attempt.clock.monotonic()
                self._flush()

    def _verdict(self, error: ModelError | None, *, cut: bool = False) -> ModelError | None:
        """The stream is over: a finish reason makes the answer whole, whatever came after it."""
        now = self._attempt.clock.now()
        if cut:
            self.speech.take(Stop(reason="length"), now)
        if self.speech.stop is None:
            return error or ModelError(None, TRUNCATED, retryable=True)
        self.speech.finish(now)
        return None

    def _request(self, call: int) -> ModelRequest:
        attempt = self._attempt
        return ModelRequest(
            model=attempt.model,
            system=self._system,
            messages=self._messages,
            tools=tuple(tool.spec for tool in attempt.tools.values()),
            tool_choice=attempt.agent.tool_choice,
            parallel_tool_calls=attempt.agent.parallel_tool_calls,
            options=attempt.agent.options,
            deadline_seconds=attempt.agent.model_seconds,
            call_index=call,
            arguments=attempt.arguments,
        )

    def _flush_at(self, begun_at: float, last_flush: float | None) -> float | None:
        """When what is untold must be told, or None if nothing is; what is left at the finish goes with the answer."""
        if self.speech.stop is not None or not (
            self.speech.untold_bytes or self.speech.facts or self._attempt.journal.unopened
        ):
            return None
        if last_flush is None:
            return (begun_at if self.speech.begun else self._opened_at) + FLUSH_SECONDS
        age = self._attempt.clock.monotonic() - begun_at
        return last_flush + min(FLUSH_SECONDS_AT_MOST, max(FLUSH_SECONDS, FLUSH_AGE_SHARE * age))

    def _must_flush(self, begun_at: float, last_flush: float | None) -> bool:
        limit = FIRST_FLUSH_BYTES if last_flush is None else FLUSH_BYTES
        if self.speech.untold_bytes >= limit:
            return True
        flush_at = self._flush_at(begun_at, last_flush)
        return flush_at is not None and self._attempt.clock.monotonic() >= flush_at

    def _flush(self) -> None:
        self.speech.tell(self._attempt.clock.now())
        facts = tuple(self.speech.facts)
        self._attempt.journal.write(lambda head: Draft(after=_opened(head, facts), facts=facts))
        self.speech.facts.clear()

    def _reset(self, reason: str) -> None:
        """What was streamed is superseded; the same message is asked for again."""
        now = self._attempt.clock.now()
        begun = self.speech.begun
        started = tuple(f for f in self.speech.facts if f.type == "message.started")
        data = {"message_id": self.speech.message_id, "reason": reason}

        def decide(head: Head) -> Draft:
            row = self._row(head, now, self._fault)
            if not begun:
                return Draft(after=replace(self._called(head, Tokens()), open_message=0), logs=(row,))
            counted, usage = self.count(replace(head, open_message=0), now)
            told = (usage,) if self.speech.usage != Tokens() else ()
            reset = Fact(type="message.reset", data=data, at=now, run=head.run, attempt=head.run_attempt)
            return Draft(after=counted, facts=(*started, reset, *told), logs=(row,))

        self._attempt.journal.write(decide)
        self.speech = self._new_speech()


def _opened(head: Head, facts: tuple[Fact, ...]) -> Head:
    """The head knows which event opened the answer, so that anybody can close it."""
    for offset, fact in enumerate(facts, start=1):
        if fact.type == "message.started":
            return replace(head, open_message=head.seq + offset)
    return head
