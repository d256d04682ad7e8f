"""How a wrong definition is told: the file and line that wrote it, the field, and how to mend it."""

import inspect
import sys
from pathlib import Path
from typing import Any

_HOUSE = Path(__file__).parent


class DefinitionError(Exception):
    """An agent, a prompt, a side or a tool is defined wrongly; the text says where and how to mend it.

    `fault` is the text without the file and the line.
    """

    def __init__(self, fault: str, place: str = "") -> None:
        super().__init__(place + fault)
        self.fault = fault


def named(function: Any) -> str:
    """How an error names a function: with its file, where it has one."""
    name = getattr(function, "__name__", repr(function))
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return f"{name} in {code.co_filename}" if code else name


def wrong(what: str, fault: str) -> DefinitionError:
    """The error for a fault of something, with the file and line of its definition."""
    return DefinitionError(f"{what}: {fault}", _place())


def check_type(what: str, field: str, value: object, kinds: type | tuple[type, ...], wanted: str) -> None:
    """Raise DefinitionError unless the value is of these kinds. A bool is no number."""
    number = kinds in (int, (int, float))
    if not isinstance(value, kinds) or (number and isinstance(value, bool)):
        raise wrong(what, f"{field} must be {wanted}, not {value!r}")


def _place() -> str:
    """`file:line: ` of the nearest frame outside this room; generated constructors have no file."""
    frame = sys._getframe(2)
    while frame:
        file = frame.f_code.co_filename
        if not file.startswith("<") and Path(file).parent != _HOUSE and Path(file).name != "dataclasses.py":
            return f"{file}:{frame.f_lineno}: "
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return ""
