"""The process dies at every AWS call, before and after it; answers are lost, and sent again: nothing changes."""

import pytest

from tests.crash.faults import FAULTS, POINTS, Worlds, struck
from tests.crash.scenarios import SCENARIOS


@pytest.mark.parametrize("every", POINTS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_fault_at_any_call_costs_at_most_a_retry(world: Worlds, name: str, fault: str, every: int) -> None:
    offset = list(SCENARIOS).index(name) + list(FAULTS).index(fault)
    wrong = struck(world, SCENARIOS[name], fault, every, offset)
    assert wrong == [], "\n".join(wrong)
