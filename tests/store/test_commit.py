"""A commit happens once, wholly, and only on the head that it was made for."""

from concurrent.futures import ThreadPoolExecutor

from chalicelib.adapters import keys
from chalicelib.adapters.store import TableStore
from chalicelib.adapters.table import Table
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import About, Call
from chalicelib.ports import Committed
from tests.store.kit import (
    NOW,
    change,
    changed,
    command,
    create,
    done,
    fact,
    moved,
    new_head,
    remembered,
    user_message,
)

CALL = Call(id="call_1", run=1, step=1, name="search", arguments={"q": 1})


def test_a_new_thread_is_there_with_everything_that_its_commit_carried(store: TableStore, ref: ThreadRef) -> None:
    about = About(title="Title", tags=("a", "b"), arguments={"n": 1}, user="usr_1")
    row = remembered(f"key-{ref.token}")
    commit = change(
        ref,
        None,
        new_head(commands=1, messages=1),
        facts=(fact("one"), fact("two")),
        about=about,
        commands=(command(1),),
        messages=(user_message(1),),
        new_calls=(CALL,),
        remember=row,
    )

    head = done(store.commit(commit))

    assert (head.rev, head.seq, head.write) == (1, 2, commit.write)
    opened = store.open(ref, about=True, commands=[1, 2], messages=[1, 2], calls=["call_1", "x"], key=row.key, now=NOW)
    assert opened.head == head
    assert opened.about == about
    assert opened.commands == {1: command(1)}
    assert opened.messages == {1: user_message(1)}
    assert opened.calls == {"call_1": CALL}
    assert opened.remembered == row
    assert [event.data["text"] for event in store.events(ref, after=0, limit=10, max_bytes=10_000)] == ["one", "two"]


def test_of_many_writers_on_one_head_one_wins(store: TableStore, ref: ThreadRef) -> None:
    head = create(store, ref)
    commits = [change(ref, head, facts=(fact(str(number)),)) for number in range(12)]

    with ThreadPoolExecutor(12) as pool:
        outcomes = list(pool.map(store.commit, commits))

    winners = [commit for commit, outcome in zip(commits, outcomes, strict=True) if isinstance(outcome, Committed)]
    assert len(winners) == 1
    assert [moved(other).head for other in outcomes if not isinstance(other, Committed)] == [store.open(ref).head] * 11
    assert [event.data for event in store.events(ref, after=1, limit=9, max_bytes=9_999)] == [winners[0].facts[0].data]


def test_a_refused_commit_leaves_nothing(store: TableStore, ref: ThreadRef) -> None:
    old = create(store, ref)
    new = done(store.commit(change(ref, old, facts=(fact(),))))

    outcome = store.commit(change(ref, old, facts=(fact("lost"),), commands=(command(1),), messages=(user_message(1),)))

    assert moved(outcome).head == new
    opened = store.open(ref, commands=[1], messages=[1])
    assert (opened.head, opened.commands, opened.messages) == (new, {}, {})


def test_fields_that_return_to_their_default_leave_the_row(store: TableStore, table: Table, ref: ThreadRef) -> None:
    head = create(
        store, ref, new_head(reason="stop_tool", due_at=NOW, lease_until=NOW, lease_nonce="n", open_calls=True)
    )

    cleared = changed(head, reason=None, due_at=0, lease_until=0, lease_nonce="", open_calls=False)
    head = done(store.commit(change(ref, head, cleared, facts=(fact(),))))

    row = table.get([keys.head(ref)])[keys.head(ref)]
    assert not {"re", "due_at", "due_pk", "lu", "ln", "oc"} & set(row)
    assert store.open(ref).head == head


def test_attributes_of_a_newer_release_survive_a_change(store: TableStore, table: Table, ref: ThreadRef) -> None:
    commit = change(ref, None, facts=(fact(),), commands=(command(1),), messages=(user_message(1),), new_calls=(CALL,))
    head = done(store.commit(commit))
    rows = [keys.head(ref), keys.command(ref, 1), keys.message(ref, 1), keys.call(ref, "call_1")]
    for key in rows:
        table.client.update_item(
            TableName=table.name,
            Key={"pk": {"S": key.pk}, "sk": {"S": key.sk}},
            UpdateExpression="SET newer = :value",
            ExpressionAttributeValues={":value": {"S": "kept"}},
        )

    store.commit(change(ref, head, commands=(command(1),), messages=(user_message(1, "new"),), calls=(CALL,)))

    assert {table.get([key])[key]["newer"]["S"] for key in rows} == {"kept"}
    assert store.open(ref, messages=[1]).messages[1] == user_message(1, "new")
