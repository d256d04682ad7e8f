"""Query fields of a request, read by name: an unknown one is ignored, a known one that is wrong or repeated is a 400.

It must not know routes. Values come percent-decoded, once, from the gateway.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from chalicelib.domain.errors import InvalidRequest
from chalicelib.domain.limits import LIST_DEFAULT, LIST_LIMIT, TITLE_CHARACTERS, WAIT_SECONDS
from chalicelib.doors.body import untextual

# 18 digits: more than any delivery_seq, less than an int of any store.
_WHOLE = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")


class Query:
    """The query of one request."""

    def __init__(self, values: Mapping[str, Sequence[str]] | None) -> None:
        self._values = values or {}

    def text(self, name: str, *, most: int = TITLE_CHARACTERS, least: int = 1) -> str | None:
        """A text of `least` to `most` characters, None if it is absent."""
        given = self._values.get(name)
        if not given:
            return None
        if len(given) > 1:
            raise InvalidRequest.at(name, "is there more than once")
        value = given[0]
        if wrong := untextual(value):
            raise InvalidRequest.at(name, wrong)
        if not least <= len(value) <= most:
            raise InvalidRequest.at(name, f"must have {least} to {most} characters")
        return value

    def choice(self, name: str, options: Iterable[str]) -> str | None:
        """One of some words."""
        value = self.text(name)
        words = tuple(options)
        if value is not None and value not in words:
            raise InvalidRequest.at(name, f"must be {' or '.join(words)}")
        return value

    def choices(self, name: str, options: Iterable[str]) -> frozenset[str]:
        """Some of some words, comma-separated; empty if it is absent."""
        value = self.text(name)
        words = tuple(options)
        chosen = frozenset(value.split(",")) if value is not None else frozenset()
        if not chosen <= set(words):
            raise InvalidRequest.at(name, f"may name {', '.join(words)}")
        return chosen

    def flag(self, name: str) -> bool:
        """`true` or `false`; False if it is absent."""
        return self.choice(name, ("true", "false")) == "true"

    def whole(self, name: str, *, default: int, least: int, most: int | None = None) -> int:
        """A whole number between bounds."""
        value = self.text(name)
        if value is None:
            return default
        number = int(value) if _WHOLE.fullmatch(value) else -1
        if number < least or (most is not None and number > most):
            bound = f"from {least} to {most}" if most is not None else f"of at least {least}"
            raise InvalidRequest.at(name, f"must be a whole number {bound}")
        return number

    def limit(self) -> int:
        """Items of a page (spec section 3, lists)."""
        return self.whole("limit", default=LIST_DEFAULT, least=1, most=LIST_LIMIT)

    def wait(self) -> float:
        """Seconds that a long poll may take; 0 if it is absent."""
        value = self.text("wait")
        if value is None:
            return 0.0
        if not _NUMBER.fullmatch(value) or float(value) > WAIT_SECONDS:
            raise InvalidRequest.at("wait", f"must be a number of seconds from 0 to {WAIT_SECONDS}")
        return float(value)
