"""A wake-up becomes a turn: take the lease, play, release, and look once more (I8). A wake-up carries ids, never work.

A second wake-up for a thread whose attempt is alive ends at once and quietly: that attempt looks once more after its
release. A wake-up for a thread without work does nothing. So wake-ups may come as often as they like.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from chalicelib.domain.errors import LeaseLost, RetryLater
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Head, Tokens
from chalicelib.engine import context, playing
from chalicelib.engine.agent import Agent
from chalicelib.engine.attempt import LEASE_SECONDS, MICROS, RESERVE_SECONDS, Attempt
from chalicelib.engine.environment import Environment
from chalicelib.engine.journal import Journal
from chalicelib.engine.turn import Result, Turn
from chalicelib.engine.workers import Workers
from chalicelib.ports import FileObjects, Models, Store
from chalicelib.services.appending import Appender
from chalicelib.services.hear import Hear

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TakeTurn:
    """Plays turns. `default_model` is for agents that name none."""

    store: Store
    objects: FileObjects
    appender: Appender
    models: Models
    agents: Mapping[str, Agent]
    price: Callable[[str, Tokens], int | None]
    default_model: str
    version: str
    hear: Hear
    environment: Environment = field(default_factory=Environment)

    def run(self, ref: ThreadRef, remaining: Callable[[], float]) -> None:
        """Work on a thread until it has no more work or the invocation's time is over. Raises RetryLater."""
        head = self._take(ref) or self._hear(ref)
        while head is not None:
            if self._play(ref, *head, remaining) is Result.HANDED_OVER:
                return
            head = self._look_again(ref, remaining)

    def _take(self, ref: ThreadRef) -> tuple[Head, bool] | None:
        """The lease of the run in flight, and whether the attempt before died with it; None: nothing to take."""
        clock, ids = self.appender.clock, self.appender.ids
        now = clock.now()
        until, nonce = now + int(LEASE_SECONDS * MICROS), ids.token()
        head, mine = self.store.take(ref, now=now, until=until, nonce=nonce, takeover=False)
        if mine and head is not None:
            return head, False
        if head is None or not head.run or head.waiting or not head.lease_until or head.leased(now):
            return None
        head, mine = self.store.take(ref, now=now, until=until, nonce=nonce, takeover=True)
        return (head, True) if mine and head is not None else None

    def _hear(self, ref: ThreadRef, head: Head | None = None) -> tuple[Head, bool] | None:
        """The run that reports of children have started or resumed."""
        head = head or self.store.open(ref).head
        if head is None or not head.children or not self.hear.run(ref, head):
            return None
        return self._take(ref)

    def _look_again(self, ref: ThreadRef, remaining: Callable[[], float]) -> tuple[Head, bool] | None:
        """After every release: is there work that came while the lease was ours? (design section 4.5)"""
        head = self.store.open(ref).head
        if head is None or head.leased(self.appender.clock.now()):
            return None
        if not head.run or head.waiting:
            return self._hear(ref, head)
        if remaining() < RESERVE_SECONDS * 2:
            self.appender.wake(ref, None, head)
            return None
        return self._take(ref)

    def _play(self, ref: ThreadRef, head: Head, recovered: bool, remaining: Callable[[], float]) -> Result:
        try:
            turn, fault = self._turn(ref, head, recovered, remaining)
        except LeaseLost:
            return Result.ENDED
        log.info(
            "attempt",
            extra={"action": "attempt", "thread_id": ref.id, "run_id": ref.run(head.run), "attempt": head.run_attempt},
        )
        try:
            result = turn.fail(fault) if fault else turn.play()
        except LeaseLost:
            log.info("lease lost", extra={"action": "lease_lost", "thread_id": ref.id, "run_id": ref.run(head.run)})
            return Result.ENDED
        except RetryLater:
            raise
        except Exception as error:
            log.exception("turn failed", extra={"action": "turn_failed", "thread_id": ref.id})
            return self._give_up(turn, error)
        if result is Result.HANDED_OVER:
            self.appender.wake(ref, None, turn.attempt.journal.head)
        return result

    def _give_up(self, turn: Turn, error: Exception) -> Result:
        """A fault of ours ends the run in words instead of trying it for ever."""
        try:
            return turn.fail(f"The runtime met an unexpected fault: {type(error).__name__}.")
        except LeaseLost:
            return Result.ENDED

    def _turn(
        self, ref: ThreadRef, head: Head, recovered: bool, remaining: Callable[[], float]
    ) -> tuple[Turn, str | None]:
        """The turn of a lease, and why it cannot be played if the agent's own definition does not fit this thread."""
        places = context.window_places(head)
        opened = self.store.open(ref, head=False, about=True, commands=_rows(head), messages=places)
        about, command = opened.about, opened.commands.get(head.run)
        if about is None or command is None:  # the thread was deleted and purged since the lease was taken
            raise LeaseLost
        agent, unplayable = playing.player(self.agents, head)
        arguments = dict(about.arguments)
        asked = command.model if command.model_asked or not head.run_started_at else None
        model = asked or agent.model or self.default_model
        tools, broken = playing.tools_of(agent, arguments, self.agents)
        attempt = Attempt(
            ref=ref,
            journal=Journal(log=self.appender.log, clock=self.appender.clock, ref=ref, head=head),
            workers=Workers(),
            store=self.store,
            objects=self.objects,
            clock=self.appender.clock,
            models=self.models,
            price=self.price,
            remaining=remaining,
            agent=agent,
            default_model=self.default_model,
            model=model,
            run_model=command.model if head.run_started_at and command.model else model,
            asked_model=asked,
            version=self.version,
            command=command,
            balance=opened.commands[head.balance_at].balance if head.balance_at else (),
            window=[opened.messages[place] for place in places if place in opened.messages],
            arguments=arguments,
            user=about.user,
            tools=tools,
            log=self.appender.log,
            agents=self.agents,
            wake=self.appender.wake,
            environment=self.environment,
            watched_at=self.appender.clock.monotonic(),
        )
        return Turn(attempt=attempt, recovered=recovered), unplayable or broken


def _rows(head: Head) -> list[int]:
    """The run in flight, and the one that ended last, whose balance it carries on."""
    return [number for number in (head.run, head.balance_at) if number]
