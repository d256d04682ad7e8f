"""The one border where foreign values become safe (invariant I10): whatever a model, a tool or a provider hands over.

It knows Python values, JSON and UTF-8, and nothing of threads, stores or AWS. It guarantees that what passed it is JSON
with text keys, at most `JSON_DEPTH` containers deep, free of NaN, of lone surrogates and of NUL, and that passing never
raises: what has no JSON form becomes `{"unencodable": "<what it was>"}`. JSON values come out equal in value and type
(1, 1.0 and True stay apart, integers stay exact). A second pass changes nothing.
"""

import base64
import json
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from chalicelib.domain import limits

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
CUT_MARKER = "…[cut]"

#: What no stored text may hold: NUL, and halves of characters.
UNTEXTUAL = re.compile("[\ud800-\udfff\0]")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ENCODED_HALF = re.compile(rb"(\xed[\xa0-\xbf][\x80-\xbf])")  # a surrogate half as UTF-8 would write it (CESU-8)
_OPEN_TAIL = re.compile(rb"(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z")
_DESCRIPTION_BYTES = 200
_INTEGER_DIGITS = 3_900  # below the 4,300 that CPython converts to and from text (sys.int_info)
_INTEGER_BITS = 13_000  # holds every integer of that many digits and is below 4,300 digits itself
_WALK_BYTES = 32 * limits.KB * limits.KB  # what one value may weigh: shared parts written out could fill any memory
_VALUE_BYTES = 32  # what each value in it counts besides its text: about what Python needs for it


def dumps(value: Any) -> str:
    """Compact JSON text of a safe value, keys in their order. Raises ValueError for NaN and infinities."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def canonical(value: Any) -> str:
    """JSON text that is the same for equal values: like `dumps`, keys sorted."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


def size(value: Any) -> int:
    """Bytes of UTF-8 of the JSON text of a safe value."""
    return len(dumps(value).encode())


def loads(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError, also for the tokens NaN and Infinity, which are no JSON."""
    return json.loads(text, parse_constant=_refuse_constant)


def safe_text(text: str) -> str:
    """Text that always encodes as UTF-8: pairs of surrogate halves joined, a lone half or NUL becomes one U+FFFD."""
    if not UNTEXTUAL.search(text):
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\0", REPLACEMENT)


class TextJoin:
    """Joins pieces of a text that may be cut inside a character: str between surrogate halves, bytes anywhere.

    However the text was cut, the answers together are `safe_text` of the whole; of bytes, that of their UTF-8 reading
    with errors replaced, where surrogate halves written as UTF-8 count as halves.
    """

    def __init__(self) -> None:
        self._bytes = b""
        self._half = ""

    def feed(self, piece: str | bytes) -> str:
        """The safe text that is complete now; keeps back what the next piece may complete."""
        if isinstance(piece, bytes):
            return self._complete(self._decode(piece))
        return self._complete(self._broken() + piece)

    def end(self) -> str:
        """The rest: U+FFFD for what never became whole. Afterwards the joiner is as new."""
        rest = safe_text(self._half + self._broken())
        self._half = ""
        return rest

    def _decode(self, piece: bytes) -> str:
        data = self._bytes + piece
        tail = _OPEN_TAIL.search(data[-3:])
        cut = len(data) - len(tail.group()) if tail else len(data)
        self._bytes = data[cut:]
        return _decoded(data[:cut])

    def _broken(self) -> str:
        text = _decoded(self._bytes)
        self._bytes = b""
        return text

    def _complete(self, text: str) -> str:
        text = self._half + text
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return safe_text(text.removesuffix(self._half))


def cut_text(text: str, max_bytes: int, marker: str = CUT_MARKER) -> str:
    """Safe text of at most `max_bytes` of UTF-8, marker counted; cut between characters and never after a joiner."""
    text = safe_text(text)
    raw = text.encode()
    if len(raw) <= max_bytes:
        return text
    room = max_bytes - len(marker.encode())
    if room < 0:
        return raw[: max(max_bytes, 0)].decode("utf-8", "ignore")
    return raw[:room].decode("utf-8", "ignore").rstrip("\N{ZERO WIDTH JOINER}") + marker


def cut_value(value: Any, max_bytes: int) -> tuple[Any, bool]:
    """A safe value whose JSON is at most `max_bytes`, and whether it had to be cut to text (its JSON, or a str itself).

    The JSON of the cut text stays within `max_bytes` too, from 2 bytes on.
    """
    text = dumps(value)
    if len(text.encode()) <= max_bytes:
        return value, False
    text = (value if isinstance(value, str) else text)[: max_bytes + 1]
    fitting = bisect_right(range(max_bytes + 1), max_bytes, key=lambda room: size(cut_text(text, room)))
    return cut_text(text, max(fitting - 1, 0)), True


def parse_arguments(text: str) -> tuple[dict[str, Any] | None, str | None]:
    """Arguments of a model's call: (object, None), or (None, a sentence that names the fault). Never raises or guesses.

    No text at all is an empty object. Half characters are made safe; a number that Python cannot hold is a fault.
    """
    text = safe_text(text)
    if not text.strip():
        return {}, None
    fault = _bounds_fault(text)
    if fault:
        return None, fault
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole)
    except json.JSONDecodeError as error:
        return None, f"The arguments are not JSON: {error.msg} at character {error.pos} (line {error.lineno})."
    except ValueError as error:
        return None, f"The arguments are not usable JSON: {error}."
    if not isinstance(value, dict):
        return None, f"The arguments must be a JSON object, not {cut_text(dumps(value), 40)}."
    return safe(value), None


def safe(value: Any, *, max_depth: int = limits.JSON_DEPTH) -> Any:
    """The JSON value of any Python value; never raises and never consumes an iterator.

    NaN and infinities: null. Decimal: int or float when that says the same, else text. Tuples, sets, deques, views of
    a dict: list, sets in the order of their JSON. Bytes: `{"base64": ...}`. Dates, paths, UUIDs, spans of time: text.
    Enum: its value. Dataclasses and what has `model_dump`: object. Exceptions: "Type: text". Keys become text (what is
    no text by its JSON), a second key of the same text gets the suffix `#2`. Too deep, in itself, too large (32 MB) or
    without a JSON form: a marker object `{"unencodable": "..."}` in its place, which counts in the depth.
    """
    try:
        return _Walk(max_depth).value(value, 1)
    except _TooDeep:
        return _unencodable(f"nested deeper than {max_depth} levels")
    except _TooLarge:
        return _unencodable(f"larger than {_WALK_BYTES // limits.KB // limits.KB} MB in memory")


class _TooDeep(Exception):
    """A container below the deepest level that is allowed."""


class _TooLarge(Exception):
    """The walk has met more than a value may hold."""


class _Walk:
    """One pass over one foreign value. `level` is the depth that a container in this place has, from 1."""

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        self.left = _WALK_BYTES
        self.path: set[int] = set()

    def value(self, value: Any, level: int) -> Any:
        """The JSON value of anything. Foreign code runs in here (properties, iteration, text forms) and may raise."""
        self.spend(_VALUE_BYTES)
        try:
            return self.converted(value, level)
        except (_TooDeep, _TooLarge):
            raise
        except Exception as fault:  # noqa: BLE001 - foreign code raises what it likes; the marker tells what
            return self.marker(f"{_kind(value)}: reading it raised {_kind(fault)}", level)

    def converted(self, value: Any, level: int) -> Any:
        """The form of the first kind that fits."""
        if value is None or value is True or value is False:
            return value
        for kinds, form in _FORMS:
            if isinstance(value, kinds):
                return form(self, value, level)
        if is_dataclass(value) and not isinstance(value, type):
            return self.container(value, level, lambda: {f.name: getattr(value, f.name) for f in fields(value)})
        dump = getattr(type(value), "model_dump", None)
        if dump is not None:
            return self.container(value, level, lambda: dict(dump(value)))
        return self.marker(_described(value), level)

    def text(self, value: str, level: int) -> str:
        """Plain text, also of subclasses."""
        plain = str.__str__(value)
        self.spend(len(plain))
        return safe_text(plain)

    def integer(self, value: int, level: int) -> Any:
        """A plain int; one with more digits than a JSON reader takes becomes a marker."""
        plain = int.__add__(value, 0)
        if plain.bit_length() <= _INTEGER_BITS:
            return plain
        return self.marker(f"an integer of {plain.bit_length()} bits", level)

    def number(self, value: float, level: int) -> float | None:
        """A plain float, None for what JSON cannot write."""
        plain = float.__mul__(value, 1.0)
        return plain if abs(plain) < float("inf") else None

    def decimal(self, value: Decimal, level: int) -> Any:
        """An int or float when that says the same, else text."""
        if not value.is_finite():
            return None
        if value.is_zero() and value.is_signed():
            return -0.0
        _, digits, exponent = value.as_tuple()
        if isinstance(exponent, int) and 0 <= exponent and exponent + len(digits) <= _INTEGER_DIGITS:
            return self.integer(int(value), level)
        near = float(value)
        return near if abs(near) < float("inf") and Decimal(repr(near)) == value else str(value)

    def encoded(self, value: bytes | bytearray | memoryview, level: int) -> Any:
        """Bytes as an object with their base64."""
        raw = bytes(value)
        self.spend(len(raw))
        return self.object({"base64": base64.b64encode(raw).decode()}, level)

    def enum(self, value: Enum, level: int) -> Any:
        """The value behind an enum's member."""
        return self.value(value.value, level)

    def written(self, value: Any, level: int) -> str:
        """The text of a kind that has one: ISO 8601 for what has a place in time."""
        return safe_text(value.isoformat() if isinstance(value, (date, time)) else str(value))

    def fault(self, value: BaseException, level: int) -> str:
        """An exception as people read it."""
        text = self.text(_text_form(value), level)
        return f"{_kind(value)}: {text}" if text else _kind(value)

    def mapping(self, value: Mapping[Any, Any], level: int) -> Any:
        """An object with text keys."""
        return self.container(value, level, lambda: value)

    def sequence(self, value: Iterable[Any], level: int) -> Any:
        """A list in the order of the value."""
        return self.container(value, level, lambda: list(value))

    def set(self, value: Iterable[Any], level: int) -> Any:
        """A list in the order of its members' JSON: the same for equal sets in every process."""
        made = self.container(value, level, lambda: list(value))
        return sorted(made, key=canonical) if isinstance(made, list) else made

    def container(self, value: Any, level: int, inside: Callable[[], Any]) -> Any:
        """The list or object of what is inside, watching depth and self references."""
        if level > self.max_depth:
            raise _TooDeep
        if id(value) in self.path:
            return _unencodable("a reference to itself")
        self.path.add(id(value))
        try:
            made = inside()
            if isinstance(made, Mapping):
                return self.members(made, level + 1)
            return [self.value(one, level + 1) for one in made]
        except _TooDeep:
            # Caught where the deepest allowed container stands: the marker takes its place, so that the bound holds.
            return _unencodable(f"nested deeper than {self.max_depth} levels")
        finally:
            self.path.discard(id(value))

    def members(self, value: Mapping[Any, Any], level: int) -> dict[str, Any]:
        """The pairs of an object; no pair is lost to another with the same text."""
        found: dict[str, Any] = {}
        again: dict[str, int] = {}
        for key, inside in list(value.items()):
            name = base_name = self.key(key)
            while name in found:
                again[base_name] = again.get(base_name, 1) + 1
                name = f"{base_name}#{again[base_name]}"
            found[name] = self.value(inside, level)
        return found

    def key(self, key: Any) -> str:
        """The text of a key: itself, or the JSON of what is no text."""
        made = self.value(key, 1)
        return made if isinstance(made, str) else dumps(made)

    def marker(self, text: str, level: int) -> Any:
        """What stands for a value without a JSON form."""
        return self.object(_unencodable(text), level)

    def object(self, made: dict[str, str], level: int) -> dict[str, str]:
        """An object of our own, which counts in the depth like any other."""
        if level > self.max_depth:
            raise _TooDeep
        return made

    def spend(self, weight: int) -> None:
        """Count what was met: shared parts count each time, as they are written each time."""
        self.left -= weight
        if self.left < 0:
            raise _TooLarge


#: Kinds in the order in which they are tried: an enum may be a str. A bool is never asked.
_FORMS: tuple[tuple[Any, Callable[[_Walk, Any, int], Any]], ...] = (
    (Enum, _Walk.enum),
    (str, _Walk.text),
    (int, _Walk.integer),
    (float, _Walk.number),
    (Mapping, _Walk.mapping),
    ((list, tuple, deque, KeysView, ValuesView, ItemsView), _Walk.sequence),
    ((set, frozenset), _Walk.set),
    (Decimal, _Walk.decimal),
    ((bytes, bytearray, memoryview), _Walk.encoded),
    ((date, time, timedelta, UUID, PurePath), _Walk.written),
    (BaseException, _Walk.fault),
)


def _unencodable(text: str) -> dict[str, str]:
    return {"unencodable": cut_text(text, _DESCRIPTION_BYTES)}


def _kind(value: object) -> str:
    # Past the metaclass, which may be foreign too.
    return safe_text(str(type.__dict__["__name__"].__get__(type(value))))


def _text_form(value: object) -> str:
    try:
        return str.__str__(str(value))
    except Exception:  # noqa: BLE001 - foreign code
        return "its text form raises"


def _described(value: object) -> str:
    """Kind and text of a value, without its address in memory: the same value reads the same after a retry."""
    return f"{_kind(value)}: {_ADDRESS.sub('', _text_form(value))}"


def _decoded(data: bytes) -> str:
    """UTF-8 with errors replaced, except that encoded surrogate halves stay halves (for `safe_text` to join)."""
    parts = _ENCODED_HALF.split(data)
    return "".join(p.decode("utf-8", "surrogatepass" if n % 2 else "replace") for n, p in enumerate(parts))


_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{\]}]|NaN|-?Infinity', re.DOTALL)


def _bounds_fault(text: str) -> str | None:
    """Size, depth and what only looks like a number, found by one scan before any parser recurses."""
    if len(text.encode()) > limits.CONTENT_BYTES:
        return f"The arguments are larger than {limits.CONTENT_BYTES // limits.KB} KB."
    depth = 0
    for token in _TOKENS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token.group(), 0)
        if depth > limits.JSON_DEPTH:
            return f"The arguments are nested deeper than {limits.JSON_DEPTH} levels at character {token.start()}."
        if token.group() in ("NaN", "Infinity", "-Infinity"):
            return f"The arguments are not JSON: {token.group()} is no JSON number at character {token.start()}."
    return None


def _refuse_constant(token: str) -> Any:
    raise ValueError(f"{token} is no JSON number")


def _finite(token: str) -> float:
    number = float(token)
    if abs(number) == float("inf"):
        raise ValueError(f"{cut_text(token, 40)} is larger than any JSON number here")
    return number


def _whole(token: str) -> int:
    if len(token) > _INTEGER_DIGITS:
        raise ValueError(f"an integer has more than {_INTEGER_DIGITS} digits")
    return int(token)
