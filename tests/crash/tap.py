"""A tap on the wire between the house and AWS: it counts calls, and lets anything happen right before or after one.

It sits in botocore's own hooks, so the code under test runs unchanged, and a call that is new in the house is a new
point here. It must not know what a call is for; it reads requests only to tell which results and answers are stored.
Calls that are made `outside` (by another process, or by the test) pass by uncounted.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from threading import local
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError

from tests.store.faults import _Raw


class Died(BaseException):
    """The process is gone. A BaseException, so that nothing between the call and the harness goes on."""


class Moment(Enum):
    """When something happens to a call."""

    BEFORE = "before it is sent"
    ANSWERED = "when the SDK has the answer"
    AFTER = "after it was done"


@dataclass(frozen=True, kw_only=True)
class Happening:
    """Something that happens once, at the call of a number."""

    call: int
    moment: Moment
    do: Callable[[], Any]


class Tap:
    """Watches the clients of a process. `calls`: the calls of this schedule so far, as `dynamodb.UpdateItem`."""

    def __init__(self, clients: Mapping[str, Any]) -> None:
        self.calls: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.stored: set[str] = set()
        self.after_death: list[str] = []
        self.is_dead = False
        self._happenings: list[Happening] = []
        self._refusals: Callable[[str], str | None] = lambda name: None
        self._thread = local()
        for service, client in clients.items():
            hooks = client.meta.events
            hooks.register_first(f"before-call.{service}", self._before)
            hooks.register_first(f"before-send.{service}", self._send)
            hooks.register_first(f"needs-retry.{service}", self._answered)
            hooks.register_first(f"after-call.{service}", self._after)

    def reset(self) -> None:
        """A new schedule begins."""
        self.calls, self.requests, self.stored, self.after_death = [], [], set(), []
        self.is_dead = False
        self._happenings = []
        self._refusals = lambda name: None

    @contextmanager
    def outside(self) -> Iterator[None]:
        """What is called in here is not part of the schedule."""
        before = getattr(self._thread, "outside", False)
        self._thread.outside = True
        try:
            yield
        finally:
            self._thread.outside = before

    def at(self, call: int, moment: Moment, do: Callable[[], Any]) -> None:
        """Let something happen at the call of a number (from 1)."""
        self._happenings.append(Happening(call=call, moment=moment, do=do))

    def refuse(self, choose: Callable[[str], str | None]) -> None:
        """Let AWS answer an error to a DynamoDB request: `choose` names its code, or None to let it pass."""
        self._refusals = choose

    def die(self) -> None:
        """The process ends here."""
        self.is_dead = True
        raise Died

    @property
    def struck(self) -> bool:
        """True once everything that was planned has happened."""
        return not self._happenings

    @property
    def _is_outside(self) -> bool:
        return bool(getattr(self._thread, "outside", False) or getattr(self._thread, "uncounted", False))

    def _before(self, model: Any, params: Any, **_: Any) -> None:
        name = f"{model.service_model.service_name}.{model.name}"
        request = {} if name.startswith("s3") else json.loads(params["body"])
        # The sweep asks 32 shards for work: how many before the one that has it is chance.
        self._thread.uncounted = "IndexName" in request
        if self._is_outside:
            return
        if self.is_dead:
            self.after_death.append(name)
            raise Died
        self.calls.append(name)
        self.requests.append(request)
        self._happen(Moment.BEFORE)

    def _send(self, request: Any, event_name: str, **_: Any) -> AWSResponse | None:
        if self._is_outside or (code := self._refusals(self.calls[-1])) is None:
            return None
        reasons = [{"Code": "TransactionConflict"}] if code == "TransactionCanceledException" else []
        body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": code, "CancellationReasons": reasons}
        headers = {"content-type": "application/x-amz-json-1.0"}
        return AWSResponse(request.url, 400, headers, _Raw(json.dumps(body).encode()))

    def _answered(self, response: Any, **_: Any) -> Any:
        return None if self._is_outside or response is None else self._happen(Moment.ANSWERED)

    def _after(self, http_response: Any, **_: Any) -> None:
        if self._is_outside:
            return
        if http_response.status_code < 300:
            self.stored |= set(_stored_by(self.requests[-1]))
        self._happen(Moment.AFTER)

    def _happen(self, moment: Moment) -> Any:
        now = [h for h in self._happenings if h.moment is moment and h.call == len(self.calls)]
        self._happenings = [h for h in self._happenings if h not in now]
        return next((answer for answer in [h.do() for h in now] if answer is not None), None)


def lose_answer() -> None:
    """The answer never comes, to the SDK or to anybody."""
    raise ReadTimeoutError(endpoint_url="http://127.0.0.1")


def _stored_by(request: Mapping[str, Any]) -> Iterator[str]:
    """Ids of the tool results and whole messages that a transaction stores."""
    for action in request.get("TransactItems", ()):
        update = action.get("Update")
        if update is None:
            continue
        family = update["Key"]["pk"]["S"].split("#")[3:4]
        if family == ["calls"] and "#outcome = " in update["UpdateExpression"]:
            yield update["Key"]["sk"]["S"]
        if family == ["messages"] and "#incomplete = " not in update["UpdateExpression"]:
            yield next(iter(_values(update, "#id")))["S"]


def _values(update: Mapping[str, Any], alias: str) -> Iterator[Any]:
    for assignment in update["UpdateExpression"].removeprefix("SET ").split(" REMOVE ")[0].split(", "):
        name, _, value = assignment.partition(" = ")
        if name == alias:
            yield update["ExpressionAttributeValues"][value]
