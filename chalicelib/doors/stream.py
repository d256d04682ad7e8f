"""The table's stream, as Lambda hands it over: a batch of changes becomes the keys of the rows that were written.

It must not look into rows, but for whether a head is a tombstone: what subscribers get is read from the table. It
guarantees that removals (a purge, TTL) and the changes of living heads start nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from chalicelib import bootstrap

_HEAD, _DELETED = "head", "de"  # as `adapters.keys` and `adapters.rows` name them; infra/resources.json filters alike


class FanOut(Protocol):
    """Pushes what the rows of some keys (pk, sk) announce."""

    def run(self, keys: Iterable[tuple[str, str]], /) -> None: ...


class House(Protocol):
    """What this door needs from the house."""

    @property
    def fan_out(self) -> FanOut: ...


def run(event: Mapping[str, Any], context: Any, *, house: Callable[[], House] = bootstrap.house) -> None:
    """Serve a batch. It fails, and Lambda sends it again, only if the table could not be read or written."""
    house().fan_out.run(_written(event))


def _written(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for record in event.get("Records", ()):
        if record.get("eventName") != "REMOVE":
            keys = record["dynamodb"]["Keys"]
            if keys["sk"]["S"] != _HEAD or _DELETED in record["dynamodb"].get("NewImage", {}):
                yield keys["pk"]["S"], keys["sk"]["S"]
