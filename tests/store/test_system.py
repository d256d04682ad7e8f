"""Time and randomness of the machine."""

import re

from chalicelib.adapters.system import SystemClock, SystemIds


def test_tokens_are_20_characters_of_base32_and_differ() -> None:
    tokens = {SystemIds().token() for _ in range(1_000)}

    assert len(tokens) == 1_000
    assert all(re.fullmatch("[a-z2-7]{20}", token) for token in tokens)


def test_jitter_is_inside_its_bounds() -> None:
    numbers = [SystemIds().uniform() for _ in range(1_000)]

    assert 0 <= min(numbers) < 0.1 < 0.9 < max(numbers) < 1


def test_a_sleep_takes_its_time_on_the_monotonic_clock() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0.01)

    assert clock.monotonic() >= before + 0.01
