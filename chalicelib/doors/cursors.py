"""Opaque cursors of lists: a position, signed for one org, one list, one thread and its filters.

It must not know what a position means. It guarantees that a token opens only for the scope it was made for, and that
no other text opens: the signature covers scope and position, and a position has exactly one spelling.
"""

import base64
import binascii
import hashlib
import hmac
import json
from typing import Any, NamedTuple

from chalicelib.domain.errors import InvalidRequest

_MAC_BYTES = 32  # SHA-256
# Ours: a position is a key or a number; the longest key of the table (DynamoDB: 1 KB sort key) fits twice.
CHARACTERS = 4_096


class Scope(NamedTuple):
    """What a cursor belongs to. `inside` is the thread or run of the list, "" for lists of the org."""

    org: str
    list: str
    inside: str = ""
    filters: tuple[tuple[str, str], ...] = ()


def sign(secret: bytes, scope: Scope, position: Any) -> str:
    """The token of a position (any JSON value). The same arguments give the same token."""
    payload = _json(position)
    return _spell(_mac(secret, scope, payload) + payload)


def open_cursor(secret: bytes, scope: Scope, token: str) -> Any:
    """The position in a token; 400 with the path `cursor` unless `sign` made it for this very scope."""
    raw = _read(token)
    mac, payload = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
    if not hmac.compare_digest(mac, _mac(secret, scope, payload)):
        raise _refusal()
    return json.loads(payload)


def _mac(secret: bytes, scope: Scope, payload: bytes) -> bytes:
    bound = _json(["cursor", 1, scope.org, scope.list, scope.inside, scope.filters])
    return hmac.new(secret, bound + b"\n" + payload, hashlib.sha256).digest()


def _json(value: Any) -> bytes:
    # ASCII only: what came from a path or a filter may hold half characters, and no newline gets in.
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _spell(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _read(token: str) -> bytes:
    if len(token) > CHARACTERS:
        raise _refusal()
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _refusal() from None
    # The last character of base64 has bits that decode to nothing: only one spelling of them is ours.
    if _spell(raw) != token:
        raise _refusal()
    return raw


def _refusal() -> InvalidRequest:
    return InvalidRequest.at("cursor", "is not a cursor of this list")
