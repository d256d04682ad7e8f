"""Child sessions as pure decisions: runs that a run places on its own thread, and the run that waits for them.

A run that gathers sessions is parked: its part of the head goes into its own row, and the sessions play in its place,
one after another, in their own order. `Head.parked` names it; its row names the one that is parked below it. When the
last session that it waits for has ended, it is in flight again as if it had never left.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from chalicelib.domain import queueing
from chalicelib.domain.commands import Delivery
from chalicelib.domain.events import Fact
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Child, Command, Head, ModelSpent, RunStatus
from chalicelib.domain.queueing import AWAITING_CHILDREN, Draft

#: What of the head belongs to the run in flight and is kept while it is parked.
KEPT = (
    *("run_attempt", "run_started_at", "run_steps", "run_first", "run_calls", "open_calls"),
    *("side", "run_turns", "side_steps"),
)
#: What a call waits for that gathers sessions.
GATHER = "gather"


@dataclass(frozen=True, kw_only=True)
class Next:
    """The session that plays next. `first_queued`: the first of the queue once it has left."""

    number: int
    first_queued: int


def place(ref: ThreadRef, head: Head, child: Child, prompt: str, *, nonce: str, now: int) -> Draft:
    """A session that the run in flight asks for: a run of its own at the end of the queue."""
    session = replace(child, run=head.commands + 1)
    ask = queueing.Ask(
        content=({"type": "text", "text": prompt},),
        metadata={},
        delivery=Delivery.ENQUEUE,
        parent=head.run,
        nonce=nonce,
        session=session,
    )
    placed = queueing.accept(ref, head, ask, now)
    return replace(placed, after=replace(placed.after, active_at=head.active_at), children=(session,))


def park(head: Head, command: Command, references: tuple[str, ...], runs: Iterable[int], then: Next, now: int) -> Draft:
    """The run in flight waits for these sessions of its own, and the first of them goes."""
    row = replace(
        command,
        status=RunStatus.WAITING,
        reason=AWAITING_CHILDREN,
        attempts=head.run_attempt,
        steps=head.run_steps,
        usage=head.run_usage,
        started_at=head.run_started_at,
        parked={
            **{name: getattr(head, name) for name in KEPT},
            "spent": [asdict(replace(line, requests=0)) for line in head.run_spent],  # counted with the sessions'
            "under": head.parked,
            "runs": list(runs),
            "on": list(references),
        },
    )
    data = {"reason": AWAITING_CHILDREN, "on": list(references)}
    told = Fact(type="run.waiting", data=data, at=now, run=head.run, attempt=head.run_attempt)
    after = _goes(replace(head, parked=head.run), then, now)
    return Draft(after=after, facts=(told,), commands=(row,))


def go_on(head: Head, parked: Command, then: Next | None, now: int) -> Draft:
    """After a session has ended: the next one that the parked run waits for, or that run itself again. `head`: without
    a run in flight.
    """
    if then is not None:
        return Draft(after=_goes(head, then, now))
    assert parked.parked is not None, "a parked run keeps its part of the head"
    row = replace(parked, status=RunStatus.QUEUED, reason=None, parked=None)
    below = replace(head, parked=parked.parked["under"])
    again = replace(queueing.in_flight(below, parked.number, now), **_kept(parked))
    data = {"reason": AWAITING_CHILDREN, "on": parked.parked["on"]}
    told = Fact(type="run.resumed", data=data, at=now, run=parked.number)
    return Draft(after=again, facts=(told,), commands=(row,))


def as_in_flight(head: Head, parked: Command) -> Head:
    """The head as it would be with a parked run in flight: to close what it left open."""
    assert parked.parked is not None, "a parked run keeps its part of the head"
    return replace(head, run=parked.number, open_message=0, **_kept(parked))


def _kept(parked: Command) -> dict[str, Any]:
    """The part of the head that a parked run has kept."""
    row = parked.parked or {}
    spent = tuple(ModelSpent(**line) for line in row.get("spent", ()))
    return {**{name: row[name] for name in KEPT}, "run_usage": parked.usage, "run_spent": spent}


def _goes(head: Head, then: Next, now: int) -> Head:
    """A session leaves the queue and is in flight."""
    left = replace(head, queued=head.queued - 1, first_queued=then.first_queued)
    return queueing.in_flight(left, then.number, now)
