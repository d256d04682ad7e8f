"""Event filtering as Lambda's event sources do it: which records a function sees at all.

A pattern is a JSON object whose leaves are lists of rules; all named fields must match, any rule of a list is enough.
The rules that infra/resources.json uses: a literal, `prefix`, `suffix`, `anything-but`, `exists`. Another rule
raises, so that the template cannot say more than this room understands.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

MISSING = object()


def load(criteria: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The patterns of a FilterCriteria property."""
    return [json.loads(entry["Pattern"]) for entry in criteria.get("Filters", [])]


def wanted(record: Mapping[str, Any], patterns: Sequence[Mapping[str, Any]]) -> bool:
    """Whether any pattern matches; without patterns everything is wanted."""
    return not patterns or any(_matches(record, pattern) for pattern in patterns)


def _matches(value: Any, pattern: Any) -> bool:
    if isinstance(pattern, list):
        return any(_rule(value, rule) for rule in pattern)
    inner = value if isinstance(value, Mapping) else {}
    return all(_matches(inner.get(name, MISSING), part) for name, part in pattern.items())


def _rule(value: Any, rule: Any) -> bool:
    if not isinstance(rule, dict):
        return bool(value is not MISSING and value == rule)
    ((kind, argument),) = rule.items()
    if kind == "exists":
        return (value is not MISSING) is bool(argument)
    if kind == "prefix":
        return isinstance(value, str) and value.startswith(argument)
    if kind == "suffix":
        return isinstance(value, str) and value.endswith(argument)
    if kind == "anything-but":
        return value is not MISSING and value not in argument
    raise ValueError(f"this cloud does not know the filter rule {kind!r}")
