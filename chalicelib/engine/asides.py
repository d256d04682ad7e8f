"""Plays a prompt as a tool: one model step beside the conversation, on the worker of the call that asked for it.

It must not write. What a model call has used is noted as soon as it is over and stored with the run's next write,
whatever becomes of the tool call; of one whose process died the row says only that there was one.
"""

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chalicelib.domain import values
from chalicelib.domain.errors import ModelError
from chalicelib.domain.limits import CONTENT_BYTES, KB
from chalicelib.domain.model import Call, Head, Tokens
from chalicelib.domain.queueing import Draft
from chalicelib.engine import counting
from chalicelib.engine.agent import Tool, ToolFailure
from chalicelib.engine.answering import RETRY_PAUSES, TRUNCATED
from chalicelib.engine.attempt import Attempt
from chalicelib.engine.counting import Asked
from chalicelib.engine.ending import lost_call
from chalicelib.engine.notes import Noted
from chalicelib.engine.planning import read_call
from chalicelib.engine.prompt_tool import PromptTool
from chalicelib.engine.prompts import filled
from chalicelib.engine.speech import AskedCall, Speech
from chalicelib.engine.state import ThreadState
from chalicelib.engine.workers import chunks, played
from chalicelib.ports import ModelRequest, Stop

#: Of the row and the event of one model call, at most.
ROW_BYTES = 4 * KB
GIVEN_UP = "The answer was given up before it was whole."


@dataclass(kw_only=True)
class Aside:
    """One call of a prompt tool. `run` is on the call's worker, all else on the turn's own thread."""

    attempt: Attempt
    tool: PromptTool
    call: Call
    speech: Speech | None = None
    """The answer that is being heard."""
    asked_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, state: ThreadState, arguments: dict[str, Any]) -> Any:
        """Ask the model, again if it must; the result of the call. Raises ToolFailure."""
        for number, pause in enumerate((*RETRY_PAUSES, None)):
            request = self._request(arguments, number)
            speech, error = self._listen(request, state)
            if error is None:
                return self._result(speech, state)
            if pause is None or not error.retryable or state.wait(0):
                raise ToolFailure(f"The model gave no answer: {error.detail}")
            self.attempt.clock.sleep(pause)
        raise AssertionError("the last try has no pause")

    def give_up(self) -> None:
        """Nobody waits for the result any more: what the answer has used so far is noted."""
        self._over(GIVEN_UP)

    def lost(self) -> None:
        """An attempt that died was asking: what that has used is not known."""
        attempt, now = self.attempt, self.attempt.clock.now()

        def count(head: Head) -> Draft:
            row = lost_call(head, model=self._model, message_id=self._message_id, at=now)
            return Draft(after=counting.called(attempt, head, self._model, Tokens()), logs=(row,))

        attempt.journal.notes.count(count, size=0)

    @property
    def _model(self) -> str:
        return self.tool.prompt.model or self.attempt.model

    @property
    def _message_id(self) -> str:
        return self.attempt.ref.asking(self.call.id, self.call.run, self.call.step)

    def _request(self, arguments: Mapping[str, Any], number: int) -> ModelRequest:
        prompt = self.tool.prompt
        said = arguments.get(self.tool.message)
        text = said if isinstance(said, str) and said else values.canonical(arguments)
        part = {"type": "text", "text": values.cut_text(text, CONTENT_BYTES)}
        return ModelRequest(
            model=self._model,
            system=filled(prompt.text, {**self.attempt.arguments, **arguments}),
            messages=({"id": f"aside_{self.call.id}", "role": "user", "content": (part,)},),
            tools=tuple(tool.spec for tool in prompt.tools),
            tool_choice=prompt.tool_choice,
            parallel_tool_calls=prompt.parallel_tool_calls,
            options=prompt.all_options,
            deadline_seconds=self.tool.timeout_seconds,
            call_index=number,
            arguments=arguments,
        )

    def _listen(self, request: ModelRequest, state: ThreadState) -> tuple[Speech, ModelError | None]:
        """One model call to its end, and why it is no whole answer, if it is none."""
        clock, error = self.attempt.clock, None
        speech = self.speech = self._new_speech()
        self.asked_at = clock.monotonic()
        try:
            for chunk in chunks(self.attempt.models.resolve(request.model), request, state.cancel):
                speech.take(chunk, clock.now())
                if speech.too_long:
                    speech.take(Stop(reason="length"), clock.now())
                    break
        except ModelError as failure:
            error = failure
        speech.finish(clock.now())
        if speech.stop is None:
            error = error or ModelError(None, TRUNCATED, retryable=True)
        else:
            error = None  # a finish reason makes the answer whole, whatever came after it
        self._over(None if error is None else error.detail)
        return speech, error

    def _result(self, speech: Speech, state: ThreadState) -> Any:
        if not self.tool.prompt.tools:
            return speech.text
        tools = {tool.name: tool for tool in self.tool.prompt.tools}
        calls = [_played(tools, asked, speech, state, number) for number, asked in enumerate(speech.calls, start=1)]
        return {"text": speech.text, "calls": calls}

    def _over(self, error: str | None) -> None:
        """Note the model call that is being heard, once."""
        with self.lock:
            speech, self.speech = self.speech, None
        if speech is None:
            return
        attempt = self.attempt
        asked = Asked(
            model=self._model,
            speech=speech,
            duration_ms=int((attempt.clock.monotonic() - self.asked_at) * 1000),
            request={"messages": 1, "tools": len(self.tool.prompt.tools), "tool": self.tool.name},
            error=error,
        )
        now = attempt.clock.now()

        def count(head: Head) -> Draft:
            row = counting.row(attempt, head, asked, self._message_id, now)
            after, told = counting.counted(attempt, head, asked, now)
            facts = () if speech.usage == Tokens() and error is not None else (told,)
            return Draft(after=after, facts=facts, logs=(row,))

        attempt.journal.notes.count(count, size=ROW_BYTES)
        attempt.workers.inbox.put(Noted(call_id=self.call.id))

    def _new_speech(self) -> Speech:
        return Speech(message_id="", run=self.call.run, attempt=self.attempt.journal.attempt)


def _played(
    tools: Mapping[str, Tool], asked: AskedCall, speech: Speech, state: ThreadState, number: int
) -> dict[str, Any]:
    """A call that the answer asks for. Its token is its own, and the same when the same is asked for again."""
    arguments, fault = read_call(tools, asked, speech)
    told = {"name": asked.name, "arguments": arguments}
    if fault is not None:
        return {**told, "outcome": "error", "result": fault}
    what = hashlib.sha256(f"{asked.name} {values.canonical(arguments)}".encode()).hexdigest()[:16]
    inner = replace(state, idempotency_token=f"{state.idempotency_token}.{number}.{what}", asker=None)
    outcome, result = played(tools[asked.name], inner, arguments)
    return {**told, "outcome": outcome.value, "result": result}
