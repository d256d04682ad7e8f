"""Faults between the adapters and AWS, by botocore's own event hooks: the code under test runs unchanged.

Each fault counts how often it struck, so that a test can say that its case was reached.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError


class _Raw(io.BytesIO):
    """A response body as urllib3 gives it."""

    def stream(self, amount: int = 1024, **_: Any) -> Iterator[bytes]:
        while part := self.read(amount):
            yield part


_hooked: list[Callable[[], None]] = []


def _hook(client: Any, event: str, handler: Callable[..., Any]) -> None:
    client.meta.events.register_first(event, handler)
    _hooked.append(lambda: client.meta.events.unregister(event, handler))


def withdraw_all() -> None:
    """Take all hooks away again: clients are dear to make, so tests share one."""
    while _hooked:
        _hooked.pop()()


class Fault:
    """Something that goes wrong `times` times and then no more."""

    def __init__(self, client: Any, event: str, times: int, strike: Callable[[Mapping[str, Any]], Any]) -> None:
        self.struck = 0
        self._times = times
        self._strike = strike
        _hook(client, event, self._handle)

    def _handle(self, **given: Any) -> Any:
        if self.struck >= self._times:
            return None
        self.struck += 1
        return self._strike(given)


class Counter:
    """Counts requests that leave for an operation and keeps their bodies."""

    def __init__(self, client: Any, operation: str = "*") -> None:
        self.bodies: list[Any] = []
        _hook(client, f"before-send.dynamodb.{operation}", self._count)

    def _count(self, request: Any, **_: Any) -> None:
        self.bodies.append(json.loads(request.body))


def answered(client: Any, operation: str, code: str, *, status: int = 400, times: int = 1, **fields: Any) -> Fault:
    """The request does not arrive; AWS answers an error instead."""
    body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": code, **fields}).encode()
    headers = {"content-type": "application/x-amz-json-1.0"}

    def strike(given: Mapping[str, Any]) -> AWSResponse:
        return AWSResponse(given["request"].url, status, headers, _Raw(body))

    return Fault(client, f"before-send.dynamodb.{operation}", times, strike)


def cancelled(client: Any, *reasons: str, times: int = 1) -> Fault:
    """A transaction is cancelled with these reasons before it does anything."""
    listed = [{"Code": reason} for reason in reasons]
    return answered(
        client, "TransactWriteItems", "TransactionCanceledException", times=times, CancellationReasons=listed
    )


def sent_twice(client: Any, operation: str, times: int = 1) -> Fault:
    """The answer to a request that was done is lost, and the SDK sends it again by itself."""
    return Fault(client, f"needs-retry.dynamodb.{operation}", times, lambda _: 0)


def lost(client: Any, operation: str, *, times: int = 1, meanwhile: Callable[[], object] = lambda: None) -> Fault:
    """The request is done, but its answer never comes, not even to the SDK's own repeats. `meanwhile` happens then."""

    def strike(_: Mapping[str, Any]) -> None:
        meanwhile()
        raise ReadTimeoutError(endpoint_url="http://127.0.0.1")

    return Fault(client, f"after-call.dynamodb.{operation}", times, strike)


def keep_back_one(client: Any, table: str) -> Fault:
    """A batch read leaves one of its rows for the next."""

    def strike(given: Mapping[str, Any]) -> None:
        item = given["parsed"]["Responses"][table].pop()
        given["parsed"]["UnprocessedKeys"] = {table: {"Keys": [{"pk": item["pk"], "sk": item["sk"]}]}}

    return Fault(client, "after-call.dynamodb.BatchGetItem", 1, strike)
