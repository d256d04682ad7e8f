"""Tickets: a browser cannot send a header when it opens a websocket, so it brings a one-time secret in the address.

It must not know Lambda events. It guarantees that a ticket opens one connection, within `TICKET_SECONDS`, only while
the key that asked for it is valid and only from an origin that is allowed; only its hash is stored.
"""

import ipaddress
from typing import Any
from urllib.parse import urlsplit

from chalicelib.domain.commands import Principal
from chalicelib.domain.errors import Forbidden, Unauthorized
from chalicelib.ports import Clock, Connection, Directory, Ids, Ticket
from chalicelib.services.credentials import Credentials, hashed

TICKET_SECONDS = 60  # spec section 3
_TICKET_TOKENS = 2  # of 100 random bits each
_TICKET_CHARACTERS = 128  # what is longer is none of ours and is not worth a hash
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class Tickets:
    """`allowed_origins`: whole origins (`https://app.example`). None: the called host, on loopback any port."""

    def __init__(
        self,
        *,
        directory: Directory,
        clock: Clock,
        ids: Ids,
        credentials: Credentials,
        socket_url: str,
        allowed_origins: tuple[str, ...] = (),
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._ids = ids
        self._credentials = credentials
        self._socket_url = socket_url
        self._allowed_origins = frozenset(origin.rstrip("/").lower() for origin in allowed_origins)

    def issue(self, p: Principal) -> dict[str, Any]:
        """{ticket, url, expires_at}: a new ticket for the asker's own org and key; each call makes another."""
        ticket = "".join(self._ids.token() for _ in range(_TICKET_TOKENS))
        expires_at = self._clock.now() + TICKET_SECONDS * 1_000_000
        self._directory.put_ticket(
            Ticket(
                sha256=hashed(ticket),
                org=p.org,
                key_sha256=p.key_sha256,
                key_id=p.key_id,
                level=p.level.value,
                user=p.user,
                expires_at=expires_at,
            )
        )
        return {"ticket": ticket, "url": f"{self._socket_url}?ticket={ticket}", "expires_at": expires_at}

    def redeem(self, ticket: str, connection_id: str, *, origins: tuple[str, ...], host: str) -> None:
        """Open a connection with a ticket. Forbidden for an origin, Unauthorized for all that is wrong with the ticket.

        `origins`: the Origin headers of the request, none from what is no browser. A refused one burns nothing.
        """
        if not all(self._is_allowed(origin, host) for origin in origins):
            raise Forbidden("A page of this origin may not connect.")
        burned = self._directory.burn_ticket(hashed(ticket)) if 0 < len(ticket) <= _TICKET_CHARACTERS else None
        now = self._clock.now()
        if burned is None or burned.expires_at <= now or not self._credentials.still_valid(burned.key_sha256):
            raise Unauthorized("The ticket is unknown, used or expired.")
        self._directory.connect(
            Connection(id=connection_id, org=burned.org, key_sha256=burned.key_sha256, opened_at=now)
        )

    def _is_allowed(self, origin: str, host: str) -> bool:
        if self._allowed_origins:
            return origin.rstrip("/").lower() in self._allowed_origins
        return is_same_host(origin, host) or (_is_loopback(origin) and _is_loopback(f"//{host}"))


def is_same_host(origin: str, host: str) -> bool:
    """Whether an origin is the host and port that the request went to; `null` is nobody's."""
    try:
        page = urlsplit(origin)
        there = urlsplit(f"//{host}")
        usual = _PORTS.get(page.scheme)  # of a port that is not written out
        same_port = (page.port or usual) == (there.port or usual)
        return bool(page.hostname) and page.hostname == there.hostname and same_port
    except ValueError:
        return False


def _is_loopback(address: str) -> bool:
    try:
        name = urlsplit(address).hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
