"""The Directory port on the same table: API keys, tickets, connections, subscriptions.

These lookup rows are the only ones without an org in their key; they hold it as a value (I9). A connection keeps a note
of each of its subscriptions, so that its end can remove them all without a search. Rows of connections expire by TTL a
day later: whatever a crash leaves behind goes by itself.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from chalicelib import ports
from chalicelib.adapters import keys
from chalicelib.adapters.codec import Column, Item, Value, decode, encode, flag, number, text
from chalicelib.adapters.keys import Key
from chalicelib.adapters.rows import SECOND, VERSION
from chalicelib.adapters.table import REFUSED, Refused, Table, Unfinished, reason_codes
from chalicelib.adapters.writes import EXISTS, NEW, Test, check, delete, primary, put, update
from chalicelib.adapters.writes import number as amount
from chalicelib.domain.ids import ThreadRef
from chalicelib.ports import KeyRow

DAY = 86_400  # seconds; API Gateway ends a connection after two hours (quotas page)
BATCH_WRITE = 25  # rows in a BatchWriteItem (API reference)

KEY = (
    text("sha256", "sha256"),
    text("key_id", "key_id"),
    text("org", "org"),
    text("name", "name"),
    text("level", "level"),
    text("prefix", "prefix"),
    text("user", "user", None),
    number("created_at", "created_at", ...),
    number("revoked_at", "revoked_at"),
)

TICKET = (
    text("sha256", "sha256"),
    text("org", "org"),
    text("key_sha256", "key_sha256"),
    text("key_id", "key_id"),
    text("level", "level"),
    text("user", "user", None),
    number("expires_at", "until", ...),
)

CONNECTION = (
    text("id", "id"),
    text("org", "org"),
    text("key_sha256", "key_sha256"),
    number("opened_at", "opened_at", ...),
)

SUBSCRIBER = (
    text("connection", "connection"),
    text("token", "token"),
    text("org", "org"),
    number("cursor", "cursor", ...),
    number("catching_until", "catching_until"),
    text("key_sha256", "key_sha256"),
    flag("logs", "logs"),
)


class TableDirectory:
    """`ports.Directory` on a table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def key(self, sha256: str) -> KeyRow | None:
        """See the port."""
        item = self._one(keys.api_key(sha256))
        return KeyRow(**decode(KEY, item)) if item else None

    def put_key(self, row: KeyRow) -> None:
        """See the port."""
        try:
            self._table.write("put_item", put(self._table.name, keys.api_key(row.sha256), _row(KEY, row), NEW))
        except Refused:
            return

    def put_ticket(self, ticket: "ports.Ticket") -> None:
        """See the port."""
        row = _row(TICKET, ticket) | _ttl(ticket.expires_at)
        self._table.write("put_item", put(self._table.name, keys.ticket(ticket.sha256), row))

    def burn_ticket(self, sha256: str) -> "ports.Ticket | None":
        """See the port. When the answer to the delete is lost, nobody gets the ticket."""
        request = delete(self._table.name, keys.ticket(sha256), EXISTS)
        try:
            answer = self._table.write("delete_item", {**request, "ReturnValues": "ALL_OLD"})
        except Refused:
            return None
        return ports.Ticket(**decode(TICKET, answer["Attributes"]))

    def connect(self, connection: "ports.Connection") -> None:
        """See the port."""
        row = _row(CONNECTION, connection) | _ttl(connection.opened_at + DAY * SECOND)
        self._table.write("put_item", put(self._table.name, keys.connection(connection.id), row))

    def connection(self, connection_id: str) -> "ports.Connection | None":
        """See the port."""
        item = self._one(keys.connection(connection_id))
        return ports.Connection(**decode(CONNECTION, item)) if item else None

    def disconnect(self, connection_id: str) -> None:
        """See the port. The connection goes first: from then on nothing can be subscribed for it."""
        gone = keys.connection(connection_id)
        self._table.write("delete_item", delete(self._table.name, gone))
        notes = [Key(gone.pk, item["sk"]["S"]) for item in self._table.query(gone.pk)]
        threads = ((note, keys.thread_of(note.sk)) for note in notes)
        pairs = [(keys.subscriber(ref, connection_id), note) for note, ref in threads if ref]
        self._delete(key for pair in pairs for key in pair)

    def subscribe(self, subscriber: "ports.Subscriber") -> None:
        """See the port. For a connection that is gone nothing is stored: no row may outlive its connection."""
        ref = ThreadRef(subscriber.org, subscriber.token)
        ttl = _ttl(self._table.patience.clock.now() + DAY * SECOND)
        name, connection = self._table.name, subscriber.connection
        actions = [
            {"ConditionCheck": check(name, keys.connection(connection), EXISTS)},
            {"Put": put(name, keys.subscriber(ref, connection), _row(SUBSCRIBER, subscriber) | ttl)},
            {"Put": put(name, keys.subscription(connection, ref), VERSION | ttl)},
        ]
        self._table.patience.run(partial(self._together, actions))

    def unsubscribe(self, ref: ThreadRef, connection_id: str) -> None:
        """See the port."""
        self._delete([keys.subscriber(ref, connection_id), keys.subscription(connection_id, ref)])

    def subscribers(self, ref: ThreadRef) -> "list[ports.Subscriber]":
        """See the port."""
        return [ports.Subscriber(**decode(SUBSCRIBER, item)) for item in self._table.query(keys.subscribers(ref))]

    def move_cursor(self, subscriber: "ports.Subscriber", cursor: int, *, live: bool = False) -> bool:
        """See the port."""
        ended = ("catching_until",) if live else ()
        try:
            self._update(subscriber, Test("cursor", "<=", amount(cursor)), put={"cursor": amount(cursor)}, remove=ended)
        except Refused as refused:
            if refused.item is None or not live or "catching_until" not in refused.item:
                return refused.item is not None
            return self._end_catching(subscriber)
        return True

    def _end_catching(self, subscriber: "ports.Subscriber") -> bool:
        try:
            self._update(subscriber, EXISTS, remove=("catching_until",))
        except Refused:
            return False
        return True

    def _update(
        self,
        subscriber: "ports.Subscriber",
        test: Test,
        *,
        put: Mapping[str, Value] | None = None,
        remove: Iterable[str],
    ) -> None:
        key = keys.subscriber(ThreadRef(subscriber.org, subscriber.token), subscriber.connection)
        self._table.write("update_item", update(self._table.name, key, test, put=put, remove=remove))

    def _one(self, key: Key) -> Item | None:
        return self._table.get([key]).get(key)

    def _together(self, actions: list[dict[str, Any]]) -> None:
        try:
            self._table.client.transact_write_items(TransactItems=actions)
        except ClientError as error:
            if REFUSED not in reason_codes(error):
                raise

    def _delete(self, gone: Iterable[Key]) -> None:
        left = list(gone)
        while left:
            some, left = left[:BATCH_WRITE], left[BATCH_WRITE:]
            self._table.patience.run(partial(self._delete_batch, some))

    def _delete_batch(self, left: list[Key]) -> None:
        requests = [{"DeleteRequest": {"Key": primary(key)}} for key in left]
        answer = self._table.client.batch_write_item(RequestItems={self._table.name: requests})
        kept = answer.get("UnprocessedItems", {}).get(self._table.name, ())
        if kept:
            left[:] = [_key(request["DeleteRequest"]["Key"]) for request in kept]
            raise Unfinished


def _row(columns: tuple[Column, ...], record: Any) -> dict[str, Value]:
    return VERSION | encode(columns, record)


def _ttl(at: int) -> dict[str, Value]:
    """The table's TTL attribute, in seconds."""
    return {"expires_at": amount(-(-at // SECOND))}


def _key(primary_key: Item) -> Key:
    return Key(primary_key["pk"]["S"], primary_key["sk"]["S"])
