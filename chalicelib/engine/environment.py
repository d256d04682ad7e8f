"""Settings for agents' code, and the border that keeps the secret ones of them inside it.

Texts and secrets come from outside as they are. What code hands over (results, entries, events, answers) passes `hide`,
so that a secret is never stored, shown or sent to a model: in its place stands a marker with its name. It must not know
where values come from. It guarantees that hiding never raises, and that what it has hidden stays as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from chalicelib.domain import values


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Texts and secrets by their names; of one name the secret wins."""

    texts: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def values(self) -> Mapping[str, str]:
        """All of them, read-only."""
        return MappingProxyType({**self.texts, **self.secrets})

    def safe(self, value: Any) -> Any:
        """Any Python value as a safe JSON value without secrets."""
        return self.hide(values.safe(value))

    def hide(self, value: Any) -> Any:
        """A safe JSON value with markers in place of secrets, in texts and in keys."""
        if not self.secrets:
            return value
        if isinstance(value, str):
            return self.hide_text(value)
        if isinstance(value, list):
            return [self.hide(one) for one in value]
        if isinstance(value, dict):
            return {self.hide_text(name): self.hide(one) for name, one in value.items()}
        return value

    def hide_text(self, text: str) -> str:
        """A text with markers in place of secrets, the longest first, since one may hold another."""
        for name, secret in self._longest_first:
            text = text.replace(secret, f"[secret {name}]")
        return text

    @cached_property
    def _longest_first(self) -> list[tuple[str, str]]:
        return sorted(((n, s) for n, s in self.secrets.items() if s), key=lambda pair: -len(pair[1]))
