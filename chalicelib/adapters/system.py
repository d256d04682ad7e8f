"""Time and randomness of the machine, behind the Clock and Ids ports."""

import base64
import secrets
import time

from chalicelib.domain.ids import TOKEN_CHARACTERS

TOKEN_BYTES = 13  # 104 bits; 20 characters of base32 carry 100 of them


class SystemClock:
    """`ports.Clock` of this machine."""

    def now(self) -> int:
        """Microseconds since the epoch."""
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        time.sleep(seconds)


class SystemIds:
    """`ports.Ids` from the operating system's randomness."""

    def token(self) -> str:
        """100 random bits as 20 characters of a-z and 2-7."""
        return base64.b32encode(secrets.token_bytes(TOKEN_BYTES)).decode().lower()[:TOKEN_CHARACTERS]

    def uniform(self) -> float:
        """A number in [0, 1)."""
        return secrets.randbelow(1 << 53) / (1 << 53)
