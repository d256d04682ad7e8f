"""What calls cost: exact micro-USD from the table, from overrides, or nothing where no price is known."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.engine import prices
from chalicelib.engine.prices import cost_micro_usd, table_version
from chalicelib.ports import Usage

TABLE: dict[str, Any] = json.loads(Path(prices.__file__).with_name("prices.json").read_text(encoding="utf-8"))


def used(input_tokens: int, output_tokens: int, cache_read_tokens: int = 0) -> Usage:
    return Usage(
        mode="total", input_tokens=input_tokens, output_tokens=output_tokens, cache_read_tokens=cache_read_tokens
    )


def test_a_call_costs_its_tokens_times_the_listed_rates() -> None:
    assert cost_micro_usd("anthropic:claude-sonnet-4-6", used(1000, 100)) == 1000 * 3 + 100 * 15


def test_tokens_read_from_a_cache_are_part_of_the_input_and_have_their_own_rate() -> None:
    assert cost_micro_usd("anthropic:claude-haiku-4-5", used(1000, 0, 400)) == 600 * 1 + 40


def test_more_cached_tokens_than_input_tokens_never_make_a_negative_price() -> None:
    assert cost_micro_usd("anthropic:claude-haiku-4-5", used(10, 0, 400)) == 1


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("anthropic.claude-sonnet-4-6-v1:0", 3.3),
        ("us.anthropic.claude-sonnet-4-6-v1:0", 3.3),
        ("eu.anthropic.claude-sonnet-4-6", 3.3),
        ("global.anthropic.claude-sonnet-4-6-v1:0", 3),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", 1.1),
        ("amazon.nova-lite-v1:0", 0.06),
        ("us.amazon.nova-lite-v1:0", 0.06),
        ("arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-6-v1:0", 3.3),
    ],
)
def test_bedrock_ids_resolve_with_versions_and_regions_and_only_global_has_the_lower_rate(
    name: str, rate: float
) -> None:
    assert cost_micro_usd(f"bedrock:{name}", used(1000, 0)) == round(1000 * rate)


def test_a_dated_name_has_its_own_price_where_the_table_has_one_and_else_its_models() -> None:
    assert cost_micro_usd("openai:gpt-4o-2024-05-13", used(1000, 0)) == 5000
    assert cost_micro_usd("openai:gpt-4o-2024-08-06", used(1000, 0)) == 2500


def test_above_its_threshold_the_whole_call_has_the_higher_rate() -> None:
    assert cost_micro_usd("openai:gpt-6.1-sol", used(272_000, 0)) == 544_000
    assert cost_micro_usd("openai:gpt-6.1-sol", used(272_001, 0)) == 1_088_004


@pytest.mark.parametrize("name", ["openai:local", "openai:gpt-9", "bedrock:", "nobody:gpt-4o", "gpt-4o", ""])
def test_an_unknown_price_is_none(name: str) -> None:
    assert cost_micro_usd(name, used(1000, 100)) is None


@pytest.mark.parametrize("name", ["offline:demo", "scripted:script"])
def test_offline_and_scripted_models_cost_nothing(name: str) -> None:
    assert cost_micro_usd(name, used(1000, 100)) == 0


def test_overrides_win_over_the_table() -> None:
    overrides: dict[str, dict[str, float]] = {
        "openai:local": {"input": 0.5, "output": 2},
        "openai:gpt-4o": {"input": 0, "output": 0},
    }
    assert cost_micro_usd("openai:local", used(3, 1), overrides) == 4
    assert cost_micro_usd("openai:gpt-4o", used(1000, 100), overrides) == 0
    assert cost_micro_usd("openai:gpt-4o-mini", used(1000, 0), overrides) == 150


def test_a_half_rounds_up() -> None:
    rates = {"x:y": {"input": 0.5, "output": 0}}
    assert [cost_micro_usd("x:y", used(tokens, 0), rates) for tokens in (1, 2, 3)] == [1, 1, 2]


@settings(deadline=None)  # a busy machine is no fault of ours
@given(tokens=st.tuples(*[st.integers(0, 10**9)] * 2), model=st.sampled_from(sorted(TABLE["prices"]["anthropic"])))
def test_the_cost_is_within_half_a_micro_dollar_of_the_exact_one(tokens: tuple[int, int], model: str) -> None:
    row = TABLE["prices"]["anthropic"][model]
    row = row["long"] if "long" in row and tokens[0] > row["long"]["above"] else row
    exact = tokens[0] * Fraction(str(row["input"])) + tokens[1] * Fraction(str(row["output"]))
    cost = cost_micro_usd(f"anthropic:{model}", used(*tokens))
    assert cost is not None
    assert abs(cost - exact) <= Fraction(1, 2)


def test_the_table_has_a_version_and_every_row_the_two_rates_that_a_call_needs() -> None:
    assert table_version() == TABLE["version"]
    for provider, rows in TABLE["prices"].items():
        for model, row in rows.items():
            for rates in (row, row.get("regional", row), row.get("long", row)):
                assert rates["output"] >= rates["input"] > 0, f"{provider}:{model}"
                assert rates.get("cache_read", 0) < rates["input"], f"{provider}:{model}"
