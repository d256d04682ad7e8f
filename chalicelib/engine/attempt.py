"""One lease on a run and what belongs to it: the journal, the workers, the clock, and the watch on all three.

The watch is why a quiet attempt still notices things: each two seconds it looks at the head (a cancel, a lost lease)
and renews the lease when 20 s of it or less remain. Safety never rests on it; that is the fencing token's work.
"""

import queue
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Command, Head, Message, ModelSpent, Tokens
from chalicelib.engine.agent import Agent, Tool
from chalicelib.engine.attachments import Bag
from chalicelib.engine.environment import Environment
from chalicelib.engine.journal import Journal
from chalicelib.engine.kin import Kin
from chalicelib.engine.log import Log
from chalicelib.engine.workers import Happening, Workers
from chalicelib.ports import Clock, FileObjects, Models, Store

if TYPE_CHECKING:
    from chalicelib.engine.hooking import Hooking

#: Spec section 7: a lease lives 30 s and is renewed every 10 s at the latest.
LEASE_SECONDS = 30.0
RENEW_WHEN_LEFT = 20.0
#: A cancel is seen within 5 s (spec section 7); two seconds leave room for a slow read.
WATCH_SECONDS = 2.0
#: Left of the Lambda's time for storing what came of a call (spec section 7, "the reserve").
RESERVE_SECONDS = 20.0

MICROS = 1_000_000


@dataclass(kw_only=True)
class Attempt:
    """Everything a turn works with. `remaining` answers the seconds that this invocation still has."""

    ref: ThreadRef
    journal: Journal
    workers: Workers
    store: Store
    objects: FileObjects
    clock: Clock
    models: Models
    price: Callable[[str, Tokens], int | None]
    remaining: Callable[[], float]
    agent: Agent
    model: str
    run_model: str
    """The model that stands in the run's row: the one that it began with."""
    asked_model: str | None
    """The model that was asked for with the run: it plays all of it."""
    default_model: str
    version: str
    command: Command
    balance: tuple[ModelSpent, ...]
    """What the thread had spent on models when this run became the one in flight."""
    window: list[Message]
    """The newest messages as this attempt knows them."""
    arguments: Mapping[str, Any]
    user: str | None
    tools: Mapping[str, Tool]
    log: Log
    agents: Mapping[str, Agent]
    """The agents that there are."""
    wake: Callable[[ThreadRef, Head | None, Head], None]
    """Send the wake-up that a commit on another thread has named."""
    environment: Environment = field(default_factory=Environment)
    context: dict[str, Any] = field(default_factory=dict)
    """What the code of this attempt shares (`ThreadState.context`)."""
    blocked: str | None = None
    """Why a hook that ran inside a tool wants the run to end."""
    watched_at: float = field(default=0.0)

    @property
    def bag(self) -> Bag:
        """Attachments of the thread."""
        return Bag(store=self.store, objects=self.objects)

    @property
    def newest(self) -> str | None:
        """Id of the message that stands last before the first step of the run."""
        if self.command.content is not None or self.command.place:
            return self.ref.user_message(self.command.number)
        return self.window[-1].id if self.window else None

    def kin(self, token: str) -> Kin:
        """The thread's family, for one execution of that name."""
        return Kin(
            log=self.log,
            ref=self.ref,
            head=self.journal.head,
            token=token,
            now=self.clock.now,
            safe=self.environment.safe,
        )

    @cached_property
    def hooking(self) -> "Hooking":
        """The hooks of this attempt's agent."""
        from chalicelib.engine.hooking import Hooking  # knows the attempt

        return Hooking(self)

    def covers(self, seconds: float) -> bool:
        """True if this invocation has the time for a call of that deadline, and the reserve."""
        return self.remaining() >= seconds + RESERVE_SECONDS

    def next(self, until: float) -> Happening | None:
        """The next happening on a worker, or None when the clock has reached `until` (monotonic seconds).

        Watches meanwhile. Raises LeaseLost or CancelSeen.
        """
        while True:
            now = self.clock.monotonic()
            self.watch(now)
            wait = min(until, self.watched_at + WATCH_SECONDS) - now
            try:
                return self.workers.inbox.get(timeout=max(0.0, wait))
            except queue.Empty:
                if self.clock.monotonic() >= until:
                    return None

    def landed(self) -> list[Happening]:
        """What has arrived already, without waiting."""
        found: list[Happening] = []
        while not self.workers.inbox.empty():
            found.append(self.workers.inbox.get())
        return found

    def rest(self, seconds: float) -> None:
        """Wait before asking again, watching meanwhile."""
        until = self.clock.monotonic() + seconds
        while (left := until - self.clock.monotonic()) > 0:
            self.watch(self.clock.monotonic())
            self.clock.sleep(min(left, WATCH_SECONDS / 4))

    def watch(self, now: float) -> None:
        """Look at the head if it is time to; keep the lease alive."""
        if now - self.watched_at < WATCH_SECONDS:
            return
        self.watched_at = now
        head = self.journal.head
        wall = self.clock.now()
        if head.lease_until - wall < RENEW_WHEN_LEFT * MICROS:
            until = wall + int(LEASE_SECONDS * MICROS)
            renewed = self.store.renew(self.ref, run=self.journal.run, attempt=self.journal.attempt, until=until)
            self.journal.see(renewed, own=1)
        else:
            self.journal.see(self.store.open(self.ref).head)
