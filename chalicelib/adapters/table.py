"""The table as a connection: keyed reads, queries, single writes, and patience with what passes.

One botocore client speaks to DynamoDB. Reads go through pynamodb's connection, which builds the key conditions from the
table's schema; writes go to the client itself, because a compare-and-set must return the losing item. pynamodb's models
are not used: a model that saves what it read drops the attributes of a newer release.

Guarantees: an error that passes (throttling, a conflict with a transaction, no answer, 5xx) is met with the same
request again, jittered, for up to PATIENCE seconds, and then is RetryLater. A refused condition is never retried.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError, IncompleteReadError
from pynamodb.connection.base import Connection, MetaTable
from pynamodb.exceptions import PynamoDBException
from pynamodb.expressions.condition import Condition

from chalicelib.adapters import keys
from chalicelib.adapters.codec import Item
from chalicelib.adapters.keys import Key
from chalicelib.domain.errors import RetryLater
from chalicelib.ports import Clock, Ids

T = TypeVar("T")

CONNECT_SECONDS = 1
READ_SECONDS = 3
SDK_ATTEMPTS = 1  # `Patience` alone repeats: botocore would sleep for seconds between tries, and hide them
POOL = 64  # connections; a local process serves many requests at once
PATIENCE = 5.0  # seconds (design section 4.2)
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds, doubled from one to the other, each with full jitter
BATCH_GET = 100  # keys in a BatchGetItem (API reference)

REFUSED = "ConditionalCheckFailed"
PASSING = frozenset(
    {
        "InternalServerError",
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingError",
        "ThrottlingException",
        "TransactionConflict",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Sends the same again while an error may pass."""

    clock: Clock
    ids: Ids

    def run(self, attempt: Callable[[], T]) -> T:
        """What `attempt` answers. Raises RetryLater when passing errors outlast PATIENCE; other errors at once."""
        until = self.clock.monotonic() + PATIENCE
        pause = FIRST_PAUSE
        while True:
            try:
                return attempt()
            except (BotoCoreError, ClientError, PynamoDBException, Unfinished) as error:
                if not passes(error):
                    raise
                if self.clock.monotonic() >= until:
                    raise RetryLater(
                        "The store is busy; please send the request again.", retry_after_seconds=1
                    ) from error
            self.clock.sleep(self.ids.uniform() * pause)
            pause = min(pause * 2, LONGEST_PAUSE)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table and the ways to it."""

    name: str
    connection: Connection
    patience: Patience

    @property
    def client(self) -> Any:
        """The botocore client, for writes."""
        return self.connection.client

    def get(self, wanted: Collection[Key]) -> dict[Key, Item]:
        """Rows by key, strongly consistent, in one batch read; what does not exist is absent."""
        if len(wanted) > BATCH_GET:
            raise ValueError(f"{len(wanted)} rows do not fit into one batch read")
        found: dict[Key, Item] = {}
        if wanted:
            self.patience.run(partial(self._fill, found, dict.fromkeys(wanted)))
        return found

    def query(
        self,
        partition: str,
        condition: Condition | None = None,
        *,
        limit: int | None = None,
        descending: bool = False,
        index: str | None = None,
    ) -> Iterator[Item]:
        """Rows of a partition in order, page by page as they are asked for; strongly consistent unless by an index."""
        start: Any = None
        while True:
            answer = self.patience.run(partial(self._page, partition, condition, limit, descending, index, start))
            yield from answer["Items"]
            start = answer.get("LastEvaluatedKey")
            if not start:
                return

    def write(self, operation: str, request: Mapping[str, Any]) -> Any:
        """One single-row write (`update_item`, `put_item`, `delete_item`). Raises Refused with the row that stands."""
        return self.patience.run(lambda: self._send(operation, request))

    def _send(self, operation: str, request: Mapping[str, Any]) -> Any:
        try:
            return getattr(self.client, operation)(**request)
        except ClientError as error:
            if code(error) != "ConditionalCheckFailedException":
                raise
            raise Refused(error.response.get("Item")) from error

    def _fill(self, found: dict[Key, Item], left: dict[Key, None]) -> None:
        """Read what is left. Raises Unfinished when DynamoDB kept back a part of it."""
        asked: list[Any] = [key._asdict() for key in left]
        answer = self.connection.batch_get_item(self.name, asked, consistent_read=True)
        for item in answer["Responses"].get(self.name, ()):
            found[Key(item["pk"]["S"], item["sk"]["S"])] = item
        kept = answer.get("UnprocessedKeys", {}).get(self.name, {}).get("Keys", ())
        if kept:
            left.clear()
            left.update({Key(key["pk"]["S"], key["sk"]["S"]): None for key in kept})
            raise Unfinished

    def _page(
        self,
        partition: str,
        condition: Condition | None,
        limit: int | None,
        descending: bool,
        index: str | None,
        start: Any,
    ) -> Any:
        return self.connection.query(
            self.name,
            partition,
            condition,
            consistent_read=index is None,
            index_name=index,
            limit=limit,
            scan_index_forward=not descending,
            exclusive_start_key=start,
        )


class Unfinished(Exception):
    """A batch was only done in part: too much for one answer, or throttled."""


class Refused(Exception):
    """A condition did not hold; `item` is the row that stands (None: there is none)."""

    def __init__(self, item: Item | None) -> None:
        super().__init__("the condition did not hold")
        self.item = item


def connect(table: str, *, clock: Clock, ids: Ids, region: str | None = None, endpoint: str | None = None) -> Table:
    """A table by name. `endpoint` None: as botocore resolves it (AWS_ENDPOINT_URL, else AWS). The client is made now,
    because botocore's clients may be shared by threads but not be made by several at once.
    """
    connection = Connection(
        region=region,
        host=endpoint,
        connect_timeout_seconds=CONNECT_SECONDS,
        read_timeout_seconds=READ_SECONDS,
        retry_configuration={"mode": "standard", "total_max_attempts": SDK_ATTEMPTS},
        max_pool_connections=POOL,
    )
    connection.add_meta_table(MetaTable({"TableName": table, **keys.SCHEMA}))
    made = Table(name=table, connection=connection, patience=Patience(clock=clock, ids=ids))
    _ = made.client
    return made


def passes(error: Exception) -> bool:
    """True for an error after which the same request may succeed."""
    if isinstance(error, Unfinished):
        return True
    if isinstance(error, PynamoDBException):
        return error.cause is not None and passes(error.cause)
    if not isinstance(error, ClientError):
        return isinstance(error, (ConnectionError, HTTPClientError, IncompleteReadError))
    if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
        return True
    reasons = reason_codes(error)
    return code(error) in PASSING or (REFUSED not in reasons and any(reason in PASSING for reason in reasons))


def code(error: ClientError) -> str:
    """The error code that AWS answered."""
    return str(error.response.get("Error", {}).get("Code", ""))


def reason_codes(error: ClientError) -> list[str]:
    """Why each action of a transaction failed, in their order; `None` for one that did not."""
    reasons: list[dict[str, Any]] = error.response.get("CancellationReasons", [])
    return [str(reason.get("Code")) for reason in reasons]
