"""Whether arguments fit a JSON Schema, in words."""

from collections.abc import Mapping
from typing import Any

from chalicelib.domain import values


class BadSchema(ValueError):
    """What should be a JSON Schema is none."""


def fault_of(schema: Mapping[str, Any], value: Mapping[str, Any]) -> tuple[tuple[str, ...], str] | None:
    """Where a value does not fit a schema, and why; None if it fits. Raises BadSchema."""
    from jsonschema import Draft202012Validator, SchemaError  # heavy: loaded when something is first called

    try:
        faults = sorted(Draft202012Validator(schema).iter_errors(value), key=lambda e: list(map(str, e.path)))
    except SchemaError as error:
        raise BadSchema(error.message) from None
    if not faults:
        return None
    return tuple(str(part) for part in faults[0].absolute_path), faults[0].message


def misfit(parameters: Mapping[str, Any], arguments: Mapping[str, Any], whose: str = "tool") -> str | None:
    """Why arguments do not fit a schema, or None, in one sentence. A schema that is none refuses all arguments."""
    try:
        fault = fault_of(parameters, arguments)
    except BadSchema as error:
        return f"The {whose}'s schema is not valid: {error}"
    if fault is None:
        return None
    where = "/".join(fault[0]) or "arguments"
    return values.cut_text(f"The arguments do not fit the {whose}'s schema: {where}: {fault[1]}", 1000)
