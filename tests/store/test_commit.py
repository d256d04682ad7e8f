"""A commit happens once, wholly, and only on the head that it was made for."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from chalicelib.adapters import keys
from chalicelib.adapters.store import TableStore
from chalicelib.adapters.table import Table
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import TRANSACTION_ACTIONS
from chalicelib.domain.model import About, Call, Outcome
from chalicelib.ports import Committed, Opened
from tests.store.faults import Counter
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
    thread,
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


def test_a_thread_is_made_once_even_without_events(store: TableStore, ref: ThreadRef) -> None:
    first = create(store, ref, facts=())

    outcome = store.commit(change(ref, None, new_head(agent="other")))

    assert moved(outcome).head == first
    assert store.open(ref).head == first


def test_a_command_loses_what_it_no_longer_has(store: TableStore, ref: ThreadRef) -> None:
    waiting = replace(command(1), content=({"type": "text", "text": "hello"},), metadata={"queued": True}, label="x")
    head = create(store, ref, commands=(waiting,))

    done(store.commit(change(ref, head, commands=(command(1),))))

    assert store.open(ref, commands=[1]).commands == {1: command(1)}


def test_fields_that_return_to_their_default_leave_the_row(store: TableStore, table: Table, ref: ThreadRef) -> None:
    head = create(store, ref, new_head(reason="stop_tool", due_at=NOW, lease_until=NOW, lease_nonce="n", open_calls=3))

    cleared = changed(head, reason=None, due_at=0, lease_until=0, lease_nonce="", open_calls=0)
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


def test_a_call_id_is_taken_once(store: TableStore, ref: ThreadRef) -> None:
    head = done(store.commit(change(ref, None, facts=(fact(),), new_calls=(CALL,))))
    again, other = replace(CALL, name="other"), replace(CALL, id="call_2")

    outcome = moved(store.commit(change(ref, head, facts=(fact(),), new_calls=(other, again))))

    assert (outcome.head, outcome.taken) == (head, frozenset({"call_1"}))
    assert store.open(ref, calls=["call_1", "call_2"]).calls == {"call_1": CALL}


@pytest.mark.parametrize("call_id", ["", "#", "a/b#c%d", "é" * 700, "x" * 5_000])
def test_a_call_id_may_look_like_anything(store: TableStore, ref: ThreadRef, call_id: str) -> None:
    call = replace(CALL, id=call_id)
    head = done(store.commit(change(ref, None, facts=(fact(),), new_calls=(call,))))

    assert store.open(ref, calls=[call_id]).calls == {call_id: call}
    assert moved(store.commit(change(ref, head, new_calls=(call,)))).taken == {call_id}


def test_a_call_gets_its_outcome_and_keeps_what_it_had(store: TableStore, ref: ThreadRef) -> None:
    head = done(store.commit(change(ref, None, facts=(fact(),), new_calls=(CALL,))))
    finished = replace(CALL, ended_at=NOW, outcome=Outcome.OK, result={"n": 1.0})

    done(store.commit(change(ref, head, facts=(fact(),), calls=(finished,))))

    assert store.open(ref, calls=["call_1"]).calls == {"call_1": finished}


def test_an_idempotency_key_is_held_by_its_first_commit(store: TableStore, ref: ThreadRef) -> None:
    first = remembered(f"key-{ref.token}", token=ref.token)
    create(store, ref, remember=first)
    other = thread(ref.org)

    outcome = moved(store.commit(change(other, None, facts=(fact(),), remember=replace(first, token=other.token))))

    assert (outcome.head, outcome.remembered) == (None, first)
    assert store.open(other).head is None


def test_of_many_commits_with_one_key_one_wins_and_the_others_are_told(store: TableStore) -> None:
    refs = [thread("org_keys") for _ in range(12)]
    key = f"key-{refs[0].token}"
    commits = [change(ref, None, facts=(fact(),), remember=remembered(key, token=ref.token)) for ref in refs]

    with ThreadPoolExecutor(12) as pool:
        outcomes = list(pool.map(store.commit, commits))

    winners = [commit for commit, outcome in zip(commits, outcomes, strict=True) if isinstance(outcome, Committed)]
    assert len(winners) == 1
    told = {moved(outcome).remembered for outcome in outcomes if not isinstance(outcome, Committed)}
    assert told == {winners[0].remember}


def test_an_org_does_not_see_the_keys_of_another(store: TableStore) -> None:
    one, two = thread("org_one"), thread("org_two")
    key = f"key-{one.token}"
    create(store, one, remember=remembered(key, token=one.token))

    assert store.open(two, key=key, now=NOW).remembered is None
    create(store, two, remember=remembered(key, token=two.token))


def test_an_expired_key_reads_as_absent_and_is_replaced(store: TableStore, ref: ThreadRef) -> None:
    old = remembered(f"key-{ref.token}", expires_at=NOW + 10)
    create(store, ref, remember=old)
    other, new = thread(ref.org), replace(old, fingerprint="0" * 64, expires_at=NOW + 99)

    assert store.open(ref, key=old.key, now=NOW + 9).remembered == old
    assert store.open(ref, key=old.key, now=NOW + 10).remembered is None
    refused = change(other, None, facts=(fact(),), remember=new, now=NOW + 9)
    assert moved(store.commit(refused)).remembered == old
    done(store.commit(replace(refused, now=NOW + 10)))
    assert store.open(ref, key=old.key, now=NOW + 10).remembered == new


def test_remembering_answers_the_row_that_stands(store: TableStore, ref: ThreadRef) -> None:
    first = remembered(f"key-{ref.token}", expires_at=NOW + 10)
    second = replace(first, fingerprint="0" * 64, expires_at=NOW + 99)

    assert store.remember(ref.org, first, NOW) == first
    assert store.remember(ref.org, second, NOW + 9) == first
    assert store.remember(ref.org, second, NOW + 10) == second


def test_a_key_is_kept_as_a_hash_only_in_its_place(store: TableStore, table: Table, ref: ThreadRef) -> None:
    row = remembered("x" * 255)
    store.remember(ref.org, row, NOW)

    (stored,) = table.get([keys.idempotency(ref.org, row.key)]).values()
    assert "xxx" not in stored["pk"]["S"] + stored["sk"]["S"]
    assert int(stored["expires_at"]["N"]) == row.expires_at // 1_000_000


def test_a_commit_that_aws_would_refuse_is_not_sent(store: TableStore, table: Table, ref: ThreadRef) -> None:
    head = create(store, ref)
    sent = Counter(table.client)
    incompressible = "".join(chr(0x4E00 + (number * 7919) % 20_000) for number in range(130_000))
    large = tuple(user_message(place, incompressible[place:]) for place in range(1, 13))

    with pytest.raises(ValueError, match="101 actions"):
        store.commit(change(ref, head, commands=tuple(command(number) for number in range(1, 101))))
    with pytest.raises(ValueError, match="into one row"):
        store.commit(change(ref, head, messages=(user_message(1, incompressible * 3),)))
    with pytest.raises(ValueError, match="into one transaction"):
        store.commit(change(ref, head, messages=large))
    with pytest.raises(ValueError, match="twice"):
        store.commit(change(ref, head, commands=(command(1), command(1))))

    assert sent.bodies == []


def test_the_largest_planned_commit_fits(store: TableStore, ref: ThreadRef) -> None:
    head = create(store, ref)
    rows = tuple(command(number) for number in range(1, TRANSACTION_ACTIONS - 1))

    done(store.commit(change(ref, head, facts=(fact(),), commands=rows)))

    assert len(store.open(ref, head=False, commands=range(1, TRANSACTION_ACTIONS - 1)).commands) == len(rows)


def test_a_batch_read_has_a_limit(store: TableStore, ref: ThreadRef) -> None:
    with pytest.raises(ValueError, match="101 rows"):
        store.open(ref, commands=range(1, 101))


def test_asking_for_nothing_costs_nothing(store: TableStore, table: Table, ref: ThreadRef) -> None:
    sent = Counter(table.client)

    assert store.open(ref, head=False) == Opened()
    assert sent.bodies == []
