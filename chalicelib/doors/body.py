"""Raw bytes of a request become a JSON value, or a `Refusal` and nothing else; bounds come before anything is built.

It must not know routes or fields. It guarantees about what it returns: UTF-8 text without NUL and without half
characters (values and keys), no NaN, no number beyond a double, no key twice, at most 32 levels; ints stay ints and
floats stay floats. Time and memory are linear in the bytes, whatever they hold; nothing here recurses.
"""

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from chalicelib.domain.errors import Fault, InvalidRequest, TooLarge
from chalicelib.domain.limits import BODY_BYTES, JSON_DEPTH
from chalicelib.domain.values import UNTEXTUAL

# A string (closed or not) is one token, so that brackets inside it do not count. The possessive quantifiers keep an
# unclosed string linear: without them each quote in it would be tried as a start again.
_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
# The largest double is 1.8e308: an integer with more digits is beyond it, and int() of 4,301 digits raises.
_INT_CHARACTERS = 310
# Faults that one answer names; a body of a million bad strings gets these and no more.
FAULTS = 20
_KEY_CHARACTERS = 64  # of a key inside a path that goes back to the caller


class _Wrong(NamedTuple):
    """Stands in the parsed value where the text held something that JSON values may not hold."""

    message: str
    key: str | None = None


def raw_bytes(event: Mapping[str, Any]) -> bytes:
    """The body of a proxy event as it was sent; b"" if there is none. 400 if it claims base64 and is not."""
    body = event.get("body") or ""
    if not event.get("isBase64Encoded"):
        return str(body).encode("utf-8", "surrogatepass")  # what is no text then fails to decode: a 400
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest.at("", "the body is not valid base64") from None


def parse(raw: bytes, *, most_bytes: int = BODY_BYTES) -> Any:
    """The JSON value of a body. 413 above `most_bytes`; 400 with the paths of the faults for everything else."""
    if len(raw) > most_bytes:
        message = f"the body has {len(raw)} bytes, the limit is {most_bytes}"
        raise TooLarge(message, faults=(Fault(path="", message=message),))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest.at("", f"the body is not UTF-8 (byte {error.start})") from None
    _check_depth(text)
    value = _decode(text)
    refuse(_faults(value))
    return value


def refuse(faults: Iterable[Fault]) -> None:
    """Raise `InvalidRequest` with the first faults, if there are any."""
    found = tuple(islice(faults, FAULTS))
    if found:
        first = found[0]
        raise InvalidRequest(f"{first.path}: {first.message}" if first.path else first.message, faults=found)


def join_path(path: str, name: str | int) -> str:
    """A dotted path one step deeper. A key of the caller is cut, and what is no text in it is replaced."""
    step = str(name)[:_KEY_CHARACTERS]
    step = UNTEXTUAL.sub("\ufffd", step)
    return f"{path}.{step}" if path else step


def untextual(text: str) -> str | None:
    """What is wrong with a text, or None: NUL and half characters cannot be stored and sent as UTF-8."""
    found = UNTEXTUAL.search(text)
    if found is None:
        return None
    if found[0] == "\x00":
        return f"has a NUL at character {found.start()}"
    return f"has a lone surrogate (half a character) at character {found.start()}"


def _check_depth(text: str) -> None:
    depth = 0
    for token in _TOKENS.finditer(text):
        first = text[token.start()]
        if first in "[{":
            depth += 1
            if depth > JSON_DEPTH:
                raise InvalidRequest.at("", f"nested deeper than {JSON_DEPTH} levels at character {token.start()}")
        elif first in "]}":
            depth -= 1


def _decode(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_constant, parse_float=_float, parse_int=_int, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise InvalidRequest.at("", f"the body is not JSON: {error.msg} at character {error.pos}") from None


def _constant(token: str) -> _Wrong:
    return _Wrong(message=f"{token} is not a JSON number")


def _float(digits: str) -> float | _Wrong:
    value = float(digits)
    return _beyond() if value in (float("inf"), float("-inf")) else value


def _int(digits: str) -> int | _Wrong:
    if len(digits) > _INT_CHARACTERS:
        return _beyond()
    value = int(digits)
    try:
        float(value)
    except OverflowError:
        return _beyond()
    return value


def _beyond() -> _Wrong:
    return _Wrong(message="the number is beyond what a double can hold")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Wrong:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
    return _Wrong(message="the key is there twice", key=twice)


def _faults(value: Any) -> Iterator[Fault]:
    """All faults inside a parsed value, in the order of the text."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, str):
            if wrong := untextual(item):
                yield Fault(path=path, message=wrong)
        elif isinstance(item, _Wrong):
            yield Fault(path=path if item.key is None else join_path(path, item.key), message=item.message)
        elif isinstance(item, dict):
            for key in item:
                if wrong := untextual(key):
                    yield Fault(path=join_path(path, key), message=f"the key {wrong}")
            waiting.extend((join_path(path, key), inner) for key, inner in reversed(item.items()))
        elif isinstance(item, list):
            last = len(item) - 1
            waiting.extend((join_path(path, last - n), inner) for n, inner in enumerate(reversed(item)))
