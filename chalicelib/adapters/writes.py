"""Write requests to DynamoDB: each states its own condition (one effect, one condition).

A row that exists is only ever changed by naming attributes, never by putting back what was read: an attribute of a
newer release survives a change by this one.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from chalicelib.adapters.codec import Item, Value, size
from chalicelib.adapters.keys import Key


class Names:
    """Placeholders of one request; every name is aliased, so that no reserved word can matter."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Value] = {}

    def name(self, attribute: str) -> str:
        """The placeholder of an attribute."""
        alias = f"#{attribute}"
        self.names[alias] = attribute
        return alias

    def value(self, value: Value) -> str:
        """The placeholder of a value."""
        alias = f":{len(self.values)}"
        self.values[alias] = value
        return alias

    def request(self) -> dict[str, Any]:
        """The placeholders as request fields; empty ones must not be sent."""
        fields = {"ExpressionAttributeNames": self.names, "ExpressionAttributeValues": self.values}
        return {name: content for name, content in fields.items() if content}


class Test(NamedTuple):
    """One comparison: `attribute op value`; ops `exists` and `absent` take no value."""

    attribute: str
    op: str
    value: Value | None = None

    def text(self, names: Names) -> str:
        """The comparison as an expression."""
        name = names.name(self.attribute)
        if self.value is None:
            return f"attribute_exists({name})" if self.op == "exists" else f"attribute_not_exists({name})"
        return f"{name} {self.op} {names.value(self.value)}"


NEW = Test("pk", "absent")
EXISTS = Test("pk", "exists")


def number(value: int) -> Value:
    """An integer as an attribute value."""
    return {"N": str(value)}


def put(table: str, key: Key, row: Item, *any_of: Test) -> dict[str, Any]:
    """Put a row, if one of the tests holds (none given: always)."""
    names = Names()
    request: dict[str, Any] = {"TableName": table, "Item": {"pk": {"S": key.pk}, "sk": {"S": key.sk}, **row}}
    return _conditioned(request, names, " OR ".join(test.text(names) for test in any_of))


def update(
    table: str,
    key: Key,
    *all_of: Test,
    put: Mapping[str, Value] | None = None,
    remove: Iterable[str] = (),
    add: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Change attributes of a row, if all tests hold. Without a test it makes the row if there is none."""
    names = Names()
    clauses = [
        ("SET", [f"{names.name(name)} = {names.value(value)}" for name, value in (put or {}).items()]),
        ("REMOVE", [names.name(name) for name in remove]),
        ("ADD", [f"{names.name(name)} {names.value(number(value))}" for name, value in (add or {}).items()]),
    ]
    expression = " ".join(f"{verb} {', '.join(parts)}" for verb, parts in clauses if parts)
    request = {"TableName": table, "Key": primary(key), "UpdateExpression": expression}
    return _conditioned(request, names, " AND ".join(test.text(names) for test in all_of))


def delete(table: str, key: Key, *all_of: Test) -> dict[str, Any]:
    """Delete a row, if all tests hold."""
    names = Names()
    return _conditioned(
        {"TableName": table, "Key": primary(key)}, names, " AND ".join(test.text(names) for test in all_of)
    )


def check(table: str, key: Key, *all_of: Test) -> dict[str, Any]:
    """Write nothing, but let the transaction fail unless all tests hold."""
    return delete(table, key, *all_of)


def primary(key: Key) -> dict[str, Value]:
    """A key as the SDK takes it."""
    return {"pk": {"S": key.pk}, "sk": {"S": key.sk}}


def weight(request: Mapping[str, Any]) -> int:
    """Bytes that a request writes: of the whole row for a put, of the changed attributes for an update."""
    written = request.get("Item") or {
        **request.get("Key", {}),
        **{name: value for name, value in request.get("ExpressionAttributeValues", {}).items()},
    }
    names = sum(len(name) for name in request.get("ExpressionAttributeNames", {}).values())
    return size(written) + names


def _conditioned(request: dict[str, Any], names: Names, condition: str) -> dict[str, Any]:
    if condition:
        request["ConditionExpression"] = condition
        request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    return request | names.request()
