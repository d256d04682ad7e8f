"""The operator's function: {"org": name, "key_name"?, "key"?} -> {"org_id", "key_id", "key"}.

No route leads here: who may invoke the function, may use it. It guarantees that a wrong event raises `InvalidRequest`,
which Lambda reports to the operator, before anything is stored.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from chalicelib import bootstrap
from chalicelib.domain.errors import InvalidRequest
from chalicelib.services.provision import KEY_NAME

_NAME_CHARACTERS = 200  # like a title (spec section 13)


class Provision(Protocol):
    """Makes orgs and their first keys."""

    def run(self, *, key_name: str, key: str | None) -> dict[str, Any]: ...


class House(Protocol):
    """What this door needs from the house."""

    @property
    def provision(self) -> Provision: ...


def run(event: Mapping[str, Any], context: Any, *, house: Callable[[], House] = bootstrap.house) -> dict[str, Any]:
    """Make an org and an admin key, or install exactly the given key. `org` is its name, which nothing keeps yet."""
    _name(event, "org", None)
    key = event.get("key")
    if key is not None and not isinstance(key, str):
        raise InvalidRequest.at("key", "is text")
    return house().provision.run(key_name=_name(event, "key_name", KEY_NAME), key=key)


def _name(event: Mapping[str, Any], field: str, default: str | None) -> str:
    value = event.get(field, default)
    if not isinstance(value, str) or not 0 < len(value.strip()) <= _NAME_CHARACTERS:
        raise InvalidRequest.at(field, f"is a text of 1 to {_NAME_CHARACTERS} characters")
    return value
