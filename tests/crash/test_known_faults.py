"""Kinds of fault that other systems had, played on the deterministic world (tests/cases/README.md has the whole table).

Each test is about the kind: a runner that dies among its calls and is cancelled, a queue that refuses, a message that
comes twice, an attempt that never gets anywhere, a poisoned wake-up, wake-ups that look alike.
"""

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from chalicelib.domain.commands import Answer, Delivery
from chalicelib.domain.ids import ThreadRef
from chalicelib.doors import runner
from infra.local import events
from tests.crash.audit import audit, folded
from tests.crash.scenarios import AGAIN, TWO_CALLS, step, text, tools
from tests.crash.tap import Moment
from tests.crash.world import SWEEP_SECONDS, Context, HandClock, World, say

Worlds = Callable[[str], World]

ANSWERS = {"script": [step(text("yes"))] * AGAIN}
#: Calls of a fresh attempt: it takes the lease, reads, and writes its first fact with the third.
READ, FIRST_WRITE = 2, 3
LEASE_IS_OVER = 40
#: Attempts in a row without a stored fact that a run is given (spec section 7).
ATTEMPTS = 5


def ends(world: World) -> list[tuple[str, str]]:
    """How each run of the thread ended, in order."""
    return [(str(run["status"]), str(run["reason"])) for run in folded(world).runs.values()]


def outcomes(messages: Any) -> dict[str, str]:
    """Call id -> outcome, as a model is shown it."""
    parts = [part for message in messages for part in message["content"] if part["type"] == "tool_result"]
    assert len({part["call_id"] for part in parts}) == len(parts)
    return {part["call_id"]: part["outcome"] for part in parts}


def taken(world: World) -> dict[str, Any]:
    """The next message of the queue."""
    received = world._receive()
    assert received is not None
    return received


def views(world: World) -> list[str]:
    """The thread's state as each place shows it that shows one: the thread, both lists, the log, a long poll."""
    read, asks, thread = world.house.read, world.principal, world.thread.id
    with world.tap.outside():
        threads = read.threads(asks, agent=None, tag=None, state=None, q=None, limit=100, position=None).items
        roots = read.roots(asks, limit=100, position=None).items
        page = read.events(asks, thread, after=0, limit=1, wait=0)
        shown = read.thread(asks, thread, frozenset())
    bodies = [shown, *(t for t in threads if t["id"] == thread), *(r["thread"] for r in roots)]
    return [body["status"]["state"] for body in bodies] + [page["status"]["state"], str(folded(world).status["state"])]


# -- P01: calls that nobody will answer


@pytest.mark.parametrize("waited", [0, LEASE_IS_OVER], ids=["at once", "when the lease is over"])
@pytest.mark.parametrize("rule", ["again", "surface"])
@pytest.mark.parametrize(("stored", "seen"), [(1, ["aborted", "aborted"]), (2, ["ok", "aborted"])])
def test_calls_of_a_killed_and_cancelled_run_are_aborted_for_the_next_one(
    world: Worlds, stored: int, seen: list[str], rule: str, waited: int
) -> None:
    this = world(f"killed among calls, {stored}, {rule}, {waited}")
    this.create({"script": [TWO_CALLS, *[step(text("Here."))] * AGAIN], "tools": tools(rule)})
    this.tap.at(len(this.tap.calls) + FIRST_WRITE + stored - 1, Moment.AFTER, this.tap.die)
    this.deliver()
    assert this.deaths == 1
    this.clock.sleep(waited)
    this.cancel()
    this.settle()
    this.post("are you there?")
    this.settle()
    this.redeliver_all()
    assert audit(this) == []
    assert ends(this) == [("cancelled", "aborted_by_user"), ("completed", "stop_on_response")]
    assert outcomes(this.guests.requests[-1].messages) == dict(zip(["c1", "c2"], seen, strict=True))
    assert len({effect.call_id for effect in this.guests.effects}) == len(this.guests.effects)


# -- P08: accepted, and the wake-up cannot be sent

REQUESTS: dict[str, Callable[[World], Answer]] = {
    "a new thread": lambda world: world.create(ANSWERS),
    "a message": lambda world: world.post("more"),
    "a run": lambda world: world.post("more", Delivery.ENQUEUE),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_what_was_accepted_while_the_queue_refuses_is_started_once_by_the_sweep(world: Worlds, kind: str) -> None:
    this = world(f"queue refuses: {kind}")
    if kind != "a new thread":
        this.create(ANSWERS, text=None)
    this.tap.refuse(lambda name: "ServiceUnavailable" if name == "sqs.SendMessage" else None)
    first = REQUESTS[kind](this)
    again = REQUESTS[kind](this)
    assert (first.status, again.status) == (201, 200)
    assert first.body["run"]["id"] == again.body["run"]["id"]
    assert "sqs.SendMessage" in this.tap.calls
    assert not this.deliver()
    this.sweep()
    assert not this.deliver()  # the sweep's own wake-up was refused as well
    this.tap.refuse(lambda name: None)
    this.settle()
    assert audit(this) == []
    assert ends(this) == [("completed", "stop_on_response")]
    assert len(this.guests.requests) == 1
    assert this.sweeps <= 3


# -- P09: one message, two runners


def _again(world: World, received: Mapping[str, Any], clock: HandClock) -> None:
    """The same message comes to another process, for the second time."""
    attributes = {**received["Attributes"], "ApproximateReceiveCount": "2"}
    event = events.queue({**received, "Attributes": attributes}, world.cloud.resources.queue_arn)
    other = world.process(clock=clock, salt="second runner")
    with world.tap.outside():
        assert runner.run(event, Context(), house=lambda: other) == {"batchItemFailures": []}


@pytest.mark.parametrize("ending", ["goes on", "dies"])
def test_a_second_runner_of_a_message_does_nothing_while_the_first_is_alive(world: Worlds, ending: str) -> None:
    this = world(f"two runners, the first {ending}")
    seen: list[tuple[int, bool]] = []

    def while_asked(count: int) -> None:
        if count == 1:
            before = this.head.rev
            _again(this, received, HandClock(this.clock.elapsed))
            seen.append((this.head.rev - before, bool(this.head.due_at)))

    this.guests.while_asked = while_asked
    this.create({"script": [TWO_CALLS, *[step(text("done"))] * AGAIN], "tools": tools("again")})
    received = taken(this)
    if ending == "dies":
        this.tap.at(len(this.tap.calls) + FIRST_WRITE, Moment.AFTER, this.tap.die)
    this.hand(received)
    # The second runner wrote nothing, and a due time makes it safe that its message is gone from the queue.
    assert seen == [(0, True)]
    this.settle()
    this.redeliver_all()
    assert audit(this) == []
    assert ends(this) == [("completed", "stop_on_response")]
    assert len(this.guests.requests) == 2


def test_a_runner_whose_lease_is_over_by_the_clock_is_replaced_and_writes_nothing_more(world: Worlds) -> None:
    """The row of the lease still stands: what counts is its time, not that somebody has removed it."""
    this = world("two runners, the first too slow")
    this.guests.while_asked = lambda count: (
        _again(this, received, HandClock(this.clock.elapsed + LEASE_IS_OVER)) if count == 1 else None
    )
    this.create(ANSWERS)
    received = taken(this)
    this.hand(received)
    this.drain()
    assert audit(this) == []
    assert ends(this) == [("completed", "stop_on_response")]
    assert [event.get("attempt") for event in this.events() if event["type"] == "run.completed"] == [2]


# -- P10: attempts that get nowhere


@pytest.mark.parametrize("deaths", [ATTEMPTS - 1, ATTEMPTS])
def test_a_run_whose_runners_all_die_settles_and_the_thread_goes_on(world: Worlds, deaths: int) -> None:
    this = world(f"{deaths} dead runners")
    this.create(ANSWERS)
    this.post("next", Delivery.ENQUEUE)
    for _ in range(deaths):
        _lose_a_runner(this)
        assert set(views(this)) == {"running"}
    this.settle()
    this.redeliver_all()
    assert audit(this) == []
    lost, done = ("failed", "execution_lost"), ("completed", "stop_on_response")
    assert ends(this) == [done if deaths < ATTEMPTS else lost, done]
    assert set(views(this)) == {"idle"}
    assert len(this.guests.requests) == (2 if deaths < ATTEMPTS else 1)


def test_a_cancel_ends_a_run_whose_runners_have_all_died_so_far(world: Worlds) -> None:
    this = world("dead runners and a cancel")
    this.create(ANSWERS)
    for _ in range(2):
        _lose_a_runner(this)
    this.clock.sleep(LEASE_IS_OVER)
    answer = this.cancel()
    assert answer.body["run"]["status"] == "cancelled"
    assert set(views(this)) == {"idle"}
    this.settle()
    this.redeliver_all()
    assert audit(this) == []
    assert ends(this) == [("cancelled", "aborted_by_user")]
    assert this.guests.requests == []


def _lose_a_runner(world: World) -> None:
    """A runner takes the thread and dies before it has stored anything."""
    before = world.deaths
    world.tap.at(len(world.tap.calls) + READ, Moment.AFTER, world.tap.die)
    assert world.deliver()
    assert world.deaths == before + 1
    with world.tap.outside():
        world.sweep(SWEEP_SECONDS)


@pytest.mark.parametrize("left", [0.0, -1.0, -60_000.0])
def test_an_invocation_without_time_asks_nothing_and_lets_go(world: Worlds, left: float) -> None:
    this = world(f"{left} ms left")
    this.create(ANSWERS)
    this.hand(taken(this), Context(lambda: left))
    head = this.head
    assert (head.lease_until, head.lease_nonce, bool(head.due_at)) == (0, "", True)
    assert this.guests.requests == []
    this.settle()
    assert audit(this) == []
    assert ends(this) == [("completed", "stop_on_response")]
    assert this.sweeps == 0


def test_a_run_that_only_ever_meets_invocations_without_time_fails_and_the_thread_goes_on(world: Worlds) -> None:
    this = world("never any time")
    this.create(ANSWERS)
    for hops in itertools.count():
        found = this._receive()
        if found is None:
            break
        assert hops <= ATTEMPTS + 1
        this.hand(found, Context(lambda: 0.0))
    assert ends(this) == [("failed", "execution_lost")]
    this.post("again")
    this.settle()
    assert audit(this) == []
    assert ends(this) == [("failed", "execution_lost"), ("completed", "stop_on_response")]


# -- P11: a wake-up that cannot be worked on


class _Turns:
    """A house whose turns fail for some threads. `taken`: every thread that a turn was taken for, in order."""

    def __init__(self, *bad: str) -> None:
        self.bad, self.taken = bad, list[str]()

    @property
    def take_turn(self) -> "_Turns":
        return self

    @property
    def run_effect(self) -> runner.RunEffect:
        raise AssertionError("no record of these tests names an effect")

    def run(self, ref: ThreadRef, remaining: Callable[[], float]) -> None:
        """Take a turn, or fail."""
        self.taken.append(ref.id)
        if ref.id in self.bad:
            raise RuntimeError("poison")


FIRST, SECOND = f"thr_{'a' * 20}", f"thr_{'b' * 20}"


def _batch(*records: tuple[str, str, str]) -> dict[str, Any]:
    """A batch of the queue: (message id, group, body)."""
    return {
        "Records": [
            {"messageId": name, "body": body, "attributes": {"MessageGroupId": group}} for name, group, body in records
        ]
    }


def _wake(thread: str, org: str = "org_one") -> str:
    return json.dumps({"v": 1, "kind": "wake", "org": org, "thread": thread})


MIXED = [("a1", FIRST), ("b1", SECOND), ("a2", FIRST), ("b2", SECOND)]


def test_a_failing_record_holds_back_its_own_group_and_no_other() -> None:
    house = _Turns(FIRST)
    answer = runner.run(_batch(*[(n, g, _wake(g)) for n, g in MIXED]), Context(), house=lambda: house)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "a1"}, {"itemIdentifier": "a2"}]}
    assert house.taken == [FIRST, SECOND, SECOND]


@pytest.mark.parametrize(
    "body",
    ["", "no json", "[]", "null", "5", "{}", '{"v": 2, "kind": "wake"}', _wake("nonsense"), _wake(""), "\ud800"],
)
def test_a_record_that_cannot_be_read_holds_no_work_and_holds_nothing_back(body: str) -> None:
    house = _Turns()
    records = [(n, g, body if n == "a1" else _wake(g)) for n, g in MIXED]
    assert runner.run(_batch(*records), Context(), house=lambda: house) == {"batchItemFailures": []}
    assert house.taken == [SECOND, FIRST, SECOND]


def test_a_fault_outside_of_any_record_is_no_success() -> None:
    def broken() -> Any:
        raise RuntimeError("the house cannot be built")

    with pytest.raises(RuntimeError, match="no wake-up"):
        runner.run(_batch(*[(n, g, _wake(g)) for n, g in MIXED]), Context(), house=broken)


def test_a_wake_up_of_a_thread_that_is_not_there_is_done(world: Worlds) -> None:
    this = world("no row")
    received = {
        "MessageId": "m1",
        "ReceiptHandle": "r1",
        "Body": _wake(FIRST, this.principal.org),
        "MD5OfBody": "",
        "Attributes": {"ApproximateReceiveCount": "1", "MessageGroupId": "g"},
    }
    event = events.queue(received, this.cloud.resources.queue_arn)
    assert runner.run(event, Context(), house=lambda: this.house) == {"batchItemFailures": []}


def test_a_turn_that_cannot_reach_the_table_leaves_its_wake_up_and_is_done_when_it_can(world: Worlds) -> None:
    this = world("table refuses")
    this.create(ANSWERS)
    this.tap.refuse(lambda name: "ThrottlingException" if name.startswith("dynamodb") else None)
    this.hand(taken(this))
    this.tap.refuse(lambda name: None)
    assert this.guests.requests == []
    assert this.deliver()
    this.settle()
    assert audit(this) == []
    assert ends(this) == [("completed", "stop_on_response")]


# -- P12: wake-ups that look alike


def _sent(world: World) -> list[dict[str, Any]]:
    """What was sent to the queue in this schedule."""
    calls = zip(world.tap.calls, world.tap.requests, strict=True)
    return [request for name, request in calls if name == "sqs.SendMessage"]


def test_every_wake_up_that_is_needed_comes_although_they_all_look_alike(world: Worlds) -> None:
    """One thread needs five within the minutes in which the queue drops repeats: three runners die, one hands over."""
    this = world("alike")
    this.create(ANSWERS)
    for _ in range(3):
        this.tap.at(len(this.tap.calls) + READ, Moment.AFTER, this.tap.die)
        assert this.deliver()
        this.sweep()
    this.hand(taken(this), Context(lambda: 0.0))
    assert this.deliver()
    assert audit(this) == ["I8: 3 wake-ups are still in flight"]
    this.redeliver_all()
    assert audit(this) == []
    sent = _sent(this)
    assert len(sent) == 5
    assert len({request["MessageBody"] for request in sent}) == 1
    assert len({request["MessageDeduplicationId"] for request in sent}) == 5


def test_the_same_words_twice_on_two_threads_are_four_runs_and_four_wake_ups(world: Worlds) -> None:
    this = world("same words")
    for thread in range(2):
        this.answers.clear()
        this.create(ANSWERS, text=None, key=f"create {thread}")
        for number in range(2):
            this.request(lambda house: house.accept.post_message(this.principal, this.thread.id, say("yes"), None))
            assert this.deliver(), f"thread {thread}, message {number}"
        assert audit(this) == []
        assert ends(this) == [("completed", "stop_on_response")] * 2
        this.tap.stored.clear()  # what is stored of this thread is nothing that the next one could ask for again
    assert len({request["MessageDeduplicationId"] for request in _sent(this)}) == 4
    for request in _sent(this):
        assert set(json.loads(request["MessageBody"])) == {"v", "kind", "org", "thread"}
        assert request["MessageBody"].isascii()
