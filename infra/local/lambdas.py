"""Calls a handler as Lambda does: with a context whose time runs out, on a thread, counting who is at work.

It knows nothing of where an event came from. `Activity` tells the pumps when to look often: AWS's own pollers are
always there, ours may sleep while nothing moves. When the process is asked to stop, every context's remaining time
falls to zero, so that a runner hands over at its next stored boundary as it does at the end of a Lambda.
"""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from infra.local.resources import ACCOUNT, REGION

Handler = Callable[[dict[str, Any], "Context"], Any]

RUNNER_SECONDS = 900.0  # Lambda's longest timeout
DOOR_SECONDS = 29.0  # API Gateway waits no longer than this for an integration
BACKGROUND_SECONDS = 60.0  # fan-out, sweep and operator functions, as .chalice/config.json has them

AFTERGLOW_SECONDS = 1.0  # after this without any call the pumps look less often


class Activity:
    """Who is at work in this process, and bells that ring when someone has finished."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._last = time.monotonic()
        self._bells: list[threading.Event] = []
        self.stopping = threading.Event()

    def bell(self) -> threading.Event:
        """An event that is set whenever a call has ended: it may have written or sent something."""
        made = threading.Event()
        self._bells.append(made)
        return made

    def begin(self) -> None:
        """A call begins."""
        with self._lock:
            self._running += 1

    def end(self, *, ring: bool) -> None:
        """A call has ended; `ring` unless it cannot have changed anything."""
        with self._lock:
            self._running -= 1
            self._last = time.monotonic()
        if ring:
            self.ring()

    def ring(self) -> None:
        """Let every pump look at once."""
        for bell in self._bells:
            bell.set()

    @property
    def busy(self) -> bool:
        """Whether something is running or has just ended."""
        return self._running > 0 or time.monotonic() - self._last < AFTERGLOW_SECONDS

    @property
    def running(self) -> int:
        """Calls at work now."""
        return self._running


@dataclass(frozen=True, kw_only=True)
class Context:
    """What Lambda hands to a handler beside the event."""

    function_name: str
    deadline: float
    stopping: threading.Event
    aws_request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    function_version: str = "$LATEST"
    memory_limit_in_mb: str = "1024"
    identity: None = None
    client_context: None = None

    @property
    def invoked_function_arn(self) -> str:
        """The ARN that this function would have."""
        return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{self.function_name}"

    @property
    def log_group_name(self) -> str:
        """Where its log would be."""
        return f"/aws/lambda/{self.function_name}"

    @property
    def log_stream_name(self) -> str:
        """One stream a process would be; here one a call."""
        return f"local/[$LATEST]{self.aws_request_id}"

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the function would be stopped; 0 once this process is asked to stop."""
        if self.stopping.is_set():
            return 0
        return max(0, int((self.deadline - time.monotonic()) * 1000))


@dataclass(frozen=True, kw_only=True)
class Function:
    """One handler of app.py, with the time that its function has."""

    name: str
    handler: Handler
    seconds: float
    activity: Activity

    def __call__(self, event: dict[str, Any], *, ring: bool = True) -> Any:
        """Invoke it on this thread. Whatever the handler raises comes out."""
        context = Context(
            function_name=f"turnlog-local-{self.name}",
            deadline=time.monotonic() + self.seconds,
            stopping=self.activity.stopping,
        )
        self.activity.begin()
        try:
            return self.handler(event, context)
        finally:
            self.activity.end(ring=ring)
