"""Values as DynamoDB attributes and back: numbers, text, flags, and JSON as one text that may be deflated.

JSON never becomes DynamoDB's own maps, lists and numbers: those lose the difference between 1, 1.0 and true, the sign
of -0.0, and integers above 38 digits. What is read equals what was written in value and in type. Rows are described
by columns; a column that has its default is not written, and an attribute that no column knows (written by a newer
release) is not touched by a change.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

# An attribute value as the SDK takes and gives it: {"S": "text"}, {"N": "1"}, {"B": b"..."}, {"BOOL": True}.
Value = Mapping[str, Any]
Item = Mapping[str, Value]

SCHEMA_VERSION = 1  # of rows; written to each as `v`
DEFLATED = 1  # first byte of a deflated text: version 1 is raw deflate without a dictionary
WORTH = 64  # bytes; below that deflate never wins enough
DEFLATE_LEVEL = 6
RAW_WINDOW = -15  # zlib: raw deflate with a window of 32 KB, no header, no checksum


def to_json(value: Any) -> str:
    """Compact JSON text. Raises ValueError for what is not JSON (it never passed the border of values)."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def pack(value: Any) -> Value:
    """JSON as text, or deflated behind a version byte when that is smaller."""
    text = to_json(value)
    if len(text) < WORTH:
        return {"S": text}
    raw = text.encode()
    small = bytes([DEFLATED]) + zlib.compress(raw, DEFLATE_LEVEL, RAW_WINDOW)
    return {"B": small} if len(small) < len(raw) else {"S": text}


def unpack(value: Value) -> Any:
    """What `pack` was given. Raises ValueError for a version of a newer release."""
    if "S" in value:
        return json.loads(value["S"])
    data: bytes = value["B"]
    if data[0] != DEFLATED:
        raise ValueError(f"unknown version {data[0]} of a packed value")
    return json.loads(zlib.decompress(data[1:], RAW_WINDOW))


class Column(NamedTuple):
    """How a field of a record is kept in an attribute."""

    field: str
    name: str
    write: Callable[[Any], Value]
    read: Callable[[Value], Any]
    default: Any = ...
    """What an absent attribute means; `...`: the attribute is always there."""


def number(field: str, name: str, default: Any = 0) -> Column:
    """An integer."""
    return Column(field, name, lambda value: {"N": str(int(value))}, lambda value: int(value["N"]), default)


def text(field: str, name: str, default: Any = ...) -> Column:
    """A string."""
    return Column(field, name, lambda value: {"S": str(value)}, lambda value: value["S"], default)


def choice(field: str, name: str, kind: Callable[[str], Any], default: Any = ...) -> Column:
    """A member of a StrEnum."""
    return Column(field, name, lambda value: {"S": str(value)}, lambda value: kind(value["S"]), default)


def flag(field: str, name: str) -> Column:
    """True, or absent."""
    return Column(field, name, lambda value: {"BOOL": bool(value)}, lambda value: value["BOOL"], False)


def binary(field: str, name: str) -> Column:
    """Bytes, or absent."""
    return Column(field, name, lambda value: {"B": value}, lambda value: bytes(value["B"]), b"")


def packed(
    field: str,
    name: str,
    default: Any = ...,
    shape: Callable[[Any], Any] = lambda value: value,
    plain: Callable[[Any], Any] = lambda value: value,
) -> Column:
    """JSON. `plain` turns the field into JSON, `shape` turns it back."""
    return Column(field, name, lambda value: pack(plain(value)), lambda value: shape(unpack(value)), default)


def encode(columns: Iterable[Column], record: Any) -> dict[str, Value]:
    """The attributes of a record; columns with their default are left out."""
    fields = ((column, getattr(record, column.field)) for column in columns)
    return {column.name: column.write(value) for column, value in fields if value != column.default}


def decode(columns: Iterable[Column], item: Item) -> dict[str, Any]:
    """Fields of a record. Unknown attributes are ignored. Raises KeyError when one that is always there is not."""
    return {column.field: _field(column, item) for column in columns}


def _field(column: Column, item: Item) -> Any:
    if column.name not in item and column.default is not ...:
        return column.default
    return column.read(item[column.name])


def size(item: Item) -> int:
    """Bytes that DynamoDB counts: names and values (developer guide, "Item sizes and formats"), rounded up."""
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(value: Value) -> int:
    ((kind, content),) = value.items()
    if kind == "S":
        return len(content.encode())
    if kind == "N":
        return len(content) // 2 + 2
    return len(content) if kind == "B" else 1
