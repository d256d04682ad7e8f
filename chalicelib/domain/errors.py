"""The error tree, sorted by what the caller must do. Doors turn a `Refusal` into a problem, the runner decides on the
rest.

    TurnlogError
    ├── Refusal                    the request was refused and nothing was stored
    │   ├── InvalidRequest   400   fix the request; `faults` name the paths
    │   ├── Unauthorized     401   bring a valid credential
    │   ├── Forbidden        403   the credential may not do this
    │   ├── NotFound         404   unknown here: another org's id looks the same
    │   ├── MethodNotAllowed 405
    │   ├── KeyReused        409   the idempotency key belongs to another request
    │   ├── ThreadBusy       409   what is pending or in flight cannot be changed
    │   ├── AlreadyDecided   409   somebody else's answer won
    │   ├── TooLarge         413
    │   ├── UnsupportedMedia 415
    │   ├── ThreadTerminated 423
    │   ├── QueueFull        429   retry after a while
    │   ├── RetryLater       503   nothing is wrong with the request; send it again
    │   ├── EndpointProblem  4xx   code of the agent refused the request, in its own words
    │   ├── EndpointFailed   500   code of the agent raised; its log says what
    │   └── EndpointLate     504   code of the agent took longer than it may
    ├── ModelError                 the provider failed; `retryable` says whether asking again can help
    └── LeaseLost                  another attempt owns the run: stop, write nothing more

`LeaseLost` is a BaseException so that a tool that catches everything cannot swallow it.
"""

from dataclasses import dataclass


class TurnlogError(Exception):
    """Root of all errors that Turnlog raises on purpose."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One place in a request that is wrong: `path` is dotted (`content.0.text`), `message` is one sentence."""

    path: str
    message: str


class Refusal(TurnlogError):
    """The request was refused; nothing was stored and no idempotency key was consumed."""

    status = 400
    name = "invalid-request"
    title = "The request is not valid."

    def __init__(
        self, detail: str | None = None, *, faults: tuple[Fault, ...] = (), retry_after_seconds: int | None = None
    ) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.faults = faults
        self.retry_after_seconds = retry_after_seconds


class InvalidRequest(Refusal):
    """The shape, a count, a depth or a character of the request is wrong."""

    @classmethod
    def at(cls, path: str, message: str) -> "InvalidRequest":
        """A refusal with one fault; the detail repeats it for people."""
        return cls(f"{path}: {message}" if path else message, faults=(Fault(path=path, message=message),))


class Unauthorized(Refusal):
    """No credential, or one that is unknown, revoked or expired."""

    status = 401
    name = "unauthorized"
    title = "A valid credential is required."


class Forbidden(Refusal):
    """The credential is valid but may not do this."""

    status = 403
    name = "forbidden"
    title = "This credential may not do that."


class NotFound(Refusal):
    """Unknown, deleted, or of another org: the three look alike."""

    status = 404
    name = "not-found"
    title = "There is nothing here."


class MethodNotAllowed(Refusal):
    """The route exists, but not with this method."""

    status = 405
    name = "method-not-allowed"
    title = "This route does not know that method."
    allow: tuple[str, ...] = ()
    """The methods that it knows, where they are not the route's own."""


class KeyReused(Refusal):
    """The idempotency key was used for another request."""

    status = 409
    name = "idempotency-key-reused"
    title = "This Idempotency-Key was used for a different request."


class ThreadBusy(Refusal):
    """What is pending or in flight cannot be changed now."""

    status = 409
    name = "thread-busy"
    title = "The thread is busy with this."


class AlreadyDecided(Refusal):
    """The question or approval was resolved before."""

    status = 409
    name = "already-decided"
    title = "This has been decided already."


class TooLarge(Refusal):
    """Bytes above a limit of spec section 13."""

    status = 413
    name = "too-large"
    title = "The request is too large."

    @classmethod
    def at(cls, path: str, message: str) -> "TooLarge":
        """A refusal with one fault."""
        return cls(f"{path}: {message}", faults=(Fault(path=path, message=message),))


class UnsupportedMedia(Refusal):
    """The body is not of a media type that this route takes."""

    status = 415
    name = "unsupported-media-type"
    title = "This route takes application/json."


class ThreadTerminated(Refusal):
    """The thread has been terminated and takes no new work."""

    status = 423
    name = "thread-terminated"
    title = "The thread has been terminated."


class QueueFull(Refusal):
    """The thread's queue is at its ceiling."""

    status = 429
    name = "queue-full"
    title = "The queue of this thread is full."


class RetryLater(Refusal):
    """Too much contention or an outage of a part; the same request may succeed shortly."""

    status = 503
    name = "retry-later"
    title = "Please send the request again."


class EndpointProblem(Refusal):
    """Code of the agent refused the request, with a status and words of its own."""

    name = "endpoint-problem"
    title = "The endpoint refused the request."

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class EndpointFailed(Refusal):
    """Code of the agent raised. What it raised is in the thread's log and nowhere else."""

    status = 500
    name = "endpoint-failed"
    title = "The endpoint failed."


class EndpointLate(Refusal):
    """Code of the agent took longer than it may; what it has stored by then stays."""

    status = 504
    name = "endpoint-timeout"
    title = "The endpoint took too long."


class ModelError(TurnlogError):
    """A provider's failure. `status` is its HTTP status if it had one."""

    def __init__(self, status: int | None, detail: str, retryable: bool) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retryable = retryable


class LeaseLost(BaseException):
    """Another attempt, a cancel or a deletion took the run from this attempt: stop at once, write nothing more."""
