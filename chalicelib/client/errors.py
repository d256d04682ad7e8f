"""The client's error tree, sorted by what the caller must do.

It must not know how an answer came; it guarantees that each status has one class.

    TurnlogError
    ├── Misused                      the call cannot be made: a bad address, key, id or value; nothing was sent
    ├── ConnectionFailed             no usable answer: refused, timed out, broken off, not JSON
    ├── ForeignSocket                the server named a websocket on another host; the ticket was not sent there
    └── ProblemError                 the server said no; `type`, `errors` and `request_id` say more
        ├── InvalidRequest      400  fix the request; `errors` name the paths
        ├── Unauthorized        401  bring a valid key
        ├── Forbidden           403  this key may not do that
        ├── NotFound            404  unknown here; another org's id looks the same
        ├── Conflict            409  busy, already decided, or the idempotency key was used for something else
        ├── TooLarge            413  send less
        ├── ThreadTerminated    423  the thread takes no new work
        ├── TooManyRequests     429  a queue or a budget is full; retried, if `retry_after` is below two minutes
        └── Unavailable         5xx  502, 503 and 504 were retried
"""

from collections.abc import Mapping
from typing import Any


class TurnlogError(Exception):
    """Root of all errors that the client raises on purpose."""


class Misused(TurnlogError, ValueError):
    """The call cannot be made; nothing was sent."""


class ConnectionFailed(TurnlogError):
    """No usable answer, after the retries too. A mutation may have been accepted: the same idempotency key tells."""


class ForeignSocket(TurnlogError):
    """The websocket's address is on another host than the server's, or falls back from https to plain text."""


class ProblemError(TurnlogError):
    """A refusal as RFC 9457 problem details. `retry_after` is in seconds, None if the server named none."""

    def __init__(
        self, fields: Mapping[str, Any], status: int, *, request_id: str | None = None, retry_after: float | None = None
    ) -> None:
        self.status = status
        self.type = str(fields.get("type") or "about:blank")
        self.title = str(fields.get("title") or f"HTTP {status}")
        self.detail = str(fields.get("detail") or self.title)
        faults = fields.get("errors")
        self.errors: list[dict[str, Any]] = list(faults) if isinstance(faults, list) else []
        self.request_id = request_id
        self.retry_after = retry_after
        super().__init__(f"{status} {self.name}: {self.detail}")

    @property
    def name(self) -> str:
        """The last part of the type, `not-found` of `/problems/not-found`."""
        return self.type.rsplit("/", 1)[-1]


class InvalidRequest(ProblemError):
    """400: the shape, a count or a character of the request is wrong."""


class Unauthorized(ProblemError):
    """401: no key, or one that is unknown, revoked or expired."""


class Forbidden(ProblemError):
    """403: the key is valid but may not do this."""


class NotFound(ProblemError):
    """404: unknown, deleted, or of another org."""


class Conflict(ProblemError):
    """409: never retried, since a second try says the same."""


class TooLarge(ProblemError):
    """413: bytes above a limit."""


class ThreadTerminated(ProblemError):
    """423: nothing was stored."""


class TooManyRequests(ProblemError):
    """429: the queue or a budget is full."""


class Unavailable(ProblemError):
    """Any 5xx."""


_BY_STATUS: Mapping[int, type[ProblemError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    423: ThreadTerminated,
    429: TooManyRequests,
}


def problem(
    fields: object, status: int, *, request_id: str | None = None, retry_after: float | None = None
) -> ProblemError:
    """The error of a status. `fields` may be anything that stood where a problem should be."""
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else ProblemError)
    return kind(fields if isinstance(fields, dict) else {}, status, request_id=request_id, retry_after=retry_after)
