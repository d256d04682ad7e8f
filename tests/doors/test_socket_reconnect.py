"""P15: a client that drops and comes back sees every row once, in order, whatever happened meanwhile."""

import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event as Flag
from time import monotonic

import pytest

from chalicelib.domain.events import Fact
from chalicelib.domain.ids import ThreadRef
from tests.doors.socket_gateway import Reader
from tests.doors.socket_house import Meanwhile, SocketHouse, said, seen, talk, turned


def test_a_client_that_drops_and_returns_sees_each_row_once(house: SocketHouse, meanwhile: Meanwhile) -> None:
    key = house.key()
    ref = house.thread(key, said("row 1"))
    before = house.connect(key)
    house.follow(before, ref)
    for row in talk(2, 17):
        house.tell(ref, row)
    house.receive(before)
    assert before.cursor == 17
    house.hang_up(before)
    for row in talk(18, 31):
        house.tell(ref, row)
    for _ in range(2):  # the first one drops again before it has read anything
        reader = house.connect(key)
        meanwhile.at(7, lambda: tell_each(house, ref, [*talk(32, 39), turned("running")]))
        house.follow(reader, ref, 17)
        house.receive(reader)
        assert seen(before, reader) == house.rows(ref)[: len(seen(before, reader))]
        assert reader.frames[0]["type"] == "thread_status"
        assert house.gateway.posts[before.connection] == len(before.frames)
    assert reader.cursor >= 40
    assert reader.states[-1] == "running"


def tell_each(house: SocketHouse, ref: ThreadRef, facts: list[Fact]) -> None:
    for fact in facts:
        house.tell(ref, fact)


def until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Wait for a condition; False when it did not come."""
    deadline, pause = monotonic() + seconds, Flag()
    while not condition():
        if monotonic() > deadline:
            return False
        pause.wait(0.002)
    return True


@pytest.mark.parametrize("seed", [1, 20260501, 77])
def test_drops_and_returns_at_random_points_lose_and_repeat_nothing(house: SocketHouse, seed: int) -> None:
    """A writer, two pushers (late, repeated, side by side) and a client that drops in every way there is."""
    key = house.key()
    ref = house.thread(key)
    rows = 120
    with ThreadPoolExecutor(3) as pool:
        writing = pool.submit(write, house, ref, rows, random.Random(seed), pool)
        readers = follow_with_drops(house, ref, lambda: house.connect(key), rows, random.Random(-seed))
        writing.result()
    assert seen(*readers) == house.rows(ref)
    assert len(readers) > 1, "the client never dropped"


def write(house: SocketHouse, ref: ThreadRef, rows: int, dice: random.Random, pool: ThreadPoolExecutor) -> None:
    """Append up to a number of rows; push the pages late, together, twice, in two threads, but all of them."""
    waiting: list[tuple[str, str]] = []
    pushes = []
    last = 1
    while last < rows - 1:
        facts = [
            said(dice.choice("ab\U0001f680") * dice.choice((1, 20, 9_000, 20_000))) for _ in range(dice.randint(1, 3))
        ]
        waiting.append(house.append(ref, *facts[: rows - 1 - last]))
        last += len(facts[: rows - 1 - last])
        if dice.random() < 0.6:
            pushes += [pool.submit(house.push, *waiting) for _ in range(dice.randint(1, 2))]
            waiting = waiting[-1:] if dice.random() < 0.3 else []
    pushes.append(pool.submit(house.push, *waiting, house.append(ref, said("end"))))
    for push in pushes:
        push.result()


def follow_with_drops(
    house: SocketHouse, ref: ThreadRef, connect: Callable[[], Reader], rows: int, dice: random.Random
) -> list[Reader]:
    """Connect again and again, each time from the last row seen, until there are enough rows."""
    readers: list[Reader] = []
    while len(seen(*readers)) < rows:
        reader = connect()
        readers.append(reader)
        if dice.random() < 0.3:  # the socket breaks in the middle of the replay or of a push
            house.gateway.answers[reader.connection] = deque([200] * dice.randint(0, 6) + [410] * 1_000)
        already = len(seen(*readers))
        house.follow(reader, ref, already)
        wanted = min(already + dice.randint(0, 40), rows)

        def arrived(wanted: int = wanted, reader: Reader = reader) -> bool:
            house.receive(reader)
            return len(seen(*readers)) >= wanted

        until(arrived, 0.3)
        if dice.random() < 0.5:
            house.hang_up(reader)
        house.gateway.answers[reader.connection] = deque([410] * 1_000)  # gone, whether it said so or not
    return readers
