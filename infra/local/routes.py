"""Finds the resource of a path, as API Gateway does: from the templates that the app has registered.

Static segments win over parameters. Segments are matched as they were sent and decoded once, afterwards, so that an
encoded slash stays inside its parameter. It knows nothing of methods: a known resource with a wrong method goes to the
app, which answers for itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote


@dataclass(frozen=True, kw_only=True)
class Match:
    """The template of a resource, and its parameters (decoded once)."""

    resource: str
    parameters: dict[str, str]


@dataclass
class _Node:
    static: dict[str, "_Node"] = field(default_factory=dict)
    parameter: "_Node | None" = None
    template: str | None = None


class Routes:
    """The tree of resources."""

    def __init__(self, templates: Iterable[str]) -> None:
        self._root = _Node()
        for template in templates:
            self._add(template)

    def find(self, raw_path: str) -> Match | None:
        """The resource of an undecoded path; one trailing slash is ignored, as API Gateway ignores it."""
        segments = _segments(raw_path)
        found = _walk(self._root, segments)
        if found is None:
            return None
        values = [(name, part) for name, part in zip(_segments(found), segments, strict=True) if _is_parameter(name)]
        return Match(resource=found, parameters={name[1:-1]: unquote(part) for name, part in values})

    def _add(self, template: str) -> None:
        node = self._root
        for segment in _segments(template):
            if _is_parameter(segment):
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.static.setdefault(segment, _Node())
        node.template = template


def _walk(node: _Node, segments: list[str]) -> str | None:
    if not segments:
        return node.template
    head, rest = segments[0], segments[1:]
    found = None
    if head in node.static:
        found = _walk(node.static[head], rest)
    if found is None and head and node.parameter:
        found = _walk(node.parameter, rest)
    return found


def _segments(path: str) -> list[str]:
    inner = path.removeprefix("/").removesuffix("/")
    return inner.split("/") if inner else []


def _is_parameter(segment: str) -> bool:
    return segment.startswith("{") and segment.endswith("}")
