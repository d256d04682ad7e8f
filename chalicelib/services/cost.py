"""What a thread has cost: model calls by model, and what its application says that it spent.

Nothing is added up here but a few lines: the totals stand in rows, written with the facts that they count
(`domain.costs`, and the sum beside the head that each log row with a cost raises). A reading costs two reads, whatever
the length of the thread. It is of one moment: the head names the run whose row holds the balance, and has what the run
in flight has used since.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any

from chalicelib.domain import costs
from chalicelib.domain.commands import Principal
from chalicelib.domain.entries import PICO
from chalicelib.domain.errors import NotFound
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import ChildKind, Head, ModelSpent
from chalicelib.engine.registry import registry
from chalicelib.ports import Opened, Store
from chalicelib.services.appending import known

MICRO = 10**6
#: Threads below one that a reading counts: each costs two reads. Of a larger tree the first ones are told, and that
#: there are more.
TREE_THREADS = 500


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Costs of threads."""

    store: Store

    def thread_cost(self, p: Principal, thread_id: str) -> dict[str, Any]:
        """Totals and lines of models over the tree, and a row for each thread of it; of a deleted thread what its
        tombstone keeps.
        """
        ref = known(p.org, thread_id)
        opened = self.store.open(ref, spent=True)
        if opened.head is not None and opened.head.deleted_at:
            return {"total_cost": float(Decimal(opened.head.total_cost) / PICO), "deleted_at": opened.head.deleted_at}
        return self._told(self._tree(ref, opened))

    def of_tree(self, ref: ThreadRef) -> float:
        """All that is known of the cost of a thread and those below it, in USD. Raises NotFound."""
        total: float = self._told(self._tree(ref, self.store.open(ref, spent=True)))["total_cost"]
        return total

    def _tree(self, ref: ThreadRef, opened: Opened) -> "list[_Part]":
        own = self._part(ref, opened)
        if own is None:
            raise NotFound
        return [own, *islice(self._below(ref, own), TREE_THREADS)]

    def _told(self, parts: "list[_Part]") -> dict[str, Any]:
        lines = costs.together([line for part in parts for line in part.lines])
        app_cost = sum(part.app_cost for part in parts)
        return {
            **_totals(lines, app_cost),
            **({"truncated": True} if len(parts) > TREE_THREADS else {}),
            "models": [_line(line) for line in lines],
            "threads": [{"thread_id": part.ref.id, **_totals(part.lines, part.app_cost)} for part in parts],
        }

    def _part(self, ref: ThreadRef, opened: Opened) -> "_Part | None":
        """What one thread has cost by itself; None for a child that was never made, or is gone."""
        if opened.head is None or opened.head.deleted_at:
            return None
        lines = spent_on_models(self.store, ref, opened.head)
        return _Part(ref=ref, lines=lines, app_cost=opened.app_cost, has_children=opened.head.children > 0)

    def _below(self, ref: ThreadRef, part: "_Part") -> Iterator["_Part"]:
        """The threads below one, each before its own children."""
        if not part.has_children:
            return
        for child in registry(self.store, ref):
            below = ThreadRef(ref.org, child.token)
            if child.kind is not ChildKind.THREAD:
                continue
            found = self._part(below, self.store.open(below, spent=True))
            if found is not None:
                yield found
                yield from self._below(below, found)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One thread of the tree."""

    ref: ThreadRef
    lines: tuple[ModelSpent, ...]
    app_cost: int
    has_children: bool


def spent_on_models(store: Store, ref: ThreadRef, head: Head) -> tuple[ModelSpent, ...]:
    """A line for each model that the thread has called, up to this head."""
    wanted = [number for number in (head.balance_at, head.run) if number]
    rows = store.open(ref, head=False, commands=wanted).commands if wanted else {}
    balance = rows[head.balance_at].balance if head.balance_at else ()
    return costs.so_far(balance, head, rows[head.run].model if head.run else None)


def total_usd(lines: Iterable[ModelSpent], app_cost: int) -> float:
    """All that is known of the cost, in USD."""
    return float(sum((_usd(line) for line in lines), Decimal(app_cost) / PICO))


def _totals(lines: tuple[ModelSpent, ...], app_cost: int) -> dict[str, Any]:
    return {
        "total_cost": total_usd(lines, app_cost),
        "app_cost": float(Decimal(app_cost) / PICO),
        "request_count": sum(line.requests for line in lines),
    }


def _line(line: ModelSpent) -> dict[str, Any]:
    """A model's line. Of a model with calls of unknown price the tokens are right and the cost is not known."""
    return {
        "model": line.model,
        "requests": line.requests,
        "input_tokens": line.input,
        "output_tokens": line.output,
        "cache_read_tokens": line.cache_read,
        "cost_usd": None if line.unpriced else float(_usd(line)),
        **({"unpriced": True} if line.unpriced else {}),
    }


def _usd(line: ModelSpent) -> Decimal:
    return Decimal(line.cost_micro_usd) / MICRO
