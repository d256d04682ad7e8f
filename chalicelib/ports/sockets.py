"""Who listens, and the way to their sockets: tickets, connections, subscribers, and where all that is kept."""

from dataclasses import dataclass
from typing import Protocol

from chalicelib.domain.ids import ThreadRef
from chalicelib.ports.table import KeyRow


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """A one-time websocket ticket; `sha256` names it, the ticket itself is never stored."""

    sha256: str
    org: str
    key_sha256: str
    key_id: str
    level: str
    user: str | None
    expires_at: int


@dataclass(frozen=True, kw_only=True)
class Connection:
    """An open websocket and the credential behind it."""

    id: str
    org: str
    key_sha256: str
    opened_at: int


@dataclass(frozen=True, kw_only=True)
class Subscriber:
    """A connection's subscription to a thread. `cursor`: last event posted; `catching_until`: a replay is in the
    works.
    """

    connection: str
    token: str
    org: str
    cursor: int
    catching_until: int
    key_sha256: str
    logs: bool = False


class Directory(Protocol):
    """Who may come in and who listens: keys, tickets, connections, subscribers. The lookup rows without an org in the
    key.
    """

    def key(self, sha256: str) -> KeyRow | None:
        """The API key of that hash."""

    def put_key(self, row: KeyRow) -> None:
        """Store a key; a second put of the same hash changes nothing."""

    def put_ticket(self, ticket: Ticket) -> None:
        """Store a ticket."""

    def burn_ticket(self, sha256: str) -> Ticket | None:
        """Take a ticket out of the table: of two callers one gets it. The caller checks its expiry."""

    def connect(self, connection: Connection) -> None:
        """Remember a connection (rows expire by TTL a day later)."""

    def connection(self, connection_id: str) -> Connection | None:
        """An open connection."""

    def disconnect(self, connection_id: str) -> None:
        """Forget a connection and all its subscriptions; twice changes nothing."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Put a subscription in place of an earlier one of the same connection to the same thread."""

    def unsubscribe(self, ref: ThreadRef, connection_id: str) -> None:
        """Remove a subscription; twice changes nothing."""

    def subscribers(self, ref: ThreadRef) -> list[Subscriber]:
        """All subscriptions of a thread."""

    def move_cursor(self, subscriber: Subscriber, cursor: int, *, live: bool = False) -> bool:
        """Raise the cursor (it never falls) if the subscription still exists; `live` ends its catching up. False: it
        is gone.
        """


class SocketGone(Exception):
    """The connection no longer exists (410)."""


class Sockets(Protocol):
    """Push to websocket connections."""

    def post(self, connection: str, frame: bytes) -> None:
        """Send one frame. Raises SocketGone when the connection is gone, RetryLater on any other failure."""
