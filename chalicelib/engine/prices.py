"""What a model call costs, from a small table of list prices (`prices.json`) with a version.

It knows rates and tokens, no bills: discounts, batch rates and the surcharge of writing to a cache are not in it. It
guarantees an exact result (decimal arithmetic, integer micro-USD, half up) and that a price it does not know is None,
never a guess: the tokens are counted all the same. Offline and scripted models cost nothing.

A rate in USD per million tokens is the same number in micro-USD per token, so no unit is converted.
"""

import json
import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path

from chalicelib.ports import JSON, Usage

_TABLE_PATH = Path(__file__).with_name("prices.json")
_FREE_PROVIDERS = frozenset({"offline", "scripted"})
# Prefixes of Bedrock's inference profiles; only `global.` has the lower rates. Source: AWS, "Supported Regions and
# models for inference profiles".
_GEOGRAPHIES = ("global.", "us.", "us-gov.", "eu.", "apac.", "jp.", "au.", "in.", "ca.")
# What ids carry behind a model's name: dates, `-latest`, and Bedrock's version.
_SUFFIX = re.compile(r"(?:-\d{8}|-\d{4}-\d{2}-\d{2}|-latest|@\d{8})?(?:-v\d+)?(?::\d+)?$")

Rates = Mapping[str, JSON]


def cost_micro_usd(model: str, usage: Usage, overrides: Mapping[str, Rates] | None = None) -> int | None:
    """The cost of one call of `provider:model` in micro-USD, or None if its price is not known.

    `usage` is of the whole call; its input tokens include those read from a cache. `overrides` has rates by full model
    name (`{"openai:local": {"input": 0, "output": 0}}`, USD per million tokens) and wins over the table.
    """
    rates = (overrides or {}).get(model) or _listed(model)
    if rates is None:
        return None
    rates = _by_length(rates, usage.input_tokens)
    cached = min(usage.cache_read_tokens, usage.input_tokens)
    cost = (
        _rate(rates, "input") * (usage.input_tokens - cached)
        + _rate(rates, "cache_read" if "cache_read" in rates else "input") * cached
        + _rate(rates, "output") * usage.output_tokens
    )
    return int(cost.quantize(Decimal(1), rounding=ROUND_HALF_UP))


def table_version() -> str:
    """The version of the table, a date; stored beside each cost, since list prices change."""
    return str(_table()["version"])


@cache
def _table() -> Mapping[str, JSON]:
    table: Mapping[str, JSON] = json.loads(_TABLE_PATH.read_text(encoding="utf-8"), parse_float=Decimal)
    return table


def _listed(model: str) -> Rates | None:
    provider, _, name = model.partition(":")
    if provider in _FREE_PROVIDERS:
        return {"input": 0, "output": 0}
    name = name.rsplit("/", 1)[-1]  # the end of an ARN
    plain, is_global = _without_geography(name) if provider == "bedrock" else (name, True)
    rows: Mapping[str, Rates] = _table()["prices"].get(provider, {})
    rates = rows.get(plain) or rows.get(_SUFFIX.sub("", plain))
    if rates is None:
        return None
    return rates if is_global else rates.get("regional", rates)


def _without_geography(name: str) -> tuple[str, bool]:
    prefix = next((prefix for prefix in _GEOGRAPHIES if name.startswith(prefix)), "")
    return name.removeprefix(prefix), prefix == "global."


def _by_length(rates: Rates, input_tokens: int) -> Rates:
    """Above its threshold a model's higher rates hold for the whole call, not only for the tokens above it."""
    longer = rates.get("long")
    return longer if longer and input_tokens > longer["above"] else rates


def _rate(rates: Rates, name: str) -> Decimal:
    """USD per million tokens; a float of an override is read as it is written."""
    return Decimal(str(rates.get(name, 0)))
