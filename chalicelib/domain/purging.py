"""What a deleted thread has left, as families of rows, in the order in which they have to go.

Pure: it is computed from the numbers on the tombstone, so that nothing is searched for. The registry goes first,
because children report only into a row that is there; what they reported before goes after it.
"""

from collections.abc import Iterator
from dataclasses import replace

from chalicelib.domain.model import Head

#: Families without blocks.
WHOLE = ("children", "inbox", "effects", "questions", "files", "values")
#: Microseconds after the deletion at which what was under way then has come to its end: a function lives 15 minutes.
SECOND_LOOK = 16 * 60 * 1_000_000


def blocks(head: Head, sizes: dict[str, int], call_shards: int, day: int, now: int) -> Iterator[tuple[str, int]]:
    """Family and block of everything that is kept in blocks, the highest of each family first."""
    yield from (("calls", shard) for shard in range(call_shards))
    yield from (("logs", at) for at in range(now // day, head.created_at // day - 1, -1))
    for family, count in _counts(head).items():
        yield from ((family, block) for block in range((max(count, 1) - 1) // sizes[family], -1, -1))


def stopped_at(head: Head, family: str, block: int, sizes: dict[str, int]) -> Head:
    """The tombstone when only so much is gone: the next pass begins there."""
    counts = _counts(head)
    if family not in counts:
        return head
    done = list(counts)[: list(counts).index(family)]
    left = counts | dict.fromkeys(done, 0) | {family: (block + 1) * sizes[family]}
    return replace(head, commands=left["commands"], messages=left["messages"], seq=left["events"])


def _counts(head: Head) -> dict[str, int]:
    """Rows of each family that is numbered, in the order in which they go."""
    return {"commands": head.commands, "messages": head.messages, "events": head.seq}


def looked_through(head: Head, now: int) -> Head:
    """The tombstone after everything was looked through: due once more if something may come late."""
    again = head.deleted_at + SECOND_LOOK
    return replace(head, due_at=again if now < again else 0)
