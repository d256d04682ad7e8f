"""`${c1.field}` in the argument text of a scripted call: a field of the stored result of call `c1`.

This room knows JSON text and stored results, nothing of models. It guarantees that text that was valid JSON around a
placeholder stays valid JSON after it is filled, whatever the result holds, also when the text comes in pieces
(a placeholder itself is never cut between two pieces).

Inside a JSON string a string is inserted as escaped text, any other value as its JSON text, escaped. Outside of one the
value's JSON is inserted, strings with their quotes. A known call without that field gives nothing inside a string and
`null` outside. A call without a stored result gives `null` outside; inside a string the placeholder stays as it is,
because that text may be the script of a child thread, to be filled there.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chalicelib.ports import JSON

_PLACEHOLDER = re.compile(r"\$\{([^${}\s.]+)\.([^${}\s]+)\}")
_UNKNOWN = object()


def stored_results(messages: Iterable[Mapping[str, JSON]]) -> dict[str, JSON]:
    """Contents of the tool results in `messages` by call id; of two results with one id the first counts."""
    results: dict[str, JSON] = {}
    for message in messages:
        for part in message.get("content") or ():
            if isinstance(part, Mapping) and part.get("type") == "tool_result":
                results.setdefault(str(part.get("call_id")), part.get("content"))
    return results


@dataclass(kw_only=True)
class Filler:
    """Fills the pieces of one call's argument text, in order; remembers whether the text is inside a JSON string."""

    results: Mapping[str, JSON]
    inside: bool = False
    escaped: bool = False

    def fill(self, part: str) -> str:
        """The piece with its placeholders filled. Call it once for each piece, in order."""
        filled, position = [], 0
        for match in _PLACEHOLDER.finditer(part):
            filled.append(self._pass(part[position : match.start()]))
            filled.append(self._value(match))
            position = match.end()
        return "".join(filled) + self._pass(part[position:])

    def _pass(self, text: str) -> str:
        for character in text:
            if self.escaped:
                self.escaped = False
            elif self.inside and character == "\\":
                self.escaped = True
            elif character == '"':
                self.inside = not self.inside
        return text

    def _value(self, match: re.Match[str]) -> str:
        call_id, path = match.groups()
        if call_id not in self.results:
            return match.group() if self.inside else "null"
        value = _field(self.results[call_id], path.split("."))
        return _inside_a_string(value) if self.inside else json.dumps(None if value is _UNKNOWN else value)


def _field(value: JSON, steps: list[str]) -> JSON:
    """The value at the end of the path (list places by number); results that are JSON text are looked into."""
    for step in steps:
        value = _parsed(value) if isinstance(value, str) else value
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return _UNKNOWN
    return value


def _parsed(text: str) -> JSON:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _inside_a_string(value: JSON) -> str:
    if value is _UNKNOWN:
        return ""
    return json.dumps(value if isinstance(value, str) else json.dumps(value))[1:-1]
