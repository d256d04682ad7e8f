"""Which tools an offline model asks for, and with what arguments: by words, not by understanding.

It reads the user's words, the tools' names, descriptions and schemas. It guarantees valid JSON arguments that name only
properties of the schema, every required one among them, and the same choice for the same words.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from chalicelib.ports import JSON, ModelRequest, ToolSpec

# Words that say nothing about which tool is meant, in names, in descriptions and in what users write.
_EMPTY_WORDS = frozenset(
    "the and for with that this from have what when where which your you are can could would will please tell about "
    "how many much does into over them they then than was were has had not use used using get set give make returns "
    "return tool call ask say said let".split()
)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
_EXPRESSION = re.compile(r"-?\d+(?:\.\d+)?(?:\s*[-+*/^x\u00d7\u00f7]\s*\(?-?\d+(?:\.\d+)?\)?)+")
_ARITHMETIC = frozenset("add sum subtract multiply divide calculate calculator calc arithmetic math number".split())
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|'([^']+)'|`([^`]+)`")
_PROPER_NAME = re.compile(r"(?<!^)(?<![.!?] )\b[A-Z][\w-]+(?: [A-Z][\w-]+)*")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A call to ask for; `arguments_text` is the JSON text of an object."""

    name: str
    arguments_text: str


def wanted_calls(request: ModelRequest, said: str) -> tuple[Wanted, ...]:
    """The calls that the words ask for, none if they ask for none; several only where parallel calls are allowed."""
    tools = _chosen(request, said)
    limit = None if request.parallel_tool_calls else 1
    return tuple(
        Wanted(name=tool.name, arguments_text=json.dumps(_arguments(tool, said), ensure_ascii=False))
        for tool in tools[:limit]
    )


def _chosen(request: ModelRequest, said: str) -> list[ToolSpec]:
    if request.tool_choice == "none" or not request.tools:
        return []
    if request.tool_choice not in ("auto", "required"):
        return [tool for tool in request.tools if tool.name == request.tool_choice]
    named = [tool for tool in request.tools if _is_named(tool, said)]
    if named:
        return named
    best = max(request.tools, key=lambda tool: _score(tool, said))
    return [best] if _score(best, said) >= 2 or request.tool_choice == "required" else []


def _is_named(tool: ToolSpec, said: str) -> bool:
    return _is_said(tool.name, said) or _is_said(tool.name.replace("_", " ").replace("-", " "), said)


def _is_said(words: str, said: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", said, re.IGNORECASE) is not None


def _score(tool: ToolSpec, said: str) -> int:
    """Two for each word of the tool's name that was said, one for each of its description, three for sums it can do."""
    words, in_name, in_description = _stems(said), _stems(tool.name), _stems(tool.description)
    does_sums = _EXPRESSION.search(said) is not None and bool((in_name | in_description) & _ARITHMETIC)
    return 2 * len(words & in_name) + len(words & (in_description - in_name)) + (3 if does_sums else 0)


def _stems(text: str) -> frozenset[str]:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    words = (word.lower().removesuffix("s") for word in re.findall(r"[^\W\d_]+", spaced))
    return frozenset(word for word in words if len(word) > 2 and word not in _EMPTY_WORDS)


@dataclass(kw_only=True)
class _Supply:
    """What the user's words offer as values; each is used once, in the order of the words."""

    said: str
    numbers: list[str] = field(default_factory=list)
    quotes: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, said: str) -> "_Supply":
        quotes = [next(filter(None, groups)) for groups in _QUOTED.findall(said)]
        return cls(said=said, numbers=_NUMBER.findall(said), quotes=quotes, names=_PROPER_NAME.findall(said))


def _arguments(tool: ToolSpec, said: str) -> dict[str, JSON]:
    """Every required property, and the optional ones that the words have a value for."""
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required") or ()
    supply = _Supply.of(said)
    filled: dict[str, JSON] = {}
    for name, schema in (properties if isinstance(properties, Mapping) else {}).items():
        found = list(_found(name, _plain(schema, tool.parameters), supply))
        if found:
            filled[name] = found[0]
        elif name in required:
            filled[name] = _fallback(_plain(schema, tool.parameters), said)
    return filled


def _plain(schema: JSON, root: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """The schema itself, through one local reference and the first alternative that is not null."""
    if not isinstance(schema, Mapping):
        return {}
    reference = str(schema.get("$ref", ""))
    if reference.startswith("#/$defs/"):
        schema = (root.get("$defs") or {}).get(reference.removeprefix("#/$defs/"), {})
    options = [one for one in schema.get("anyOf", ()) if isinstance(one, Mapping) and one.get("type") != "null"]
    return {**schema, **options[0]} if options else schema


def _kind(schema: Mapping[str, JSON]) -> str:
    kind = schema.get("type", "string")
    kinds = kind if isinstance(kind, list) else [kind]
    return next((str(one) for one in kinds if one != "null"), "string")


def _found(name: str, schema: Mapping[str, JSON], supply: _Supply) -> Iterator[JSON]:
    """Values for the property in the user's words, best first; a value that is taken is taken from the supply."""
    kind = _kind(schema)
    if "enum" in schema:
        yield from (one for one in schema["enum"] if _is_said(str(one), supply.said))
    elif kind in ("number", "integer") and supply.numbers:
        yield _number(supply.numbers.pop(0), kind)
    elif kind == "array" and _kind(_items(schema)) in ("number", "integer") and supply.numbers:
        yield [_number(text, _kind(_items(schema))) for text in supply.numbers]
        supply.numbers = []
    elif kind == "string":
        yield from _strings(name, supply)


def _items(schema: Mapping[str, JSON]) -> Mapping[str, JSON]:
    items = schema.get("items")
    return items if isinstance(items, Mapping) else {}


def _strings(name: str, supply: _Supply) -> Iterator[str]:
    spoken_name = re.escape(name).replace("_", "[ _]")
    if labelled := re.search(rf"\b{spoken_name}(?: is|:|=)\s*[\"“'`]?([^\"”'`,.;?!]+)", supply.said, re.IGNORECASE):
        value = labelled.group(1).strip()
        supply.quotes, supply.names = (
            [one for one in taken if one != value] for taken in (supply.quotes, supply.names)
        )
        yield value
    elif name in ("expression", "formula", "sum") and (expression := _EXPRESSION.search(supply.said)):
        yield expression.group()
    elif supply.quotes:
        yield supply.quotes.pop(0)
    elif supply.names:
        yield supply.names.pop(0)


def _number(text: str, kind: str) -> int | float:
    return int(float(text)) if kind == "integer" or "." not in text else float(text)


def _fallback(schema: Mapping[str, JSON], said: str) -> JSON:
    """A value of the right type where the words have none; a string gets all that was said."""
    for fixed in ("const", "default"):
        if fixed in schema:
            return schema[fixed]
    if schema.get("enum"):
        return schema["enum"][0]
    empty: dict[str, JSON] = {"number": 0, "integer": 0, "boolean": True, "array": [], "object": {}}
    return empty.get(_kind(schema), said)
