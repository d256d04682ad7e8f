"""`Idempotency-Key` and the fingerprint of what was asked (spec section 3, "Idempotency").

It must not know where keys are kept. The fingerprint is SHA-256 over the route, the ids in its path and the ask after
defaults: the order of keys, white space and explicit defaults change nothing, 1 and 1.0 are different. What an ask
leaves empty is left out, so that a field that is added to the records later does not change old fingerprints.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from chalicelib.domain.commands import Idempotency
from chalicelib.domain.errors import InvalidRequest
from chalicelib.domain.limits import KEY_CHARACTERS

HEADER = "Idempotency-Key"
_KEY = re.compile(f"[!-~]{{1,{KEY_CHARACTERS}}}")  # visible ASCII


def is_key(text: str) -> bool:
    """Whether a text can be an idempotency key."""
    return _KEY.fullmatch(text) is not None


def read(header: str | None, method: str, route: str, ids: Mapping[str, str], ask: Any) -> Idempotency | None:
    """The key and fingerprint of a request, None without the header; 400 for a key out of bounds."""
    if header is None:
        return None
    if not is_key(header):
        raise InvalidRequest.at(HEADER, f"must be 1 to {KEY_CHARACTERS} visible ASCII characters")
    return Idempotency(key=header, fingerprint=fingerprint(f"{method} {route}", ids, ask))


def fingerprint(route: str, ids: Mapping[str, str], ask: Any) -> str:
    """64 hex digits, the same for the same ask on the same route and path."""
    whole = json.dumps([route, ids, _plain(ask)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(whole.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Records as objects without their empty fields; what the caller gave inside them stays as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        named = ((each.name, getattr(value, each.name)) for each in fields(value))
        return {name: _plain(inner) for name, inner in named if not _is_empty(inner)}
    return value


def _is_empty(value: Any) -> bool:
    """What a field that nobody filled in holds; a field that is new has it in every ask of before."""
    return value is None or value is False or value == () or value == {}
