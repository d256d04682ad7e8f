"""What becomes of an effect: when it is due, when it is tried again, when it is given up. Pure: rows in, rows out.

An effect runs outside of turns, at least once, with a token that is the same at every try. After eight failed tries it
is parked: it stays visible and is not tried again.
"""

import base64
import hashlib
from dataclasses import replace

from chalicelib.domain.ids import TOKEN_CHARACTERS
from chalicelib.domain.model import Effect, EffectState

MICROS = 1_000_000
#: Spec section 9: an effect is given up after so many tries.
TRIES = 8
#: The pause after the first failed try; each further one is four times as long, at most the longest (microseconds).
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 10 * MICROS, 3600 * MICROS, 4
#: A wake-up for an effect is given so long before the sweep names another.
WAKE_GRACE = 60 * MICROS
#: Time beyond an effect's own deadline in which its try is stored, before another one may begin.
RESERVE = 30 * MICROS
#: What is done or taken back is remembered that long, as an idempotency key is: whoever schedules it again finds it.
KEPT = 48 * 3600 * MICROS
LOST = "The try was lost before it was done."


def token(thread_token: str, effect: Effect) -> str:
    """What an effect gives to services that take an idempotency token; every try has the same."""
    return f"{thread_token}.{effect.id}"


def name_of(*parts: object) -> str:
    """The name of an effect that follows from what schedules it: 100 bits in the alphabet of ids."""
    hashed = hashlib.sha256(".".join(map(str, parts)).encode()).digest()
    return base64.b32encode(hashed).decode().lower()[:TOKEN_CHARACTERS]


def done(effect: Effect, now: int) -> Effect:
    """It has run."""
    return replace(effect, state=EffectState.DONE, due_at=0, until=0, error=None, expires_at=now + KEPT)


def removed(effect: Effect, now: int) -> Effect:
    """It is taken back."""
    return replace(effect, state=EffectState.REMOVED, due_at=0, until=0, expires_at=now + KEPT)


def failed(effect: Effect, error: str, now: int) -> Effect:
    """A try has failed: it is tried again later, or parked."""
    if effect.tries >= TRIES:
        return replace(effect, state=EffectState.PARKED, due_at=0, until=0, error=error)
    at = now + pause(effect.tries)
    return replace(effect, at=at, due_at=at, until=0, error=error)


def pause(tries: int) -> int:
    """Microseconds until the next try, after so many."""
    grown: int = FIRST_PAUSE * GROWTH ** max(0, tries - 1)
    return min(LONGEST_PAUSE, grown)
