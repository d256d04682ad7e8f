"""One commit as one DynamoDB transaction, and what became of it.

What is sent is fixed before the first try: the same payload and the same client request token go out again until the
outcome is known, so that a commit can never happen twice and is never renumbered while it may still happen. The outcome
is looked for in this order: my page is there (it carries the commit's name) or the head carries it: Committed, whoever
may have moved the head since. A refused condition: Moved. Anything that passes: the same again.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from chalicelib.adapters import effects, keys, logs, rows, upward
from chalicelib.adapters.codec import Column, Item, Value
from chalicelib.adapters.keys import Key
from chalicelib.adapters.pages import page_row, paginate
from chalicelib.adapters.table import REFUSED, Table, code
from chalicelib.adapters.writes import NEW, Test, delete, number, put, update, weight
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import ITEM_BYTES, TRANSACTION_BYTES
from chalicelib.domain.model import Head, replace
from chalicelib.ports import Commit, Committed, Moved, Remembered

TRANSACTION_HARD = 100  # DynamoDB's own; callers plan with limits.TRANSACTION_ACTIONS and so leave room for more pages
TOKEN_CHARACTERS = 36  # a ClientRequestToken's limit (API reference)

HEAD_ACTION, PAGE_ACTION = 0, 1  # places in every transaction that has them

Action = Mapping[str, Any]


class Plan(NamedTuple):
    """A commit made ready: the transaction, the head that it writes, and where its actions stand in it."""

    commit: Commit
    head: Head
    actions: tuple[Action, ...]
    page: Key | None
    """Its first page: whose name is on it has written it."""
    first: int
    """Number of its first event."""

    token: str
    """Names write and payload to DynamoDB, which refuses a token that comes back with another payload."""


def plan(commit: Commit, table: str) -> Plan:
    """The transaction of a commit. Raises ValueError when it is larger than AWS takes: the caller has to cut it."""
    before = commit.before
    seq, chain = (before.seq, before.chain) if before else (0, b"")
    pages = paginate(commit.facts, seq, chain)
    head = replace(
        commit.after,
        rev=(before.rev if before else 0) + 1,
        seq=seq + len(commit.facts),
        chain=pages[-1].chain if pages else chain,
        write=commit.write,
    )
    page_keys = [keys.event_page(commit.ref, page.last) for page in pages]
    actions = [
        {"Update": _head(commit, head, table)},
        *(
            {"Put": put(table, key, page_row(page, commit.write), NEW)}
            for key, page in zip(page_keys, pages, strict=True)
        ),
        *_remember(commit, table),
        *({"Put": put(table, keys.call(commit.ref, call.id), rows.call_row(call), NEW)} for call in commit.new_calls),
        *({"Update": request} for request in _changes(commit, table)),
        *({"Delete": delete(table, keys.file(commit.ref, path))} for path in commit.gone_files),
        *({"Delete": delete(table, keys.report(commit.ref, key))} for key in commit.heard),
        *logs.actions(table, commit.ref, commit.logs),
        *(upward.actions(table, commit.ref.org, commit.upward) if commit.upward else ()),
    ]
    _measure(actions)
    named = sha256(repr((commit.write, actions)).encode()).hexdigest()
    return Plan(
        commit=commit,
        head=head,
        actions=tuple(actions),
        page=page_keys[0] if page_keys else None,
        first=seq + 1,
        token=named[:TOKEN_CHARACTERS],
    )


def send(table: Table, plan: Plan) -> Committed | Moved:
    """Send it until the outcome is known. Raises RetryLater when it stays unknown."""
    return table.patience.run(lambda: _attempt(table, plan))


def _attempt(table: Table, plan: Plan) -> Committed | Moved:
    try:
        table.client.transact_write_items(TransactItems=plan.actions, ClientRequestToken=plan.token)
    except ClientError as error:
        if code(error) != "TransactionCanceledException":
            raise
        return _outcome(table, plan, error)
    return Committed(head=plan.head)


def _outcome(table: Table, plan: Plan, error: ClientError) -> Committed | Moved:
    reasons: Sequence[Mapping[str, Any]] = error.response.get("CancellationReasons", [])
    refused = {index: reason.get("Item") for index, reason in enumerate(reasons) if reason.get("Code") == REFUSED}
    if not refused:
        raise error
    standing = _standing(table, plan, refused)
    if _is_mine(table, plan, standing, refused):
        return Committed(head=plan.head)
    return Moved(
        head=standing,
        remembered=_key_holder(plan, refused),
        taken=_taken(plan, refused),
        closed=_only_upward(plan, refused),
    )


def _only_upward(plan: Plan, refused: Mapping[int, Item | None]) -> bool:
    """True if nothing but the parent's rows refused."""
    upward = plan.commit.upward
    if upward is None:
        return False
    parent = ThreadRef(plan.commit.ref.org, upward.parent)
    theirs = (keys.children(parent), keys.inbox(parent))
    return all(_key(plan.actions[index]).pk in theirs for index in refused)


def _standing(table: Table, plan: Plan, refused: Mapping[int, Item | None]) -> Head | None:
    """The head as it stands: the one that refused, else one read now (a transaction need not name every refusal)."""
    key = keys.head(plan.commit.ref)
    item = refused.get(HEAD_ACTION) or table.get([key]).get(key)
    return rows.head_of(item) if item else None


def _is_mine(table: Table, plan: Plan, standing: Head | None, refused: Mapping[int, Item | None]) -> bool:
    """True if this commit has happened before: its name is on the head, or on the page at its place; without a page, if
    one of its rows of the log is there, whose names are used once.
    """
    if standing is None:
        return False
    if standing.write == plan.commit.write:
        return True
    if plan.page is None and plan.commit.logs and standing.rev >= plan.head.rev:
        return logs.is_there(table, plan.commit.ref, plan.commit.logs[0])
    if plan.page is None or standing.seq < plan.first:
        return False
    page = refused.get(PAGE_ACTION) or table.get([plan.page]).get(plan.page)
    return page is not None and page["write"] == {"S": plan.commit.write}


def _key_holder(plan: Plan, refused: Mapping[int, Item | None]) -> Remembered | None:
    row = plan.commit.remember
    wanted = keys.idempotency(plan.commit.ref.org, row.key) if row else None
    held = [item for index, item in refused.items() if item and _key(plan.actions[index]) == wanted]
    return rows.remembered_of(held[0]) if held else None


def _taken(plan: Plan, refused: Mapping[int, Item | None]) -> frozenset[str]:
    wanted = {keys.call(plan.commit.ref, call.id): call.id for call in plan.commit.new_calls}
    found = (_key(plan.actions[index]) for index in refused)
    return frozenset(wanted[key] for key in found if key in wanted)


def _key(action: Action) -> Key:
    (request,) = action.values()
    where = request.get("Key") or request["Item"]
    return Key(where["pk"]["S"], where["sk"]["S"])


def _head(commit: Commit, head: Head, table: str) -> dict[str, Any]:
    key = keys.head(commit.ref)
    after = rows.head_row(commit.ref, head)
    if commit.before is None:
        return update(table, key, NEW, put=after)
    before = rows.head_row(commit.ref, commit.before)
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    return update(
        table,
        key,
        Test("rev", "=", number(commit.before.rev)),
        put=changed,
        remove=[n for n in before if n not in after],
    )


def _remember(commit: Commit, table: str) -> Iterator[Action]:
    if commit.remember:
        yield {"Put": remember(table, commit.ref.org, commit.remember, commit.now)}


def remember(table: str, org: str, row: Remembered, now: int) -> dict[str, Any]:
    """Keep an idempotency key, unless one that has not expired is there. An expired row is no row (TTL is slow)."""
    expired = Test("until", "<=", number(now))
    return put(table, keys.idempotency(org, row.key), rows.remembered_row(row), NEW, expired)


def _changes(commit: Commit, table: str) -> Iterator[dict[str, Any]]:
    """New and changed rows below the head, whose condition protects them."""
    ref = commit.ref
    if commit.about:
        yield _change(table, keys.about(ref), rows.ABOUT, rows.about_row(commit.about))
    for command in commit.commands:
        yield _change(table, keys.command(ref, command.number), rows.COMMAND, rows.command_row(command))
    for message in commit.messages:
        yield _change(table, keys.message(ref, message.place), rows.MESSAGE, rows.message_row(message))
    for call in commit.calls:
        yield _change(table, keys.call(ref, call.id), rows.CALL, rows.call_row(call))
    for child in commit.children:
        yield _change(table, keys.child(ref, child.reference), rows.CHILD, rows.child_row(child))
    for inquiry in commit.inquiries:
        yield _change(table, keys.inquiry(ref, inquiry.id), rows.INQUIRY, rows.inquiry_row(inquiry))
    for value in commit.values:
        yield _change(table, keys.value(ref, value.name), rows.VALUE, rows.value_row(value))
    for effect in commit.effects:
        yield effects.change(table, ref, effect)
    for file in commit.files:
        yield _change(table, keys.file(ref, file.path), rows.FILE, rows.file_row(file))


def _change(table: str, key: Key, columns: tuple[Column, ...], row: dict[str, Value]) -> dict[str, Any]:
    return update(table, key, put=row, remove=rows.absent(columns, row))


def _measure(actions: Sequence[Action]) -> None:
    sizes = [weight(request) for action in actions for request in action.values()]
    if len(actions) > TRANSACTION_HARD:
        raise ValueError(f"{len(actions)} actions do not fit into one transaction")
    if sum(sizes) > TRANSACTION_BYTES:
        raise ValueError(f"{sum(sizes)} bytes do not fit into one transaction")
    if max(sizes) > ITEM_BYTES:
        raise ValueError(f"{max(sizes)} bytes do not fit into one row")
    if len({_key(action) for action in actions}) < len(actions):
        raise ValueError("a commit names a row twice")
