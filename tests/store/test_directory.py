"""Keys, tickets, connections and subscriptions."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from chalicelib.adapters import keys
from chalicelib.adapters.directory import TableDirectory
from chalicelib.adapters.system import SystemIds
from chalicelib.adapters.table import Table
from chalicelib.domain.ids import ThreadRef
from chalicelib.ports import Connection, KeyRow, Subscriber, Ticket
from tests.store.faults import Counter, answered, sent_twice
from tests.store.kit import NOW, SECOND, thread


@pytest.fixture
def directory(table: Table) -> TableDirectory:
    """The directory on the module's table."""
    return TableDirectory(table)


def _key(**fields: object) -> KeyRow:
    given = {"key_id": "key_1", "org": "org_a", "name": "ci", "level": "admin", "prefix": "tl_test_", "user": None}
    return KeyRow(**{"sha256": SystemIds().token(), "created_at": NOW, **given, **fields})  # type: ignore[arg-type]


def _ticket() -> Ticket:
    return Ticket(
        sha256=SystemIds().token(),
        org="org_a",
        key_sha256="hash",
        key_id="key_1",
        level="member",
        user="usr_1",
        expires_at=NOW + 60 * SECOND,
    )


def _connected(directory: TableDirectory) -> Connection:
    connection = Connection(id=f"{SystemIds().token()}=", org="org_a", key_sha256="hash", opened_at=NOW)
    directory.connect(connection)
    return connection


def _subscriber(connection: Connection, ref: ThreadRef, **fields: int) -> Subscriber:
    given = {"cursor": 5, "catching_until": NOW + 10, **fields}
    return Subscriber(connection=connection.id, token=ref.token, org=ref.org, key_sha256="hash", **given)  # type: ignore[arg-type]


def test_a_key_is_found_by_its_hash_only(directory: TableDirectory) -> None:
    row = _key(user="usr_1", revoked_at=NOW)
    directory.put_key(row)

    assert directory.key(row.sha256) == row
    assert directory.key("another") is None


def test_a_second_put_of_a_key_changes_nothing(directory: TableDirectory, table: Table) -> None:
    row = _key()
    sent_twice(table.client, "PutItem")
    directory.put_key(row)

    directory.put_key(replace(row, level="viewer", org="org_b"))

    assert directory.key(row.sha256) == row


def test_of_many_callers_one_gets_the_ticket(directory: TableDirectory) -> None:
    ticket = _ticket()
    directory.put_ticket(ticket)

    with ThreadPoolExecutor(8) as pool:
        burned = list(pool.map(directory.burn_ticket, [ticket.sha256] * 8))

    assert [found for found in burned if found] == [ticket]
    assert directory.burn_ticket(ticket.sha256) is None


def test_a_connection_is_known_until_it_ends(directory: TableDirectory) -> None:
    connection = _connected(directory)

    assert directory.connection(connection.id) == connection
    directory.disconnect(connection.id)
    directory.disconnect(connection.id)
    assert directory.connection(connection.id) is None


def test_the_end_of_a_connection_removes_all_its_subscriptions_and_no_other(
    directory: TableDirectory, table: Table
) -> None:
    one, two = _connected(directory), _connected(directory)
    refs = [thread() for _ in range(30)]
    for ref in refs:
        directory.subscribe(_subscriber(one, ref))
    kept = _subscriber(two, refs[0])
    directory.subscribe(kept)

    directory.disconnect(one.id)

    assert directory.subscribers(refs[0]) == [kept]
    assert [row for ref in refs[1:] for row in directory.subscribers(ref)] == []
    assert list(table.query(keys.connection(one.id).pk)) == []


def test_subscribers_of_a_thread_are_read_in_one_query(directory: TableDirectory, table: Table, ref: ThreadRef) -> None:
    rows = [_subscriber(_connected(directory), ref, cursor=number) for number in range(20)]
    for row in rows:
        directory.subscribe(row)
    sent = Counter(table.client)

    assert sorted(directory.subscribers(ref), key=lambda row: row.cursor) == rows
    assert len(sent.bodies) == 1
    assert directory.subscribers(ThreadRef("org_b", ref.token)) == []


def test_a_new_subscription_takes_the_place_of_the_earlier_one(directory: TableDirectory, ref: ThreadRef) -> None:
    connection = _connected(directory)
    directory.subscribe(_subscriber(connection, ref, cursor=50))
    again = replace(_subscriber(connection, ref, cursor=0, catching_until=0), logs=True)

    directory.subscribe(again)

    assert directory.subscribers(ref) == [again]


def test_nothing_is_subscribed_for_a_connection_that_is_gone(
    directory: TableDirectory, table: Table, ref: ThreadRef
) -> None:
    connection = _connected(directory)
    directory.disconnect(connection.id)

    directory.subscribe(_subscriber(connection, ref))

    assert directory.subscribers(ref) == []
    assert list(table.query(keys.connection(connection.id).pk)) == []


def test_a_subscription_ends_once(directory: TableDirectory, ref: ThreadRef) -> None:
    connection = _connected(directory)
    directory.subscribe(_subscriber(connection, ref))

    directory.unsubscribe(ref, connection.id)
    directory.unsubscribe(ref, connection.id)

    assert directory.subscribers(ref) == []
    assert directory.connection(connection.id) == connection


def test_a_cursor_rises_and_never_falls(directory: TableDirectory, ref: ThreadRef) -> None:
    row = _subscriber(_connected(directory), ref, cursor=5)
    directory.subscribe(row)

    assert directory.move_cursor(row, 9)
    assert directory.move_cursor(row, 7)

    assert directory.subscribers(ref) == [replace(row, cursor=9)]


@pytest.mark.parametrize("cursor", [3, 5, 9])
def test_live_ends_the_catching_up_wherever_the_cursor_is(
    directory: TableDirectory, ref: ThreadRef, cursor: int
) -> None:
    row = _subscriber(_connected(directory), ref, cursor=5)
    directory.subscribe(row)

    assert directory.move_cursor(row, cursor, live=True)
    assert directory.move_cursor(row, cursor, live=True)

    assert directory.subscribers(ref) == [replace(row, cursor=max(cursor, 5), catching_until=0)]


@pytest.mark.parametrize("live", [True, False])
def test_the_cursor_of_a_subscription_that_ended_is_not_moved(
    directory: TableDirectory, ref: ThreadRef, live: bool
) -> None:
    row = _subscriber(_connected(directory), ref)
    directory.subscribe(row)
    directory.unsubscribe(ref, row.connection)

    assert not directory.move_cursor(row, 9, live=live)
    assert directory.subscribers(ref) == []


def test_conflicts_and_throttling_are_waited_out(directory: TableDirectory, table: Table, ref: ThreadRef) -> None:
    connection = _connected(directory)
    row = _subscriber(connection, ref)
    faults = [
        answered(table.client, "TransactWriteItems", "TransactionInProgressException", times=3),
        answered(table.client, "UpdateItem", "TransactionConflictException", times=3),
        answered(table.client, "BatchWriteItem", "ThrottlingException", times=3),
    ]

    directory.subscribe(row)
    assert directory.move_cursor(row, 9)
    assert directory.subscribers(ref) == [replace(row, cursor=9)]
    directory.disconnect(connection.id)

    assert directory.subscribers(ref) == []
    assert [fault.struck for fault in faults] == [3, 3, 3]


def test_what_a_crash_leaves_behind_expires(directory: TableDirectory, table: Table, ref: ThreadRef) -> None:
    connection, ticket = _connected(directory), _ticket()
    directory.put_ticket(ticket)
    directory.subscribe(_subscriber(connection, ref))
    day = (NOW // SECOND) + 86_400
    found = table.get(
        [
            keys.connection(connection.id),
            keys.subscriber(ref, connection.id),
            keys.subscription(connection.id, ref),
            keys.ticket(ticket.sha256),
        ]
    )

    expiries = {key.pk.split("#")[0]: int(item["expires_at"]["N"]) for key, item in found.items()}
    assert len(found) == 4
    assert expiries == {"connection": day, "thread": day, "ticket": NOW // SECOND + 60}
