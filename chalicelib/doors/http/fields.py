"""A JSON object is read field by field: types, counts and sizes, every fault with its dotted path.

It must not know which fields a route has. It guarantees that all faults of a body are told in one answer: 400 if a
shape or a count is wrong, else 413 if bytes are above a limit; `Faults.check` raises, nothing else here does.
Values come from `doors.body`, so that text is text and numbers are finite.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from chalicelib.domain.errors import Fault, InvalidRequest, TooLarge
from chalicelib.doors.body import join_path, refuse

T = TypeVar("T")

KINDS: Mapping[type, str] = {
    str: "a string",
    dict: "an object",
    list: "a list",
    bool: "true or false",
    int: "a whole number",
}


class Faults:
    """What is wrong with a request so far: `wrong` becomes a 400, `large` a 413."""

    def __init__(self) -> None:
        self.wrong: list[Fault] = []
        self.large: list[Fault] = []

    def add(self, path: str, message: str) -> None:
        self.wrong.append(Fault(path=path, message=message))

    def add_large(self, path: str, size: int, limit: int) -> None:
        self.large.append(Fault(path=path, message=f"has {size} bytes, the limit is {limit}"))

    def check(self) -> None:
        """Raise the refusal that the faults call for, if any."""
        refuse(self.wrong)
        if self.large:
            first = self.large[0]
            raise TooLarge(f"{first.path}: {first.message}", faults=tuple(self.large))


class Form:
    """One JSON object while it is read. A field that was asked for is known; `close` refuses all others."""

    def __init__(self, value: Mapping[str, Any], path: str, faults: Faults) -> None:
        self._value = value
        self._known: set[str] = set()
        self.path = path
        self.faults = faults

    def at(self, name: str) -> str:
        """The dotted path of a field."""
        return join_path(self.path, name)

    def has(self, name: str) -> bool:
        self._known.add(name)
        return name in self._value

    def any(self, name: str, *, required: bool = False) -> Any:
        """The raw value of a field; None if it is absent (a fault if it is required)."""
        if self.has(name):
            return self._value[name]
        if required:
            self.faults.add(self.at(name), "is required")
        return None

    def typed(self, name: str, kind: type[T], *, required: bool = False) -> T | None:
        """A field of exactly this JSON type; null is no type of ours. None if absent or wrong."""
        value = self.any(name, required=required)
        if not self.has(name):
            return None
        if type(value) is not kind:
            self.faults.add(self.at(name), f"must be {KINDS[kind]}")
            return None
        return value

    def text(self, name: str, *, most: int, least: int = 1, required: bool = False) -> str | None:
        """A string of `least` to `most` characters."""
        value = self.typed(name, str, required=required)
        if value is not None and not least <= len(value) <= most:
            self.faults.add(self.at(name), f"must have {least} to {most} characters, it has {len(value)}")
        return value

    def mapping(self, name: str, *, most_bytes: int) -> dict[str, Any] | None:
        """An object of at most `most_bytes` as compact JSON in UTF-8."""
        value = self.typed(name, dict)
        if value is not None and (size := json_bytes(value)) > most_bytes:
            self.faults.add_large(self.at(name), size, most_bytes)
        return value

    def close(self) -> None:
        """Every field that nobody asked for is a fault."""
        for name in self._value:
            if name not in self._known:
                self.faults.add(self.at(name), "is not a field of this request")


def body_form(value: Any) -> Form:
    """The form over a whole body; 400 at once if it is no object."""
    if not isinstance(value, dict):
        raise InvalidRequest.at("", "the body must be a JSON object")
    return Form(value, "", Faults())


def open_form(value: Any, path: str, faults: Faults) -> Form:
    """A form over a value; anything but an object is a fault and reads as an empty form that hides its own faults."""
    if isinstance(value, dict):
        return Form(value, path, faults)
    faults.add(path, "must be an object")
    return Form({}, path, Faults())


def json_bytes(value: Any) -> int:
    """Bytes of a value as compact JSON in UTF-8: how metadata and arguments are measured."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
