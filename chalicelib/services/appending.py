"""How others than an attempt append to a thread: decide on the head, commit if it has not moved, else decide again.

Contention is answered with jitter and patience for five seconds, then with `RetryLater` (design section 4.2). Whoever
loses gets the head that stands with the refusal, so a second try costs no second read.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from chalicelib.domain.commands import Idempotency, Level, Principal
from chalicelib.domain.errors import NotFound, RetryLater
from chalicelib.domain.ids import ThreadRef, thread_ref
from chalicelib.domain.model import Effect, Head
from chalicelib.engine.log import Log
from chalicelib.ports import Clock, Ids, Queue, Remembered

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.004
LONGEST_PAUSE_SECONDS = 0.25
#: Idempotency keys are kept at least 24 h (spec section 3); a day more covers a client that retries for a day.
KEPT_MICROS = 48 * 3600 * 1_000_000


@dataclass(frozen=True, kw_only=True)
class Appender:
    """What every service that appends has in hand."""

    log: Log
    queue: Queue
    clock: Clock
    ids: Ids

    def tries(self) -> Iterator[int]:
        """Numbers the tries of one append; pauses between them. Raises RetryLater when patience ends."""
        until = self.clock.monotonic() + PATIENCE_SECONDS
        number = 0
        while True:
            yield number
            number += 1
            if self.clock.monotonic() >= until:
                raise RetryLater("The thread is under contention; nothing was stored.", retry_after_seconds=1)
            longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(number, 8))
            self.clock.sleep(longest * self.ids.uniform())

    def wake(self, ref: ThreadRef, before: Head | None, after: Head) -> None:
        """Send the wake-up that a commit has named. If it cannot be sent, the sweep sends it from the row."""
        if after.wake == (before.wake if before else 0):
            return
        try:
            self.queue.wake(ref, epoch=after.epoch, number=after.wake)
        except RetryLater:
            log.warning(
                "wake-up not sent; the sweep will send it", extra={"action": "wake_failed", "thread_id": ref.id}
            )

    def wake_effect(self, ref: ThreadRef, effect: Effect) -> None:
        """Send the wake-up that a claim has named. If it cannot be sent, the sweep sends another."""
        try:
            self.queue.wake_effect(ref, ref.effect(effect.id), number=effect.wakes)
        except RetryLater:
            log.warning(
                "wake-up not sent; the sweep will send it", extra={"action": "wake_failed", "thread_id": ref.id}
            )


def the_house(org: str) -> Principal:
    """The house itself, in the name of an org: what it does follows from what somebody else was allowed to do."""
    return Principal(org=org, key_id="house", level=Level.ADMIN)


def known(org: str, thread_id: str) -> ThreadRef:
    """The thread that a caller names. Raises NotFound if the id is none."""
    ref = thread_ref(org, thread_id)
    if ref is None:
        raise NotFound
    return ref


def alive(head: Head | None) -> Head:
    """The head of a thread that exists. Raises NotFound."""
    if head is None or head.deleted_at:
        raise NotFound
    return head


def kept_key(ref: ThreadRef, idem: Idempotency, *, nonce: str, now: int, command: int = 0) -> Remembered:
    """What a request's key stands for from its write on: the thread, a command of it, or what `nonce` names."""
    return Remembered(
        key=idem.key,
        fingerprint=idem.fingerprint,
        token=ref.token,
        command=command,
        nonce=nonce,
        expires_at=now + KEPT_MICROS,
    )
