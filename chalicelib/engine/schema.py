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
from collections.abc import Callable, Hashable, Mapping
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

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


class Shape(NamedTuple):
    """The parameters of a function: their schema, and whether it takes the thread's state first."""

    schema: dict[str, Any]
    hints: Mapping[str, Any]
    takes_state: bool

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Checked JSON arguments as the function's own types."""
        return {name: _convert(self.hints[name], value) for name, value in arguments.items() if name in self.hints}


def parameters_of(function: Callable[..., Any]) -> Shape:
    """Schema of a function's parameters. Raises SchemaError with the parameter's name."""
    hints = _hints(function)
    parameters = list(inspect.signature(function).parameters.values())
    takes_state = bool(parameters) and hints.get(parameters[0].name) is ThreadState
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in parameters[1:] if takes_state else parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise SchemaError(f"parameter {parameter.name}: only named parameters can be told to a model")
        if parameter.name not in hints:
            raise SchemaError(f"parameter {parameter.name}: add a type hint")
        if hints[parameter.name] is ThreadState:
            raise SchemaError(f"parameter {parameter.name}: the thread's state must be the first parameter")
        properties[parameter.name] = _schema(hints[parameter.name], parameter.name)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return Shape(schema=schema, hints={name: hints[name] for name in properties}, takes_state=takes_state)


def _hints(owner: Any) -> dict[str, Any]:
    try:
        return get_type_hints(owner, include_extras=True)
    except NameError as error:
        raise SchemaError(f"the type hint {error.name} is not known where it is used") from None
    except TypeError as error:
        raise SchemaError(f"the type hints cannot be read: {error}") from None


def _bare(hint: Any) -> Any:
    """The type within what only annotates it."""
    while get_origin(hint) in (Annotated, Required, NotRequired):
        hint = get_args(hint)[0]
    return hint


def _schema(hint: Any, where: str, inside: tuple[Any, ...] = ()) -> dict[str, Any]:
    """`inside`: the classes whose fields are being told."""
    notes = [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, str)]
    if notes or hint is not _bare(hint):
        return {**_schema(_bare(hint), where, inside), **({"description": notes[0]} if notes else {})}
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal and all(isinstance(one, str | int | None) and not isinstance(one, enum.Enum) for one in args):
        return {"enum": list(args)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one, where, inside) for one in args]}
    if origin is list or (origin is tuple and args[1:] == (...,)):
        return {"type": "array", **({"items": _schema(args[0], where, inside)} if args else {})}
    if origin is dict and args[:1] in ((), (str,)):
        return {"type": "object", **({"additionalProperties": _schema(args[1], where, inside)} if args else {})}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if _has_fields(hint):
        if hint in inside:
            raise SchemaError(f"parameter {where}: {hint.__name__} contains itself")
        return _object(hint, where, (*inside, hint))
    if isinstance(hint, Hashable) and hint in _PLAIN:
        return dict(_PLAIN[hint])
    raise SchemaError(f"parameter {where}: the type {hint!r} cannot be told to a model")


def _object(hint: Any, where: str, inside: tuple[Any, ...]) -> dict[str, Any]:
    fields, required = _fields(hint)
    properties = {name: _schema(one, f"{where}.{name}", inside) for name, one in fields.items()}
    needed = [name for name in fields if name in required]
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def _has_fields(hint: Any) -> bool:
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or typing.is_typeddict(hint))


def _fields(hint: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """Types of the fields of a dataclass or TypedDict, and the names of those that must be given."""
    hints = _hints(hint)
    if typing.is_typeddict(hint):
        return hints, frozenset(hint.__required_keys__)
    given = [f for f in dataclasses.fields(hint) if f.init]
    missing = dataclasses.MISSING
    required = frozenset(f.name for f in given if f.default is missing and f.default_factory is missing)
    return {f.name: hints[f.name] for f in given}, required


def _convert(hint: Any, value: Any) -> Any:
    hint = _bare(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return next((_convert(one, value) for one in args if _fits(one, value)), value)
    if origin in (list, tuple) and args and isinstance(value, list):
        return origin(_convert(args[0], one) for one in value)
    if origin is dict and args and isinstance(value, dict):
        return {key: _convert(args[1], one) for key, one in value.items()}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    if hint is float and type(value) is int:
        return float(value)
    if _has_fields(hint) and isinstance(value, dict):
        fields, _ = _fields(hint)
        return hint(**{name: _convert(fields[name], one) for name, one in value.items() if name in fields})
    return value


def _fits(hint: Any, value: Any) -> bool:
    """True if a JSON value is one of this type: what a union is told apart by."""
    hint = _bare(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(type(one) is type(value) and one == value for one in args)
    if origin in (Union, types.UnionType):
        return any(_fits(one, value) for one in args)
    if origin in (list, tuple):
        return isinstance(value, list) and all(_fits(args[0], one) for one in value if args)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(args[1], one) for one in value.values() if args)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return value in [member.value for member in hint]
    if _has_fields(hint):
        return isinstance(value, dict) and _fits_fields(hint, value)
    if isinstance(value, bool) or hint is bool:
        return hint in (bool, Any, object) and isinstance(value, bool)
    return hint is Any or isinstance(value, (int, float) if hint is float else hint)


def _fits_fields(hint: Any, value: Mapping[str, Any]) -> bool:
    fields, required = _fields(hint)
    return required <= value.keys() <= fields.keys() and all(_fits(fields[name], one) for name, one in value.items())
