"""The rooms behind the websocket and the stream: real services on the real adapters, an emulator for the table.

Time is the machine's plus what a test moves it by. `Meanwhile` lets something happen at any one call to an adapter.
"""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from time import monotonic, time_ns
from typing import Any

from chalicelib.adapters import keys
from chalicelib.adapters.clients import Clients
from chalicelib.adapters.directory import TableDirectory
from chalicelib.adapters.sockets import ManagedSockets
from chalicelib.adapters.store import TableStore
from chalicelib.adapters.system import SystemIds
from chalicelib.adapters.table import connect
from chalicelib.domain import entries
from chalicelib.domain.entries import LogRow
from chalicelib.domain.events import Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import About, Head, State, replace
from chalicelib.domain.wire import event_body
from chalicelib.doors import socket, stream
from chalicelib.ports import Commit, Committed, Directory, KeyRow, Sockets, Store
from chalicelib.services.credentials import Credentials, KeyText, make_key
from chalicelib.services.fan_out import FanOut
from chalicelib.services.provision import Provision
from chalicelib.services.subscribe import Subscribe
from chalicelib.services.tickets import Tickets
from tests.doors.socket_gateway import Gateway, Reader

EVENTS = Path(__file__).resolve().parents[2] / "events"
SOCKET_URL = "ws://127.0.0.1:8000/ws"
SECOND = 1_000_000


def new_id() -> str:
    """A connection's id, as odd as the gateway makes them."""
    return f"{uuid.uuid4().hex[:12]}="


def raw(name: str) -> dict[str, Any]:
    """A raw Lambda event as it is kept in `events/`."""
    parsed: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return parsed


class MovableClock:
    """The machine's time, and what a test adds to it. A sleep moves the time instead of letting it pass."""

    def __init__(self) -> None:
        self._moved = 0.0

    def now(self) -> int:
        return time_ns() // 1_000 + int(self._moved * SECOND)

    def monotonic(self) -> float:
        return monotonic() + self._moved

    def sleep(self, seconds: float) -> None:
        self._moved += seconds


class Died(BaseException):
    """The process is gone: nothing may catch this and go on."""


class Meanwhile:
    """Lets something happen right before the call of a given number to any wrapped adapter (1 is the next one)."""

    def __init__(self) -> None:
        self.calls = 0
        self._at = 0
        self._do: Callable[[], object] = lambda: None

    def at(self, call: int, do: Callable[[], object]) -> None:
        self.calls, self._at, self._do = 0, call, do

    def wrap(self, adapter: Any) -> Any:
        return _Watched(adapter, self)

    def pass_by(self) -> None:
        self.calls += 1
        if self.calls == self._at:
            self._at = 0  # what happens now may call adapters itself
            self._do()


class _Watched:
    def __init__(self, adapter: Any, meanwhile: Meanwhile) -> None:
        self._adapter, self._meanwhile = adapter, meanwhile

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._adapter, name)

        def call(*args: Any, **named: Any) -> Any:
            self._meanwhile.pass_by()
            return method(*args, **named)

        return call


class _Shared:
    """What is slow to make and what all tests of a process can share: orgs, threads and connections are each test's
    own.
    """

    def __init__(self, endpoint: str) -> None:
        self.clock = MovableClock()
        self.clients = Clients()
        self.table = connect("socket-house", clock=self.clock, ids=SystemIds(), endpoint=endpoint)
        self.requests: list[str] = []
        schema: dict[str, Any] = keys.SCHEMA
        self.table.client.create_table(TableName=self.table.name, BillingMode="PAY_PER_REQUEST", **schema)
        self.table.client.meta.events.register("before-call.dynamodb", self._count)

    def _count(self, model: Any, **_: Any) -> None:
        self.requests.append(model.name)


_shared = cache(_Shared)


class SocketHouse:
    """The house as these doors see it. `store`, `directory` and `sockets` may be wrapped by a test."""

    def __init__(
        self,
        endpoint: str,
        gateway: Gateway,
        *,
        wrap: Callable[[Any], Any] = lambda adapter: adapter,
        allowed_origins: tuple[str, ...] = (),
    ) -> None:
        self.gateway, self.ids = gateway, SystemIds()
        shared = _shared(endpoint)
        self.table, self.clock, self.requests = shared.table, shared.clock, shared.requests
        self.requests.clear()
        self.store: Store = wrap(TableStore(self.table))
        self.directory: Directory = wrap(TableDirectory(self.table))
        self.sockets: Sockets = wrap(ManagedSockets(shared.clients, gateway.endpoint))
        self.credentials = Credentials(directory=self.directory, clock=self.clock)
        self.tickets = Tickets(
            directory=self.directory,
            clock=self.clock,
            ids=self.ids,
            credentials=self.credentials,
            socket_url=SOCKET_URL,
            allowed_origins=allowed_origins,
        )
        self.subscribe = Subscribe(
            store=self.store,
            directory=self.directory,
            sockets=self.sockets,
            clock=self.clock,
            credentials=self.credentials,
        )
        self.fan_out = FanOut(
            store=self.store,
            directory=self.directory,
            sockets=self.sockets,
            clock=self.clock,
            credentials=self.credentials,
            page_of=keys.page_at,
            log_of=keys.log_at,
            head_of=keys.head_at,
        )
        self.provision = Provision(directory=self.directory, clock=self.clock, ids=self.ids, stage="test")

    # -- who comes in

    def key(self, org: str | None = None) -> KeyText:
        """A valid key, of a new org if none is named."""
        key = make_key(self.ids, "test", org or f"org_{self.ids.token()}")
        self.directory.put_key(key_row(key, self.clock.now()))
        return key

    def revoke(self, key: KeyText) -> None:
        """Mark a key as revoked in its row: the door for that is not there yet."""
        row = keys.api_key(key.sha256)
        self.table.client.update_item(
            TableName=self.table.name,
            Key={"pk": {"S": row.pk}, "sk": {"S": row.sk}},
            UpdateExpression="SET revoked_at = :now",
            ExpressionAttributeValues={":now": {"N": str(self.clock.now())}},
        )

    def ticket(self, key: KeyText) -> str:
        ticket: str = self.tickets.issue(self.credentials.verify(key.text))["ticket"]
        return ticket

    def connect(self, key: KeyText, connection: str | None = None) -> Reader:
        """A new connection, through the door."""
        connection = connection or new_id()
        assert self.open(self.ticket(key), connection) == 200
        return Reader(connection=connection)

    def open(self, ticket: str, connection: str) -> int:
        event = raw("websocket.connect")
        event["queryStringParameters"] = {"ticket": ticket}
        event["requestContext"]["connectionId"] = connection
        return socket.connect(event, None, house=lambda: self)["statusCode"]

    # -- what a client says and gets

    def say(self, reader: Reader, body: Any) -> None:
        """A frame of a client, through the door, and what it was sent until now."""
        event = raw("websocket.message-subscribe")
        event["requestContext"]["connectionId"] = reader.connection
        event["body"] = body if isinstance(body, str) else json.dumps(body)
        assert socket.message(event, None, house=lambda: self) == {"statusCode": 200}
        self.receive(reader)

    def follow(self, reader: Reader, ref: ThreadRef, after: Any = 0, *, logs: bool = False) -> None:
        """Subscribe, and say so to the reader, which checks what comes against it."""
        reader.cursor = after
        self.say(reader, {"action": "subscribe", "thread_id": ref.id, "after": after, "logs": logs})

    def receive(self, reader: Reader) -> None:
        """Take what has been posted since."""
        reader.take(self.gateway.received[reader.connection][len(reader.frames) :])

    def hang_up(self, reader: Reader) -> None:
        event = raw("websocket.disconnect")
        event["requestContext"]["connectionId"] = reader.connection
        assert socket.disconnect(event, None, house=lambda: self) == {"statusCode": 200}

    # -- what happens to threads

    def thread(self, key: KeyText, *facts: Fact) -> ThreadRef:
        """A new thread of the key's org, with these facts in its first page."""
        ref = ThreadRef(key.org, self.ids.token())
        self.append(ref, *(facts or (said("hello"),)))
        return ref

    def append(self, ref: ThreadRef, *facts: Fact) -> tuple[str, str]:
        """Commit facts as one page; answers its key."""
        before = self.store.open(ref).head
        now = self.clock.now()
        base = before or Head(rev=0, agent="scripted", created_at=now, active_at=now, since=now)
        done = self.store.commit(
            Commit(
                ref=ref,
                before=before,
                after=_told(base, facts),
                about=None if before else About(title=None, tags=(), arguments={}, user=None),
                facts=facts,
                now=now,
                write=self.ids.token(),
            )
        )
        assert isinstance(done, Committed)
        return keys.event_page(ref, done.head.seq)

    def log(self, ref: ThreadRef, entry: Mapping[str, Any]) -> tuple[str, str]:
        """Put a row into the log of a thread; answers its key."""
        now = self.clock.now()
        made = LogRow(
            key=entries.key(now, self.ids.token()), kind="app", at=now, message_id="msg_1", body=entries.app_body(entry)
        )
        assert self.store.log(ref, made, remember=None, now=now).stored
        return keys.log(ref, made.key)

    def delete(self, ref: ThreadRef) -> None:
        """Put the mark of a deletion on the head."""
        head = self.store.open(ref).head
        assert head
        after = replace(head, deleted_at=self.clock.now())
        assert isinstance(
            self.store.commit(Commit(ref=ref, before=head, after=after, now=self.clock.now(), write=self.ids.token())),
            Committed,
        )

    def push(self, *pages: tuple[str, str]) -> None:
        """Hand the stream's records of these pages to the door."""
        record = raw("stream.page")["Records"][0]
        stream.run({"Records": [_of_page(record, pk, sk) for pk, sk in pages]}, None, house=lambda: self)

    def tell(self, ref: ThreadRef, *facts: Fact) -> None:
        """Commit facts and push them."""
        self.push(self.append(ref, *facts))

    def rows(self, ref: ThreadRef) -> list[dict[str, Any]]:
        """What GET /events answers: all rows of a thread."""
        found: list[dict[str, Any]] = []
        while page := self.store.events(ref, after=len(found), limit=1_000, max_bytes=1 << 20):
            found += [json.loads(json.dumps(event_body(ref, event))) for event in page]
        return found

    def cursors(self, ref: ThreadRef) -> dict[str, int]:
        """Cursors of the subscriptions that are stored, by connection."""
        return {row.connection: row.cursor for row in self.directory.subscribers(ref)}


def key_row(key: KeyText, now: int) -> KeyRow:
    return KeyRow(
        sha256=key.sha256,
        key_id="key_one",
        org=key.org,
        name="of a test",
        level="member",
        prefix=key.prefix,
        user=None,
        created_at=now,
    )


def said(text: str) -> Fact:
    """A piece of an answer."""
    return Fact(type="message.delta", data={"message_id": "msg_x", "text": text}, at=1)


def talk(first: int, last: int) -> list[Fact]:
    """Pieces of an answer, numbered."""
    return [said(f"row {seq}") for seq in range(first, last + 1)]


def seen(*readers: Reader) -> list[dict[str, Any]]:
    """Rows that these have, in the order in which they came."""
    return [row for reader in readers for row in reader.rows.values()]


def turned(state: str) -> Fact:
    """A change of status."""
    reason = None if state == "running" else "stop_on_response"
    return Fact(type="thread.status", data={"state": state, "since": time_ns() // 1_000, "reason": reason}, at=1)


def _told(head: Head, facts: Sequence[Fact]) -> Head:
    for fact in facts:
        if fact.type == "thread.status":
            data = fact.data
            head = replace(head, state=State(data["state"]), since=data["since"], reason=data["reason"])
    return head


def _of_page(record: dict[str, Any], pk: str, sk: str) -> dict[str, Any]:
    change = record["dynamodb"] | {"Keys": {"pk": {"S": pk}, "sk": {"S": sk}}}
    return record | {"dynamodb": change}
