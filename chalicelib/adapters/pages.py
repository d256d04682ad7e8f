"""Event pages: the facts of one commit as few immutable rows, and back.

A page is one JSON text, deflated with a preset dictionary. Thread, run, attempt and time are said once a page where
they are equal. A page never crosses the border of a block, and a commit that is too large for one page gets several.
Each page continues the thread's hash chain: sha256(previous hash, number of the first event, bytes of the JSON text).
Who has all pages can check that none was changed, left out or put in.

    body: [at, run, attempt, [[type, data], [type, data, later], [type, data, later, run, attempt], ...]]

`later` is the distance to `at` in microseconds; what is left out of a row equals the page's own.
"""

import json
import zlib
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from chalicelib.adapters import dictionary, keys
from chalicelib.adapters.codec import DEFLATE_LEVEL, RAW_WINDOW, Item, Value, to_json
from chalicelib.adapters.rows import VERSION
from chalicelib.domain.events import Event, Fact

PAGE_BYTES = 128 * 1024  # of JSON text; a larger page would make readers inflate much for one event
PLAIN, WITH_DICTIONARY_ONE = 0, 2  # first byte of a body


class Page(NamedTuple):
    """Events `first` to `last` and the hash chain after them."""

    first: int
    last: int
    at: int
    text: bytes
    chain: bytes


def paginate(facts: Sequence[Fact], seq: int, chain: bytes) -> list[Page]:
    """Pages for facts that follow event `seq`, whose hash is `chain`."""
    pages: list[Page] = []
    first = seq + 1
    for group in _groups(facts, first):
        page = _page(group, first, pages[-1].chain if pages else chain)
        pages.append(page)
        first = page.last + 1
    return pages


def page_row(page: Page, write: str) -> dict[str, Value]:
    """The attributes of a page. `write` names the commit that wrote it."""
    return VERSION | {
        "first": {"N": str(page.first)},
        "last": {"N": str(page.last)},
        "at": {"N": str(page.at)},
        "write": {"S": write},
        "chain": {"B": page.chain},
        "body": {"B": _deflated(page.text)},
    }


def page_of(item: Item) -> Page:
    """The page in an item. Raises ValueError for a body of a newer release."""
    return Page(
        first=int(item["first"]["N"]),
        last=int(item["last"]["N"]),
        at=int(item["at"]["N"]),
        text=_inflated(bytes(item["body"]["B"])),
        chain=bytes(item["chain"]["B"]),
    )


def events(page: Page) -> Iterator[Event]:
    """The events of a page, in order."""
    at, run, attempt, rows = json.loads(page.text)
    for seq, row in enumerate(rows, page.first):
        kind, data, later, *own = row if len(row) > 2 else (*row, 0)
        own_run, own_attempt = own or (run, attempt)
        yield Event(seq=seq, type=kind, data=data, at=at + later, run=own_run, attempt=own_attempt)


def chained(previous: bytes, first: int, text: bytes) -> bytes:
    """The hash after a page."""
    return sha256(previous + first.to_bytes(8, "big") + text).digest()


def _groups(facts: Sequence[Fact], first: int) -> Iterator[list[Fact]]:
    group: list[Fact] = []
    weight = 0
    for seq, fact in enumerate(facts, first):
        more = len(to_json(fact.data).encode())
        at_border = seq > first and keys.event_block(seq) != keys.event_block(seq - 1)
        if group and (at_border or weight + more > PAGE_BYTES):
            yield group
            group, weight = [], 0
        group.append(fact)
        weight += more
    if group:
        yield group


def _page(group: list[Fact], first: int, chain: bytes) -> Page:
    base = group[0]
    rows = [_row(fact, base) for fact in group]
    text = to_json([base.at, base.run, base.attempt, rows]).encode()
    return Page(first=first, last=first + len(group) - 1, at=base.at, text=text, chain=chained(chain, first, text))


def _row(fact: Fact, base: Fact) -> list[Any]:
    row: list[Any] = [fact.type, fact.data]
    if (fact.run, fact.attempt) != (base.run, base.attempt):
        return [*row, fact.at - base.at, fact.run, fact.attempt]
    return row if fact.at == base.at else [*row, fact.at - base.at]


def _deflated(text: bytes) -> bytes:
    packer = zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, RAW_WINDOW, zdict=dictionary.ONE)
    small = packer.compress(text) + packer.flush()
    if len(small) < len(text):
        return bytes([WITH_DICTIONARY_ONE]) + small
    return bytes([PLAIN]) + text


def _inflated(body: bytes) -> bytes:
    if body[0] == PLAIN:
        return body[1:]
    if body[0] != WITH_DICTIONARY_ONE:
        raise ValueError(f"unknown version {body[0]} of an event page")
    unpacker = zlib.decompressobj(RAW_WINDOW, zdict=dictionary.ONE)
    return unpacker.decompress(body[1:]) + unpacker.flush()
