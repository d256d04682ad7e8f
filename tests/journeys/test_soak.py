"""A soak: several people talk at random while the app process is killed again and again. Nothing is lost or doubled.

Random is seeded; a failure names its seed and thread. Slow: each kill costs the lease of what was in flight.
"""

import os
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chalicelib.client import Conflict, NotFound, Turnlog
from tests.journeys.audit import assert_sound
from tests.journeys.product import Body, Product, Talk, asking, call, pause, step, text

pytestmark = pytest.mark.slow

PEOPLE = 4
TALKS = 4  # of each person
KILLS = 4
ACTIONS_BETWEEN_KILLS = 25
SETTLE_SECONDS = 180.0  # a lease, a sweep and a restart, for each kill that a run may meet
TOOLS = {
    "work": {"returns": {"v": 1}, "takes_ms": 150},
    "again": {"returns": "ok", "takes_ms": 300, "on_retry": "again"},
}


class Killer:
    """Kills the app process after every so many actions of anybody."""

    def __init__(self, product: Product) -> None:
        self._product, self._lock = product, threading.Lock()
        self._actions = self.kills = 0

    def note(self) -> None:
        """Somebody did something."""
        with self._lock:
            self._actions += 1
            if self.kills < KILLS and self._actions >= ACTIONS_BETWEEN_KILLS * (self.kills + 1):
                self.kills += 1
                os.kill(self._product.app_process(), signal.SIGKILL)


@pytest.mark.parametrize("seed", [1, 20261130])
def test_nothing_is_lost_or_doubled_while_the_app_process_is_killed(tmp_path: Path, seed: int) -> None:
    product = Product(tmp_path / "state").up()
    try:
        killer = Killer(product)
        with ThreadPoolExecutor(PEOPLE) as pool:
            people = [pool.submit(_talk_at_random, product, killer, seed * 100 + n) for n in range(PEOPLE)]
            for person in people:
                person.result()
        assert killer.kills == KILLS
    finally:
        product.stop()


def _talk_at_random(product: Product, killer: Killer, seed: int) -> None:
    dice = random.Random(seed)
    with Turnlog(product.url, product.key, retries=10) as turnlog:
        for _ in range(TALKS):
            talk = Talk.begin(turnlog, [_model_step(dice, n) for n in range(40)], TOOLS)
            for _ in range(dice.randint(4, 14)):
                _act(talk, dice)
                killer.note()
            talk.settled(SETTLE_SECONDS)
            assert_sound(talk)


def _model_step(dice: random.Random, number: int) -> Body:
    kinds: list[Callable[[], Body]] = [
        lambda: step(text(f"s{number} "), pause(dice.choice((0, 50, 200, 600))), text("end")),
        lambda: asking(*[call(f"c{number}_{n}", "work", f'{{"n": {n}}}') for n in range(dice.randint(1, 4))]),
        lambda: asking(call(f"z{number}", "again")),
        lambda: step(text("cut"), stop=None),
        lambda: step(text("busy"), {"type": "error", "status": 529, "detail": "busy", "retryable": True}, stop=None),
        lambda: step(text("no"), {"type": "error", "status": 400, "detail": "no", "retryable": False}, stop=None),
        lambda: step(*[piece for _ in range(8) for piece in (text("w" * 300), pause(60))]),
    ]
    return dice.choices(kinds, weights=(35, 25, 8, 8, 7, 5, 12))[0]()


def _act(talk: Talk, dice: random.Random) -> None:
    """One thing that a caller may do; being told that it comes too late is fine."""
    runs = [run["id"] for run in talk.runs()]
    actions: list[Callable[[], object]] = [
        lambda: talk.say(f"m{dice.random()}"),
        lambda: talk.turnlog.create_run(talk.id, "r"),
        lambda: talk.turnlog.cancel(dice.choice(runs)) if runs else None,
        lambda: talk.turnlog.stop(talk.id),
        lambda: talk.turnlog.stop(talk.id, all=True),
        lambda: talk.turnlog.continue_(talk.id) if runs else None,
    ]
    try:
        dice.choices(actions, weights=(50, 20, 12, 5, 5, 8))[0]()
    except (Conflict, NotFound):
        return
