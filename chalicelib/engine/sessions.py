"""Child sessions: the tools by which a run places further runs on its own thread, looks at them, and waits for them.

All of them are played by the turn itself. Placing is part of the write that starts the call, so that a session and what
tells of it exist together; a gather of sessions that have not ended leaves the run parked until they have.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chalicelib.domain import sessions, values, wire
from chalicelib.domain.limits import KB
from chalicelib.domain.model import Call, Child, ChildKind, Command, Head, Outcome
from chalicelib.domain.queueing import Draft, is_full
from chalicelib.engine.attempt import Attempt
from chalicelib.engine.registry import registry

PLACE, LIST, EVENTS, GATHER = (
    "child_session_create",
    "child_session_list",
    "child_session_events",
    "child_session_gather",
)
TOOLS = frozenset({PLACE, LIST, EVENTS, GATHER})
#: Spec section 10.
PROMPT_CHARACTERS, TITLE_CHARACTERS, LISTED, SHOWN, GATHERED, RESULT_CHARACTERS = 4_000, 160, 20, 50, 20, 4_000
KEY_CHARACTERS = 255
#: Events that one look reads, and what it answers of them at most.
EVENTS_A_LOOK, LOOK_BYTES = 256, 48 * KB

_TEXT = {"type": "string", "minLength": 1}
SCHEMAS: Mapping[str, tuple[str, dict[str, Any], list[str]]] = {
    PLACE: (
        "Start a session that works on a task of its own when you are done, or while you wait for it.",
        {
            "idempotency_key": {**_TEXT, "maxLength": KEY_CHARACTERS},
            "prompt": {**_TEXT, "maxLength": PROMPT_CHARACTERS},
            "title": {"type": "string", "maxLength": TITLE_CHARACTERS},
        },
        ["idempotency_key", "prompt"],
    ),
    LIST: ("The newest sessions.", {"limit": {"type": "integer", "minimum": 1, "maximum": LISTED}}, []),
    EVENTS: (
        "What has happened in a session.",
        {
            "reference_id": _TEXT,
            "cursor": {"type": "integer", "minimum": 0},
            "limit": {"type": "integer", "minimum": 1, "maximum": SHOWN},
        },
        ["reference_id"],
    ),
    GATHER: (
        "Wait until sessions that you have started have ended, and read what they came to.",
        {"ids": {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": GATHERED}},
        ["ids"],
    ),
}


def plan(attempt: Attempt, call: Call, position: int, now: int, made: tuple[Child, ...]) -> Child | str | None:
    """The session that a call places, why it may not, or None: there is one of that key already. `made`: what the same
    write makes before it.
    """
    if is_full(attempt.journal.head):
        return "The queue of this thread is full."
    key, run = call.arguments["idempotency_key"], attempt.journal.run
    if any(child.key == key for child in made) or _of_key(attempt, key) is not None:
        return None
    return Child(
        reference=f"ses-{run}-{call.step}-{position}",
        kind=ChildKind.SESSION,
        call_id=call.id,
        agent=attempt.journal.head.agent,
        name=call.arguments.get("title") or key,
        title=call.arguments.get("title"),
        status="queued",
        key=key,
        created_at=now,
    )


def place(attempt: Attempt, head: Head, child: Child, prompt: str, now: int) -> Draft:
    """The session on the head on which it is written."""
    return sessions.place(attempt.ref, head, child, prompt, nonce=child.reference, now=now)


def perform(attempt: Attempt, call: Call) -> Call:
    """Play a call that has started; one that gathers waits if it must."""
    if call.name == GATHER:
        return gathered(attempt, call) or replace(call, waits=sessions.GATHER)
    outcome, result = {PLACE: _placed, LIST: _list, EVENTS: _events}[call.name](attempt, call)
    return replace(call, outcome=outcome, result=result, ended_at=attempt.clock.now())


def gathered(attempt: Attempt, call: Call) -> Call | None:
    """The call with what its sessions came to; None while one of them has not ended."""
    wanted = _wanted(attempt, call)
    now = attempt.clock.now()
    if isinstance(wanted, str):
        return replace(call, waits="", outcome=Outcome.ERROR, result=wanted, ended_at=now)
    rows = attempt.store.open(attempt.ref, head=False, commands=[child.run for child in wanted]).commands
    if not all(row.status.ended for row in rows.values()):
        return None
    told = [_told(child, rows[child.run]) for child in wanted]
    return replace(call, waits="", outcome=Outcome.OK, result={"sessions": told}, ended_at=now)


def runs_of(attempt: Attempt, calls: list[Call]) -> tuple[tuple[str, ...], list[int]]:
    """References and runs of the sessions that these calls gather, each once."""
    wanted = [child for call in calls for child in _wanted(attempt, call) if isinstance(child, Child)]
    named = {child.reference: child.run for child in wanted}
    return tuple(named), list(named.values())


def _wanted(attempt: Attempt, call: Call) -> list[Child] | str:
    """The sessions that a call names, if this run has made them."""
    ids = list(dict.fromkeys(call.arguments["ids"]))
    mine = {child.reference: child for child in _mine(attempt)}
    strange = [name for name in ids if name not in mine]
    if strange:
        return f"This run has made no session {strange[0]!r}."
    return [mine[name] for name in ids]


def _mine(attempt: Attempt) -> list[Child]:
    """Sessions that the run in flight has made."""
    prefix = f"ses-{attempt.journal.run}-"
    return [row for row in registry(attempt.store, attempt.ref) if row.reference.startswith(prefix)]


def _of_key(attempt: Attempt, key: str) -> Child | None:
    return next((child for child in _mine(attempt) if child.key == key), None)


def _placed(attempt: Attempt, call: Call) -> tuple[Outcome, Any]:
    child = _of_key(attempt, call.arguments["idempotency_key"])
    assert child is not None, "a session is placed with the start of its call"
    return Outcome.OK, {
        "reference_id": child.reference,
        "run_id": attempt.ref.run(child.run),
        "status": child.status,
    }


def _list(attempt: Attempt, call: Call) -> tuple[Outcome, Any]:
    rows = [row for row in registry(attempt.store, attempt.ref) if row.kind is ChildKind.SESSION]
    newest = rows[::-1][: call.arguments.get("limit", LISTED)]
    shown = [
        {
            "reference_id": row.reference,
            "run_id": attempt.ref.run(row.run),
            "title": row.title,
            "status": row.status,
        }
        for row in newest
    ]
    return Outcome.OK, {"sessions": shown}


def _events(attempt: Attempt, call: Call) -> tuple[Outcome, Any]:
    """Events of a session's run behind a cursor. A look reads a bounded part of the log, and may find none there."""
    reference = call.arguments["reference_id"]
    rows = [row for row in registry(attempt.store, attempt.ref) if row.reference == reference]
    if not rows or rows[0].kind is not ChildKind.SESSION:
        return Outcome.ERROR, f"This thread has no session {reference!r}."
    cursor, limit = call.arguments.get("cursor", 0), call.arguments.get("limit", SHOWN)
    shown: list[dict[str, Any]] = []
    used = 0
    for event in attempt.store.events(attempt.ref, after=cursor, limit=EVENTS_A_LOOK, max_bytes=LOOK_BYTES * 4):
        if event.run == rows[0].run:
            body = wire.event_body(attempt.ref, event)
            used += values.size(body)
            if shown and (used > LOOK_BYTES or len(shown) == limit):
                break
            shown.append(body)
        cursor = event.seq
    return Outcome.OK, {"events": shown, "cursor": cursor}


def _told(child: Child, row: Command) -> dict[str, Any]:
    """What a session came to."""
    body = {"reference_id": child.reference, "status": row.status.value, "outcome": row.status.value}
    if child.result is not None:
        text = child.result if isinstance(child.result, str) else values.dumps(child.result)
        body["result"] = text[:RESULT_CHARACTERS]
    counts = {"steps": row.steps, **wire.usage_body(row.usage)}
    return {**body, "counts": counts}
