"""Whether arguments fit a JSON Schema, in words; and whether a schema is one."""

from collections.abc import Iterable, Mapping
from typing import Any

from chalicelib.domain import values
from chalicelib.domain.errors import Fault

#: Faults of one request that are told.
FAULTS = 20
FAULT_CHARACTERS = 500


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


def faults_of_arguments(schemas: Iterable[Mapping[str, Any]], arguments: Mapping[str, Any]) -> tuple[Fault, ...]:
    """What of a thread's arguments does not fit what its agent requires, each with its path (`arguments.city`)."""
    from jsonschema import Draft202012Validator  # heavy: loaded for agents that require something

    found = [
        Fault(path=_path(error), message=values.cut_text(error.message, FAULT_CHARACTERS))
        for schema in schemas
        for error in Draft202012Validator(schema).iter_errors(arguments)
    ]
    return tuple(sorted(set(found), key=lambda fault: (fault.path, fault.message))[:FAULTS])


def fault_of_schema(schema: Mapping[str, Any]) -> str | None:
    """Why this is no JSON Schema, or None."""
    from jsonschema import Draft202012Validator, SchemaError  # heavy: loaded for definitions with a schema

    try:
        Draft202012Validator.check_schema(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    except SchemaError as error:
        return values.cut_text(error.message, FAULT_CHARACTERS)
    return None


def _path(error: Any) -> str:
    """Where an error is; of a property that is missing, where it should be."""
    place = ["arguments", *map(str, error.absolute_path)]
    if error.validator == "required":
        place += [name for name in error.validator_value if error.message.startswith(f"{name!r} is")]
    return ".".join(place)
