"""A wake-up for an effect becomes a try: take it, run it with a state outside of any run, store what became of it.

At least once: a try that dies is followed by another when its time is over, with the same token. Two wake-ups for one
effect begin one try. What a try has done and what the row says of it are two things: the row is settled last.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from chalicelib.domain import effects as rules
from chalicelib.domain import entries, values
from chalicelib.domain.entries import LogRow
from chalicelib.domain.errors import RetryLater
from chalicelib.domain.ids import ThreadRef, effect_name
from chalicelib.domain.model import About, Effect, EffectState, Head
from chalicelib.engine import effects, messages
from chalicelib.engine.agent import Agent
from chalicelib.engine.attempt import RESERVE_SECONDS
from chalicelib.engine.workers import Flag
from chalicelib.services import guests
from chalicelib.services.outside import Outside

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RunEffect:
    """Tries effects."""

    outside: Outside
    agents: Mapping[str, Agent]

    def run(self, ref: ThreadRef, effect_id: str, remaining: Callable[[], float]) -> None:
        """Try an effect, if it is due and nobody is at it. Raises RetryLater when there is not the time for it."""
        name = effect_name(ref, effect_id)
        if name is None:
            return
        store, clock = self.outside.store, self.outside.appender.clock
        opened = store.open(ref, about=True, effects=[name])
        head, row = opened.head, opened.effects.get(name)
        if row is None or row.state is not EffectState.SCHEDULED:
            return
        if head is None or opened.about is None or head.deleted_at or head.terminated_at:
            store.remove_effect(ref, name, expires_at=clock.now() + rules.KEPT)
            return
        agent = self.agents.get(head.agent)
        code = next((one for one in agent.effects if one.name == row.name), None) if agent else None
        seconds = code.timeout_seconds if code else effects.DEFAULT_SECONDS
        if remaining() < seconds + RESERVE_SECONDS:
            raise RetryLater("There is not the time for this effect here.")
        until = clock.now() + int(seconds * rules.MICROS) + rules.RESERVE
        nonce = self.outside.appender.ids.token()
        taken = store.take_effect(ref, name, now=clock.now(), until=until, nonce=nonce)
        if taken is not None:
            self._try(ref, head, opened.about, agent, code, taken)

    def _try(
        self, ref: ThreadRef, head: Head, about: About, agent: Agent | None, code: effects.Effect | None, taken: Effect
    ) -> None:
        clock = self.outside.appender.clock
        began, begun_at = clock.monotonic(), clock.now()
        error = self._played(ref, head, about, agent, code, taken)
        now = clock.now()
        after = rules.done(taken, now) if error is None else rules.failed(taken, error, now)
        body = entries.handler_body(
            name=taken.name,
            handler="effect",
            error=error,
            duration_ms=int((clock.monotonic() - began) * 1000),
            request={"effect_id": ref.effect(taken.id), "try": taken.tries, "arguments": dict(taken.arguments)},
        )
        row = LogRow(
            key=entries.key(begun_at, f"e{taken.id}.{taken.tries}"),
            kind="handler",
            at=begun_at,
            message_id=messages.newest(self.outside.store, ref, head),
            body=body,
        )
        self.outside.store.settle_effect(ref, taken, after, row)
        told: dict[str, Any] = {"action": "effect", "thread_id": ref.id, "state": after.state, "tries": taken.tries}
        log.info("effect", extra=told)

    def _played(
        self, ref: ThreadRef, head: Head, about: About, agent: Agent | None, code: effects.Effect | None, taken: Effect
    ) -> str | None:
        """Run the code; why it failed, or None."""
        if taken.tries > rules.TRIES:
            return rules.LOST
        if agent is None or code is None:
            return f"The agent no longer has an effect named {taken.name!r}."
        flag, token = Flag(), rules.token(ref.token, taken)
        state = self.outside.state(ref, head, about, agent, token=token, again=True, cancel=flag)
        try:
            guests.run(lambda: code.run(state, dict(taken.arguments)), code.timeout_seconds, flag)
        except BaseException as raised:  # noqa: BLE001 - what an author's code raises is a failed try
            return values.cut_text(self.outside.environment.hide_text(str(values.safe(raised))), 4096)
        return None
