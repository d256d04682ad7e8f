"""JSON Schema of a function from its type hints, and the way back from JSON to what the function wants.

Known: str, int, float, bool, None, Any, list, dict, tuple of one kind, Literal, Enum, unions, dataclasses and
TypedDicts.
Everything else is refused when the tool is defined, not when a model first calls it.
"""

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from chalicelib.engine.state import ThreadState

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
    list: {"type": "array"},
    dict: {"type": "object"},
}


class SchemaError(Exception):
    """A parameter's type cannot be told to a model."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The parameters of a function: their schema, and whether it takes the thread's state first."""

    schema: dict[str, Any]
    hints: Mapping[str, Any]
    takes_state: bool

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Checked JSON arguments as the function's own types."""
        return {name: _convert(self.hints[name], value) for name, value in arguments.items() if name in self.hints}


def parameters_of(function: Callable[..., Any]) -> Shape:
    """Schema of a function's parameters. Raises SchemaError with the parameter's name."""
    hints = get_type_hints(function, include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())
    takes_state = bool(parameters) and hints.get(parameters[0].name) is ThreadState
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in parameters[1:] if takes_state else parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise SchemaError(f"parameter {parameter.name}: only named parameters can be told to a model")
        if parameter.name not in hints:
            raise SchemaError(f"parameter {parameter.name}: add a type hint")
        properties[parameter.name] = _schema(hints[parameter.name], parameter.name)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return Shape(schema=schema, hints={name: hints[name] for name in properties}, takes_state=takes_state)


def _schema(hint: Any, where: str) -> dict[str, Any]:
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    origin, args = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        notes = [note for note in args[1:] if isinstance(note, str)]
        return {**_schema(args[0], where), **({"description": notes[0]} if notes else {})}
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one, where) for one in args]}
    if origin in (list, tuple):
        return {"type": "array", "items": _schema(args[0], where)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(args[1], where)}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if dataclasses.is_dataclass(hint):
        fields = dataclasses.fields(hint)
        optional = {
            f.name
            for f in fields
            if f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
        }
        return _object(get_type_hints(hint, include_extras=True), optional, where)
    if typing.is_typeddict(hint):
        return _object(get_type_hints(hint, include_extras=True), set(hint.__optional_keys__), where)
    raise SchemaError(f"parameter {where}: the type {hint!r} cannot be told to a model")


def _object(hints: Mapping[str, Any], optional: set[str], where: str) -> dict[str, Any]:
    properties = {name: _schema(hint, f"{where}.{name}") for name, hint in hints.items()}
    required = [name for name in hints if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _convert(hint: Any, value: Any) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return _convert(args[0], value)
    if origin in (Union, types.UnionType):
        return next((_convert(one, value) for one in args if _fits(one, value)), value)
    if origin in (list, tuple) and isinstance(value, list):
        return origin(_convert(args[0], one) for one in value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    if hint is float and type(value) is int:
        return float(value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        hints = get_type_hints(hint, include_extras=True)
        return hint(**{name: _convert(hints[name], one) for name, one in value.items()})
    return value


def _fits(hint: Any, value: Any) -> bool:
    if dataclasses.is_dataclass(hint):
        return isinstance(value, dict)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return value in [member.value for member in hint]
    return isinstance(hint, type) and isinstance(value, hint)
