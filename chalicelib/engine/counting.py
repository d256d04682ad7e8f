"""A model call as its run counts it: on the head, as the event that tells of it, and as a row of the log."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import costs, entries, wire
from chalicelib.domain.entries import LogRow
from chalicelib.domain.events import Fact
from chalicelib.domain.model import Head, Tokens
from chalicelib.engine.attempt import Attempt
from chalicelib.engine.ending import llm_key
from chalicelib.engine.speech import Speech


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A model call that is over. `error` says why its answer does not count, None that it does."""

    model: str
    speech: Speech
    duration_ms: int
    request: Mapping[str, Any]
    """What the row says of the request."""
    error: str | None = None


def counted(attempt: Attempt, head: Head, asked: Asked, now: int) -> tuple[Head, Fact]:
    """The head with this call and its tokens, and the event that tells of them."""
    usage = _spent(attempt, asked)
    data = {
        "model": asked.model,
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_tokens": usage.cache_read,
        "cost_usd": wire.cost_usd(usage),
    }
    fact = Fact(type="usage.updated", data=data, at=now, run=head.run, attempt=head.run_attempt)
    return called(attempt, head, asked.model, usage), fact


def called(attempt: Attempt, head: Head, model: str, usage: Tokens) -> Head:
    """The head with one more model call."""
    return costs.called(head, model=model, own=attempt.run_model, usage=usage)


def row(attempt: Attempt, head: Head, asked: Asked, message_id: str | None, now: int) -> LogRow:
    """The call as a row of the log. `head`: as it stands before the call is counted."""
    spent, speech = _spent(attempt, asked), asked.speech
    body = entries.llm_body(
        model=asked.model,
        usage=wire.usage_body(spent),
        cost_usd=wire.cost_usd(spent),
        duration_ms=asked.duration_ms,
        finish_reason=speech.stop.reason if speech.stop else None,
        error=asked.error,
        request=asked.request,
        response={"text": speech.text[: entries.GLANCE_BYTES], "calls": [call.name for call in speech.calls]},
    )
    return LogRow(key=llm_key(head, now), kind="llm", at=now, run=head.run, message_id=message_id, body=body)


def _spent(attempt: Attempt, asked: Asked) -> Tokens:
    usage = asked.speech.usage
    return replace(usage, cost_micro_usd=attempt.price(asked.model, usage))
