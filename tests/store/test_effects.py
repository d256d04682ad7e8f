"""Rows of effects: scheduled once, claimed and tried by one, settled by the try that is the newest."""

from dataclasses import replace

import pytest

from chalicelib.adapters import keys
from chalicelib.adapters.store import TableStore
from chalicelib.adapters.table import Table
from chalicelib.domain import effects as rules
from chalicelib.domain.entries import LogRow, key
from chalicelib.domain.ids import ThreadRef, effect_name
from chalicelib.domain.model import Effect, EffectState
from chalicelib.ports import Due
from tests.store.faults import lost
from tests.store.kit import NOW, SECOND, change, create, done, new_head, thread

NAME = "a" * 20
EFFECT = Effect(id=NAME, name="remind", arguments={"n": 1, "x": [1.0, None]}, at=NOW, created_at=NOW, due_at=NOW)
ROW = LogRow(key=key(NOW, "e1"), kind="handler", at=NOW, body={"model": "remind"})


def stored(store: TableStore, ref: ThreadRef) -> Effect | None:
    return store.open(ref, head=False, effects=[NAME]).effects.get(NAME)


def is_due(store: TableStore, ref: ThreadRef, until: int) -> bool:
    return Due(ref=ref, effect=NAME) in store.due(keys.due_shard(ref), until=until, limit=1_000)


def test_an_effect_comes_back_as_it_was_scheduled_and_a_second_time_changes_nothing(
    store: TableStore, ref: ThreadRef
) -> None:
    create(store, ref)
    assert store.schedule(ref, EFFECT)
    assert store.schedule(ref, replace(EFFECT, arguments={}))
    assert stored(store, ref) == EFFECT
    assert store.effects(ref, after="", limit=10) == [EFFECT]
    assert (is_due(store, ref, NOW - 1), is_due(store, ref, NOW)) == (False, True)


@pytest.mark.parametrize("closed", [{"terminated_at": NOW}, {"deleted_at": NOW}])
def test_a_closed_thread_takes_no_effect(store: TableStore, ref: ThreadRef, closed: dict[str, int]) -> None:
    create(store, ref, new_head(**closed))
    assert not store.schedule(ref, EFFECT)
    assert not store.schedule(thread(), EFFECT)
    assert stored(store, ref) is None


def test_an_effect_may_come_and_go_with_a_commit(store: TableStore, ref: ThreadRef) -> None:
    head = create(store, ref, effects=(EFFECT,))
    assert stored(store, ref) == EFFECT
    removed = rules.removed(EFFECT, NOW)
    done(store.commit(change(ref, head, effects=(removed,))))
    assert stored(store, ref) == removed
    assert not is_due(store, ref, NOW)


def test_a_claim_puts_off_what_is_due_once(store: TableStore, ref: ThreadRef) -> None:
    create(store, ref, effects=(EFFECT,))
    assert store.claim_effect(ref, NAME, now=NOW - 1, due_at=NOW) is None
    claimed = store.claim_effect(ref, NAME, now=NOW, due_at=NOW + SECOND)
    assert claimed == replace(EFFECT, due_at=NOW + SECOND, wakes=1)
    assert store.claim_effect(ref, NAME, now=NOW, due_at=NOW + SECOND) is None


def test_one_of_two_takes_a_try_and_the_next_begins_when_it_is_over(store: TableStore, ref: ThreadRef) -> None:
    create(store, ref, effects=(EFFECT,))
    assert store.take_effect(ref, NAME, now=NOW - 1, until=NOW, nonce="early") is None
    taken = store.take_effect(ref, NAME, now=NOW, until=NOW + 10, nonce="one")
    assert taken == replace(EFFECT, tries=1, until=NOW + 10, due_at=NOW + 10, nonce="one")
    assert store.take_effect(ref, NAME, now=NOW, until=NOW + 10, nonce="one") == taken
    assert store.take_effect(ref, NAME, now=NOW + 9, until=NOW + 20, nonce="two") is None
    again = store.take_effect(ref, NAME, now=NOW + 10, until=NOW + 20, nonce="two")
    assert again is not None
    assert again.tries == 2


def test_only_the_newest_try_settles_and_what_is_taken_back_stays_so(store: TableStore, ref: ThreadRef) -> None:
    create(store, ref, effects=(EFFECT,))
    first = store.take_effect(ref, NAME, now=NOW, until=NOW + 10, nonce="one")
    second = store.take_effect(ref, NAME, now=NOW + 10, until=NOW + 20, nonce="two")
    assert first is not None
    assert second is not None
    assert not store.settle_effect(ref, first, rules.done(first, NOW), ROW)
    failed = rules.failed(second, "no", NOW + 15)
    assert store.settle_effect(ref, second, failed, ROW)
    assert store.settle_effect(ref, second, failed, ROW)
    assert stored(store, ref) == failed
    third = store.take_effect(ref, NAME, now=failed.at, until=failed.at + 10, nonce="three")
    assert third is not None
    assert store.remove_effect(ref, NAME, expires_at=NOW)
    assert not store.remove_effect(ref, NAME, expires_at=NOW)
    assert not store.settle_effect(ref, third, rules.done(third, NOW), replace(ROW, key=key(NOW, "e3")))
    found = stored(store, ref)
    assert found is not None
    assert found.state is EffectState.REMOVED


def test_a_lost_answer_is_recognised(store: TableStore, ref: ThreadRef, table: Table) -> None:
    create(store, ref, effects=(EFFECT,))
    lost(table.client, "UpdateItem")
    taken = store.take_effect(ref, NAME, now=NOW, until=NOW + 10, nonce="one")
    assert taken is not None
    lost(table.client, "TransactWriteItems")
    assert store.settle_effect(ref, taken, rules.done(taken, NOW), ROW)


def test_names_of_effects_belong_to_their_thread() -> None:
    mine, other = thread(), thread()
    assert effect_name(mine, mine.effect(NAME)) == NAME
    assert effect_name(other, mine.effect(NAME)) is None
    assert effect_name(mine, f"eff_{mine.token}_{'A' * 20}") is None


def test_pauses_grow_up_to_an_hour_and_the_eighth_failure_parks() -> None:
    assert [rules.pause(tries) // SECOND for tries in range(1, 8)] == [10, 40, 160, 640, 2560, 3600, 3600]
    assert rules.failed(replace(EFFECT, tries=8), "no", NOW).state is EffectState.PARKED
