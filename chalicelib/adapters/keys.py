"""The key layout of the table: read this page to know where a row is.

Every key is computed from what the caller knows (org, thread, number): no row is ever searched for. Org and thread are
part of every `pk`, percent-encoded, so that no two orgs and no two threads can share a key whatever their names contain
(I9). Long lists are cut into blocks of a fixed size: a read costs its page, and no partition grows with the thread.

| pk                                        | sk                       | row                                       |
|-------------------------------------------|--------------------------|-------------------------------------------|
| thread#<org>#<token>                      | head, about              | the head, and what the thread is about    |
| thread#<org>#<token>                      | spent                    | sum of the costs that applications logged |
| thread#<org>#<token>#commands#<block>     | number                   | command and its run, 100 a block          |
| thread#<org>#<token>#events#<block>       | LAST number of the page  | event page, 256 numbers a block           |
| thread#<org>#<token>#messages#<block>     | place                    | message, 64 a block                       |
| thread#<org>#<token>#calls#<shard>        | call id                  | tool call, 16 shards by its hash          |
| thread#<org>#<token>#files                | place of the path        | file, or mark of an empty folder          |
| thread#<org>#<token>#logs#<day>           | instant and name         | row of the log, a block a day             |
| thread#<org>#<token>#values               | name                     | durable value                             |
| thread#<org>#<token>#children             | numbers of the reference | row of the registry                       |
| thread#<org>#<token>#inbox                | key of the report        | report of a child, until it is heard      |
| thread#<org>#<token>#questions            | numbers of its id        | question or approval                      |
| thread#<org>#<token>#effects              | name                     | effect                                    |
| thread#<org>#<token>#subscribers          | connection               | subscription of a websocket               |
| idempotency#<org>#<shard>                 | hash of the key          | what an Idempotency-Key stands for        |
| key#<hash>                                | key                      | API key; the org is a value               |
| ticket#<hash>                             | ticket                   | websocket ticket; the org is a value      |
| connection#<id>                           | connection               | open websocket; the org is a value        |
| connection#<id>                           | thread#<org>#<token>     | one of its subscriptions                  |

Numbers inside keys are padded with zeros to 15 digits: text order is number order. An event page is found by its last
number, so that `sk > after` is also right when a cursor lies inside a page. A file's sort key is its path as it is,
with U+0001 for `/` (`domain.paths.place`): what is inside a folder is one range, and a path of 1,024 bytes fits.

Two sparse indexes, keys only. `by_activity` is over heads (`act_pk` = org, `act_sk` = last activity and token; absent
for children, and once the thread is deleted). `by_due` is over heads, effects and reports in inboxes (`due_pk` = one of
32 shards, `due_at`; absent while nothing is due).
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote, unquote

from chalicelib.domain.entries import instant
from chalicelib.domain.ids import ThreadRef, child_numbers, inquiry_numbers
from chalicelib.domain.paths import place
from chalicelib.ports import DUE_SHARDS

COMMANDS_IN_BLOCK = 100
EVENTS_IN_BLOCK = 256
MESSAGES_IN_BLOCK = 64
CALL_SHARDS = 16
IDEMPOTENCY_SHARDS = 256

SORT_KEY_BYTES = 1_000  # DynamoDB takes 1,024 (naming rules and quotas)
DIGITS = 15  # ids carry numbers of at most 15 digits (domain.ids)
HIGHEST = 10**DIGITS - 1
DAY = 86_400 * 1_000_000  # microseconds
INSTANT_DIGITS = 17  # microseconds until the year 5138

#: What `by_activity` and `by_due` and the table itself are keyed by, in the shape of CreateTable.
SCHEMA = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "S"},
        {"AttributeName": "act_pk", "AttributeType": "S"},
        {"AttributeName": "act_sk", "AttributeType": "S"},
        {"AttributeName": "due_pk", "AttributeType": "S"},
        {"AttributeName": "due_at", "AttributeType": "N"},
    ],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "by_activity",
            "KeySchema": [
                {"AttributeName": "act_pk", "KeyType": "HASH"},
                {"AttributeName": "act_sk", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        },
        {
            "IndexName": "by_due",
            "KeySchema": [
                {"AttributeName": "due_pk", "KeyType": "HASH"},
                {"AttributeName": "due_at", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        },
    ],
}


class Key(NamedTuple):
    """Where a row is."""

    pk: str
    sk: str


def join(*parts: str) -> str:
    """Parts as one text; different parts never give the same text."""
    return "#".join(quote(part, safe="", errors="surrogatepass") for part in parts)


def split(text: str) -> tuple[str, ...]:
    """The parts that `join` was given."""
    return tuple(unquote(part, errors="surrogatepass") for part in text.split("#"))


def padded(number: int) -> str:
    """A number as key text, in number order."""
    if not 0 <= number < 10**DIGITS:
        raise ValueError(f"{number} does not fit into a key")
    return f"{number:0{DIGITS}d}"


def digest(*parts: str) -> bytes:
    """SHA-256 over parts that cannot be confused with other parts."""
    return sha256(join(*parts).encode()).digest()


def head(ref: ThreadRef) -> Key:
    """The head of a thread."""
    return Key(join("thread", ref.org, ref.token), "head")


def about(ref: ThreadRef) -> Key:
    """What a thread is about."""
    return Key(join("thread", ref.org, ref.token), "about")


def spent(ref: ThreadRef) -> Key:
    """What applications have logged as cost in a thread."""
    return Key(join("thread", ref.org, ref.token), "spent")


def log_day(at: int) -> int:
    """The block of a row of the log, by its instant."""
    return at // DAY


def logs(ref: ThreadRef, day: int) -> str:
    """The partition of a day of a thread's log."""
    return join("thread", ref.org, ref.token, "logs", str(day))


def log(ref: ThreadRef, key: str) -> Key:
    """A row of a thread's log."""
    return Key(logs(ref, log_day(instant(key))), key)


def log_at(pk: str, sk: str) -> tuple[ThreadRef, str] | None:
    """Thread and key of the row of a log with that key; None for any other row."""
    parts = split(pk)
    if len(parts) != 5 or parts[0] != "thread" or parts[3] != "logs":
        return None
    return ThreadRef(parts[1], parts[2]), sk


def value(ref: ThreadRef, name: str) -> Key:
    """A durable value of a thread."""
    return Key(join("thread", ref.org, ref.token, "values"), join(name))


def children(ref: ThreadRef) -> str:
    """The partition of a thread's registry."""
    return join("thread", ref.org, ref.token, "children")


def child(ref: ThreadRef, reference: str) -> Key:
    """A row of a thread's registry: in the order in which children were made."""
    numbers = child_numbers(reference)
    if numbers is None:
        raise ValueError(f"{reference!r} is no reference of a child")
    return Key(children(ref), ".".join(padded(number) for number in numbers))


def inbox(ref: ThreadRef) -> str:
    """The partition of what children have told a thread."""
    return join("thread", ref.org, ref.token, "inbox")


def report(ref: ThreadRef, key: str) -> Key:
    """A report in a thread's inbox."""
    return Key(inbox(ref), join(key))


def inquiries(ref: ThreadRef) -> str:
    """The partition of what a thread has asked people."""
    return join("thread", ref.org, ref.token, "questions")


def inquiry(ref: ThreadRef, inquiry_id: str) -> Key:
    """A question or an approval of this thread, by its id."""
    numbers = inquiry_numbers(ref, inquiry_id[:3], inquiry_id)
    if numbers is None:
        raise ValueError(f"{inquiry_id!r} is no question and no approval of {ref.id}")
    return Key(inquiries(ref), ".".join(padded(number) for number in numbers))


def partition(ref: ThreadRef, family: str, block: int | None = None) -> str:
    """The partition of a family of rows below a thread, of one of its blocks if it has some."""
    return join("thread", ref.org, ref.token, family, *(() if block is None else (str(block),)))


def command_block(number: int) -> int:
    """The block of a command's number."""
    return (number - 1) // COMMANDS_IN_BLOCK


def commands(ref: ThreadRef, block: int) -> str:
    """The partition of a block of commands."""
    return join("thread", ref.org, ref.token, "commands", str(block))


def command(ref: ThreadRef, number: int) -> Key:
    """A command."""
    return Key(commands(ref, command_block(number)), padded(number))


def event_block(seq: int) -> int:
    """The block of an event's number."""
    return (seq - 1) // EVENTS_IN_BLOCK


def events(ref: ThreadRef, block: int) -> str:
    """The partition of a block of event pages."""
    return join("thread", ref.org, ref.token, "events", str(block))


def event_page(ref: ThreadRef, last: int) -> Key:
    """The event page that ends with number `last`."""
    return Key(events(ref, event_block(last)), padded(last))


def message_block(place: int) -> int:
    """The block of a message's place."""
    return (place - 1) // MESSAGES_IN_BLOCK


def messages(ref: ThreadRef, block: int) -> str:
    """The partition of a block of messages."""
    return join("thread", ref.org, ref.token, "messages", str(block))


def message(ref: ThreadRef, place: int) -> Key:
    """A placed message."""
    return Key(messages(ref, message_block(place)), padded(place))


def call(ref: ThreadRef, call_id: str) -> Key:
    """A tool call. Ids come from models: the hash spreads them whatever they look like, and stands in for one that no
    key can hold; `#` occurs in no encoded id, so the two cannot be confused.
    """
    hashed = digest(call_id)
    plain = join(call_id)
    pk = join("thread", ref.org, ref.token, "calls", str(hashed[0] % CALL_SHARDS))
    return Key(pk, plain if 0 < len(plain) <= SORT_KEY_BYTES else f"#{hashed.hex()}")


def files(ref: ThreadRef) -> str:
    """The partition of a thread's files."""
    return join("thread", ref.org, ref.token, "files")


def file(ref: ThreadRef, path: str) -> Key:
    """A file of a thread. Paths hold no controls, so the place is injective without an encoding."""
    return Key(files(ref), place(path))


def effects(ref: ThreadRef) -> str:
    """The partition of a thread's effects."""
    return join("thread", ref.org, ref.token, "effects")


def effect(ref: ThreadRef, name: str) -> Key:
    """An effect of a thread."""
    return Key(effects(ref), name)


def effect_at(pk: str, sk: str) -> str | None:
    """The name of the effect with that key; None for any other row."""
    parts = split(pk)
    return sk if len(parts) == 4 and parts[0] == "thread" and parts[3] == "effects" else None


def subscribers(ref: ThreadRef) -> str:
    """The partition of a thread's subscriptions."""
    return join("thread", ref.org, ref.token, "subscribers")


def subscriber(ref: ThreadRef, connection_id: str) -> Key:
    """A connection's subscription to a thread."""
    return Key(subscribers(ref), join(connection_id))


def idempotency(org: str, key: str) -> Key:
    """What an Idempotency-Key of an org stands for. Only its hash is kept."""
    hashed = digest(key)
    return Key(join("idempotency", org, str(hashed[0] % IDEMPOTENCY_SHARDS)), hashed.hex())


def api_key(sha256_hex: str) -> Key:
    """The API key of that hash."""
    return Key(join("key", sha256_hex), "key")


def ticket(sha256_hex: str) -> Key:
    """The websocket ticket of that hash."""
    return Key(join("ticket", sha256_hex), "ticket")


def connection(connection_id: str) -> Key:
    """An open websocket."""
    return Key(join("connection", connection_id), "connection")


def subscription(connection_id: str, ref: ThreadRef) -> Key:
    """The connection's own note that it listens to a thread."""
    return Key(join("connection", connection_id), join("thread", ref.org, ref.token))


def thread_of(text: str) -> ThreadRef | None:
    """The thread that a `pk`, or the `sk` of a subscription, belongs to; None for a row of no thread."""
    parts = split(text)
    return ThreadRef(parts[1], parts[2]) if parts[0] == "thread" and len(parts) >= 3 else None


def head_at(pk: str, sk: str) -> ThreadRef | None:
    """The thread whose head has that key; None for any other row."""
    return thread_of(pk) if sk == "head" else None


def page_at(pk: str, sk: str) -> tuple[ThreadRef, int] | None:
    """Thread and last number of the event page with that key; None for any other row."""
    parts = split(pk)
    if len(parts) != 5 or parts[0] != "thread" or parts[3] != "events":
        return None
    return ThreadRef(parts[1], parts[2]), int(sk)


def due_shard(ref: ThreadRef) -> int:
    """The shard of `by_due` in which a thread waits for its time."""
    return int.from_bytes(digest(ref.org, ref.token)[:4], "big") % DUE_SHARDS


def due_partition(shard: int) -> str:
    """The `due_pk` of a shard."""
    return f"due#{shard}"


def activity_partition(org: str) -> str:
    """The `act_pk` of an org."""
    return join("org", org)


def activity(ref: ThreadRef, active_at: int) -> str:
    """The `act_sk` of a thread: newest activity last, the token to tell equal instants apart."""
    return f"{active_at:0{INSTANT_DIGITS}d}#{join(ref.token)}"


def blocks(first: int, last: int, size: int, *, descending: bool = False) -> Iterator[int]:
    """Blocks that hold the numbers first..last, in the order asked for."""
    low, high = (first - 1) // size, (last - 1) // size
    return iter(range(high, low - 1, -1) if descending else range(low, high + 1))
