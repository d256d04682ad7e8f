"""The cases of tests/cases, played over the running product: what a model may say and do, and what comes of it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.journeys.play import FOLDER, play, variants
from tests.journeys.product import Talk

CASES = [
    pytest.param(case, id=f"{case['case']}: {case['name']}")
    for file in sorted(FOLDER.glob("p*.json"))
    for case in variants(file.stem)
]


@pytest.mark.parametrize("case", CASES)
def test_a_case_comes_out_as_it_must(case: dict[str, Any], begin: Callable[..., Talk]) -> None:
    play(case, begin)
