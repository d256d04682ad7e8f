"""The balance of a thread: what its runs have used, by model, however the runs follow each other."""

from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.costs import MODELS, OTHERS, RUN_MODELS, called, carried_on, so_far
from chalicelib.domain.model import Head, ModelSpent, Tokens, replace

HEAD = Head(rev=1, agent="a", created_at=1, active_at=1, since=1)
COUNTS = st.integers(0, 10**9)
USAGES = st.builds(Tokens, input=COUNTS, output=COUNTS, cache_read=COUNTS, cost_micro_usd=COUNTS | st.none())
RUNS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), USAGES), max_size=30)


def play(runs: list[tuple[str, int, Tokens]]) -> tuple[ModelSpent, ...]:
    """The balance after runs of a model, so many calls and this usage each."""
    balance: tuple[ModelSpent, ...] = ()
    calls = 0
    for model, requests, usage in runs:
        calls += requests
        balance = carried_on(balance, model, calls=calls, usage=usage)
    return balance


@given(RUNS)
def test_the_balance_is_the_sum_of_the_runs(runs: list[tuple[str, int, Tokens]]) -> None:
    balance = play(runs)
    usages = [usage for _, _, usage in runs]
    assert sum(line.requests for line in balance) == sum(requests for _, requests, _ in runs)
    for name in ("input", "output", "cache_read"):
        assert sum(getattr(line, name) for line in balance) == sum(getattr(usage, name) for usage in usages)
    assert sum(line.cost_micro_usd for line in balance) == sum(usage.cost_micro_usd or 0 for usage in usages)
    for line in balance:
        assert line.unpriced == any(u.cost_micro_usd is None for model, _, u in runs if model == line.model)


@given(RUNS)
def test_a_model_has_one_line_whatever_the_number_of_runs(runs: list[tuple[str, int, Tokens]]) -> None:
    names = [line.model for line in play(runs)]
    assert len(names) == len(set(names)) <= 3


def test_a_run_without_a_model_call_leaves_no_line() -> None:
    assert carried_on((), "m", calls=0, usage=Tokens()) == ()


def test_more_models_than_lines_are_counted_together() -> None:
    runs = [(f"m{number}", 1, Tokens(input=1, cost_micro_usd=2)) for number in range(MODELS + 10)]
    balance = play(runs)
    assert len(balance) == MODELS + 1
    assert balance[-1] == ModelSpent(model=OTHERS, requests=10, input=10, cost_micro_usd=20)


def test_what_the_run_in_flight_has_used_counts_at_once_and_once() -> None:
    before = (ModelSpent(model="m", requests=2, input=5, cost_micro_usd=7),)
    head = replace(HEAD, run=3, model_calls=3, run_usage=Tokens(input=1, output=1, cost_micro_usd=None))
    after = so_far(before, head, "m")
    assert after == (
        ModelSpent(model="m", requests=3, input=6, output=1, cost_micro_usd=7, unpriced=True),
    )  # fmt: skip
    ended = replace(head, run=0, run_usage=Tokens(), balance_at=3)
    assert so_far(after, ended, None) == after


CALLS = st.lists(st.tuples(st.sampled_from("abc"), USAGES), max_size=20)


@given(CALLS)
def test_a_run_that_uses_several_models_is_counted_by_each_of_them(calls: list[tuple[str, Tokens]]) -> None:
    before = (ModelSpent(model="b", requests=2, input=5, cost_micro_usd=7),)
    head = replace(HEAD, run=3, model_calls=2)
    for model, usage in calls:
        head = called(head, model=model, own="a", usage=usage)
    lines = {line.model: line for line in so_far(before, head, "a")}
    for model in "abc":
        usages = [usage for one, usage in calls if one == model]
        line, old = lines.get(model, ModelSpent(model=model)), before[0] if model == "b" else ModelSpent(model=model)
        assert line.requests == len(usages) + old.requests
        assert line.input == sum(usage.input for usage in usages) + old.input
    known = sum(usage.cost_micro_usd or 0 for _, usage in calls)
    alone = all(usage.cost_micro_usd is not None for _, usage in calls)
    assert not alone or sum(line.cost_micro_usd for line in lines.values()) == known + 7
    assert head.run_usage.input == sum(usage.input for _, usage in calls)


def test_a_run_of_one_model_keeps_no_lines() -> None:
    assert called(HEAD, model="a", own="a", usage=Tokens(input=1)).run_spent == ()


def test_more_models_of_a_run_than_the_head_holds_are_counted_together() -> None:
    head = HEAD
    for number in range(20):
        head = called(head, model=f"m{number}", own="m0", usage=Tokens(input=1))
    assert len(head.run_spent) == RUN_MODELS + 1
    lines = so_far((), head, "m0")
    assert sum(line.requests for line in lines) == sum(line.input for line in lines) == 20
