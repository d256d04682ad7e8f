"""What every definition of an author is checked with: one error, whose text names the place and the fix."""

import inspect
from typing import Any


class DefinitionError(Exception):
    """An agent, or something of it, is defined wrongly; the text says where and how to mend it."""


def named(function: Any) -> str:
    """How an error names a function: with its file, where it has one."""
    name = getattr(function, "__name__", repr(function))
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return f"{name} in {code.co_filename}" if code else name
