"""Whether arguments fit a JSON Schema, in words."""

from collections.abc import Mapping
from typing import Any

from chalicelib.domain import values


def misfit(parameters: Mapping[str, Any], arguments: Mapping[str, Any], whose: str = "tool") -> str | None:
    """Why arguments do not fit a schema, or None. A schema that is none refuses all arguments."""
    from jsonschema import Draft202012Validator, SchemaError  # heavy: loaded when something is first called

    try:
        faults = sorted(Draft202012Validator(parameters).iter_errors(arguments), key=lambda e: list(map(str, e.path)))
    except SchemaError as error:
        return f"The {whose}'s schema is not valid: {error.message}"
    if not faults:
        return None
    where = "/".join(str(p) for p in faults[0].absolute_path) or "arguments"
    return values.cut_text(f"The arguments do not fit the {whose}'s schema: {where}: {faults[0].message}", 1000)
