"""The Python client: typed, over HTTP and the websocket, with light imports and no view of the server's code.

    with Turnlog() as turnlog:
        created = turnlog.create_thread("assistant", message="Good morning")
        for event in turnlog.stream(created["thread"]["id"]):
            print(event.delivery_seq, event.type)

It knows the public contract, httpx, websockets and the standard library, and imports nothing else of this package. It
guarantees that a call that is retried stays one call, and that a stream hands out each event once, in order.

    api      `Turnlog`: the calls          stream   `EventStream`: one thread, live, over any number of sockets
    files    their part for files
    wire     what is sent and answered     errors   the error tree     pace   when to try again
"""

from chalicelib.client.api import Turnlog
from chalicelib.client.errors import (
    Conflict,
    ConnectionFailed,
    Forbidden,
    ForeignSocket,
    InvalidRequest,
    Misused,
    NotFound,
    ProblemError,
    ThreadTerminated,
    TooLarge,
    TooManyRequests,
    TurnlogError,
    Unauthorized,
    Unavailable,
)
from chalicelib.client.stream import EventStream
from chalicelib.client.wire import (
    Accepted,
    Child,
    Command,
    Cost,
    Event,
    EventPage,
    FileEntry,
    Inquiry,
    LogRow,
    Message,
    Run,
    RunRoot,
    Status,
    Step,
    Thread,
    Usage,
)

__all__ = [
    "Accepted",
    "Child",
    "Command",
    "Conflict",
    "ConnectionFailed",
    "Cost",
    "Event",
    "EventPage",
    "EventStream",
    "FileEntry",
    "Forbidden",
    "ForeignSocket",
    "Inquiry",
    "InvalidRequest",
    "LogRow",
    "Message",
    "Misused",
    "NotFound",
    "ProblemError",
    "Run",
    "RunRoot",
    "Status",
    "Step",
    "Thread",
    "ThreadTerminated",
    "TooLarge",
    "TooManyRequests",
    "Turnlog",
    "TurnlogError",
    "Unauthorized",
    "Unavailable",
    "Usage",
]
