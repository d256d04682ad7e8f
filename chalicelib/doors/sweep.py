"""The schedule's door: each tick looks at what is due."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from chalicelib import bootstrap


class Sweep(Protocol):
    """Looks at due threads."""

    def run(self) -> int: ...


class House(Protocol):
    """What this door needs from the house."""

    @property
    def sweep(self) -> Sweep: ...


def run(event: Mapping[str, Any], context: Any, *, house: Callable[[], House] = bootstrap.house) -> dict[str, int]:
    """Look once; answers how many threads were due."""
    return {"due": house().sweep.run()}
