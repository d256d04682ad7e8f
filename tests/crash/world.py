"""A world for one schedule: the real house on an emulator, a clock moved by hand, and processes that can die.

One thread of control. A process is a `House` that is thrown away when it dies; botocore's clients, which hold no state,
outlive it. A wake-up whose runner died stays invisible and keeps its group locked, as on AWS, until `redeliver_all`.
"""

import copy
import random
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from chalicelib.adapters.clients import Clients
from chalicelib.adapters.system import SystemIds
from chalicelib.adapters.table import Patience, Table
from chalicelib.bootstrap import House
from chalicelib.domain.commands import (
    Answer,
    AnswerQuestion,
    CreateThread,
    Decide,
    Delivery,
    Idempotency,
    Level,
    Principal,
    Say,
)
from chalicelib.domain.errors import NotFound, RetryLater, ThreadTerminated
from chalicelib.domain.ids import TOKEN_CHARACTERS, ThreadRef, thread_ref
from chalicelib.domain.model import Child, Head
from chalicelib.doors import runner
from chalicelib.engine.agent import Agent
from chalicelib.engine.registry import registry
from chalicelib.ports import Commit, Models
from chalicelib.settings import Settings
from infra.local import events
from infra.local.resources import Resources
from tests.crash.guests import Guests
from tests.crash.tap import Died, Tap

NOW = 1_780_000_000_000_000
SECOND = 1_000_000
LAMBDA_SECONDS = 900.0
#: EventBridge's schedule on AWS (spec section 7): a lost run is taken up within 90 s, that is by the second sweep.
SWEEP_SECONDS = 60.0
SWEEPS_AT_MOST = 12
ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


class HandClock:
    """A clock that stands still until it is moved; who sleeps moves it."""

    def __init__(self, elapsed: float = 0.0) -> None:
        self.elapsed = elapsed

    def now(self) -> int:
        return NOW + int(self.elapsed * SECOND)

    def monotonic(self) -> float:
        return self.elapsed

    def sleep(self, seconds: float) -> None:
        self.elapsed += seconds


class SeededIds:
    """Ids and jitter that a seed repeats."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def token(self) -> str:
        return "".join(self._random.choices(ALPHABET, k=TOKEN_CHARACTERS))

    def uniform(self) -> float:
        return self._random.random()


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """The emulator's part: resources, the clients of the house, their tap, and a client of the harness' own."""

    resources: Resources
    table: Table
    clients: Clients
    tap: Tap
    sqs: Any


class Context:
    """Lambda's context, as far as the doors look at it. `remaining` answers milliseconds."""

    aws_request_id = "request"
    function_name = "run_turn"

    def __init__(self, remaining: Callable[[], float] = lambda: LAMBDA_SECONDS * 1000) -> None:
        self.get_remaining_time_in_millis = remaining


class Process(House):
    """A house whose clients are shared with the processes before and after it."""

    def __init__(
        self, cloud: Cloud, *, clock: HandClock, ids: SeededIds, models: Models, agents: Mapping[str, Agent]
    ) -> None:
        super().__init__(_settings(cloud.resources), clock=clock, ids=ids, models=models)
        self._cloud = cloud
        self._agents = agents

    @cached_property
    def clients(self) -> Clients:
        return self._cloud.clients

    @cached_property
    def table(self) -> Table:
        return replace(self._cloud.table, patience=Patience(clock=self.clock, ids=self.ids))

    @cached_property
    def agents(self) -> dict[str, Agent]:
        return dict(self._agents)


@dataclass(kw_only=True)
class World:
    """Everything of one schedule."""

    cloud: Cloud
    seed: str
    clock: HandClock = field(default_factory=HandClock)
    sweeps_count: bool = False
    """True if the sweep's own calls are points of the schedule too."""
    sweeps: int = 0
    deaths: int = 0
    ref: ThreadRef | None = None
    """The thread of the schedule, once a client knows it."""

    def __post_init__(self) -> None:
        self.tap = self.cloud.tap
        self.tap.reset()
        self.ids = SeededIds(self.seed)
        self.guests = Guests(stored=lambda: self.tap.stored)
        org = f"org_{SystemIds().token()}"  # the one thing that no seed repeats: a schedule may be played again
        self.principal = Principal(org=org, key_id="key_one", level=Level.MEMBER)
        self.stuck: list[dict[str, Any]] = []
        self.snapshots: list[list[dict[str, Any]]] = []
        self.answers: list[Answer] = []
        self.house = self.process()
        self._empty_queue()

    def process(
        self, *, clock: HandClock | None = None, models: Models | None = None, salt: str | None = None
    ) -> Process:
        """A new process, for instance one whose clock is another."""
        return Process(
            self.cloud,
            clock=clock or self.clock,
            ids=SeededIds(f"{self.seed}/{salt}") if salt else self.ids,
            models=models or self.guests,
            agents=self.guests.agents(),
        )

    @property
    def thread(self) -> ThreadRef:
        """The thread of the schedule."""
        assert self.ref is not None, "no thread was accepted"
        return self.ref

    @property
    def head(self) -> Head:
        """The thread's head as it stands."""
        with self.tap.outside():
            head = self.house.store.open(self.thread).head
        assert head is not None
        return head

    # -- clients

    def create(
        self, arguments: Mapping[str, Any], text: str | None = "hello", key: str = "create", agent: str = "scripted"
    ) -> Answer:
        """A client makes the thread, and asks again with the same key if nobody answers."""
        ask = CreateThread(agent=agent, arguments=arguments, message=None if text is None else say(text))
        answer = self.request(lambda house: house.accept.create_thread(self.principal, ask, _key(key)))
        self.ref = thread_ref(self.principal.org, answer.body["thread"]["id"])
        return answer

    def post(self, text: str, delivery: Delivery = Delivery.JOIN) -> Answer:
        """A client says something; the text is its key."""
        ask, at = say(text, delivery), self.thread.id
        return self.request(lambda house: house.accept.post_message(self.principal, at, ask, _key(text)))

    def post_refused(self, text: str) -> None:
        """A client says something to a terminated thread."""
        with self.tap.outside():
            try:
                self.house.accept.post_message(self.principal, self.thread.id, say(text), None)
            except ThreadTerminated:
                return
        raise AssertionError("the message was taken")

    def cancel(self, run: int = 1, key: str = "cancel") -> Answer:
        """A client cancels a run."""
        run_id = self.thread.run(run)
        return self.request(lambda house: house.cancel.cancel_run(self.principal, run_id, _key(key)))

    def stop_everything(self, key: str = "stop") -> Answer:
        """A client stops the thread and takes back what waits."""
        at = self.thread.id
        return self.request(lambda house: house.cancel.stop(self.principal, at, True, _key(key)))

    def terminate(self, key: str = "terminate") -> Answer:
        """A client ends the thread for good."""
        at = self.thread.id
        return self.request(lambda house: house.cancel.terminate(self.principal, at, _key(key)))

    def delete(self) -> None:
        """A client deletes the thread, and asks again until it is gone."""
        while True:
            try:
                self.house.delete.delete_thread(self.principal, self.thread.id)
            except (Died, RetryLater) as error:
                self.revive(isinstance(error, Died))
                continue
            except NotFound:
                pass
            return

    def children(self) -> list[ThreadRef]:
        """The threads that the thread has made, oldest first."""
        with self.tap.outside():
            rows = registry(self.house.store, self.thread)
        return [ThreadRef(self.thread.org, row.token) for row in rows if row.token]

    def registering(self, child: Child) -> Commit:
        """A write that puts a row into the registry, as a run would."""
        head = self.head
        after = replace(head, children=head.children + 1)
        name = f"registering {child.reference}"
        return Commit(ref=self.thread, before=head, after=after, children=(child,), now=self.clock.now(), write=name)

    def at(self, ref: ThreadRef) -> "World":
        """The same world, looked at from another thread of it."""
        other = copy.copy(self)
        other.ref, other.snapshots = ref, []
        return other

    def answer(self, value: Any, question: int = 0) -> Answer:
        """A person answers one of the open questions, with the answer as the key."""
        at, question_id = self.thread.id, self.asked("question")[question]
        ask = AnswerQuestion(answer=value)
        return self.request(
            lambda house: house.people.answer_question(self.principal, at, question_id, ask, _key(f"a{value}"))
        )

    def decide(self, *, approve: bool, approval: int = 0) -> Answer:
        """A person decides on one of the open approvals."""
        at, approval_id = self.thread.id, self.asked("approval")[approval]
        ask = Decide(approve=approve)
        return self.request(
            lambda house: house.people.decide(self.principal, at, approval_id, ask, _key(f"d{approval_id}"))
        )

    def asked(self, kind: str) -> list[str]:
        """Ids of the open questions, or approvals."""
        with self.tap.outside():
            page = self.house.people.list_inquiries(
                self.principal, self.thread.id, open_only=True, limit=50, position=None
            )
        return [item["id"] for item in page.items if item["kind"] == kind]

    def meanwhile(self, ask: Callable[[], object]) -> None:
        """Other processes do something between two calls of this one, or within one of them."""
        own = self.house
        self.house = self.process(salt="meanwhile")
        try:
            with self.tap.outside():
                ask()
        finally:
            self.house = own

    def request(self, send: Callable[[House], Answer]) -> Answer:
        """Send a request until it is answered."""
        while True:
            try:
                answer = send(self.house)
            except (Died, RetryLater) as error:
                self.revive(isinstance(error, Died))
                continue
            self.answers.append(answer)
            return answer

    # -- the queue and the schedule

    def deliver(self) -> bool:
        """Hand the next visible wake-up to a runner; False if there is none."""
        received = self._receive()
        if received is None:
            return False
        self.hand(received)
        return True

    def hand(self, received: Mapping[str, Any], context: Context | None = None) -> None:
        """Let the process of now work on a message of the queue."""
        event = events.queue(received, self.cloud.resources.queue_arn)
        try:
            runner.run(event, context or Context(), house=lambda: self.house)
        except Died:
            self.stuck.append(dict(received))
            self.revive(died=True)
        except RuntimeError:  # the runner's way to say that the message must come again
            self._show(received)
        else:
            self._delete(received)

    def drain(self) -> None:
        """Deliver until no wake-up is visible."""
        while self.deliver():
            pass

    def sweep(self, seconds: float = SWEEP_SECONDS) -> None:
        """Let time pass, and the sweep run."""
        self.clock.sleep(seconds)
        self.sweeps += 1
        try:
            self.house.sweep.run()
        except Died:
            self.revive(died=True)
        except RetryLater:
            pass  # the next one will

    def settle(self) -> None:
        """Let everything happen that is still to happen: wake-ups, and sweeps as long as something is due."""
        self.drain()
        for _ in range(SWEEPS_AT_MOST):
            if all(map(self._rests, [self.thread, *self.children()])):
                return
            with nullcontext() if self.sweeps_count else self.tap.outside():
                self.sweep()
            self.drain()
        restless = [ref for ref in (self.thread, *self.children()) if not self._rests(ref)]
        raise AssertionError(f"not quiet after {SWEEPS_AT_MOST} sweeps: {[self._seen(ref) for ref in restless]}")

    def _rests(self, ref: ThreadRef) -> bool:
        with self.tap.outside():
            opened, inbox = self.house.store.open(ref), self.house.store.inbox(ref, limit=1)
        head = opened.head
        return head is None or ((not head.run or bool(head.waiting)) and not head.due_at and not inbox)

    def _seen(self, ref: ThreadRef) -> Any:
        with self.tap.outside():
            return self.house.store.open(ref).head, self.house.store.inbox(ref, limit=9)

    def rest(self) -> None:
        """Let everything happen that is due; what dead runners had received comes once more."""
        self.settle()
        self.redeliver_all()

    def redeliver_all(self) -> None:
        """The visibility of dead runners' messages ends: they come once more."""
        for received in self.stuck:
            self._show(received)
        self.stuck = []
        with self.tap.outside():
            self.drain()

    # -- what can be seen

    def events(self) -> list[dict[str, Any]]:
        """The whole log, as clients see it."""
        found: list[dict[str, Any]] = []
        with self.tap.outside():
            while page := self._page(len(found)):
                found += page
        return found

    def snapshot(self) -> None:
        """Keep what the log says now: it must never say anything else of it."""
        if self.ref is not None and not self.head.deleted_at:
            self.snapshots.append(self.events())

    def _page(self, after: int) -> list[dict[str, Any]]:
        page = self.house.read.events(self.principal, self.thread.id, after=after, limit=1000, wait=0)
        items: list[dict[str, Any]] = page["items"]
        return items

    def revive(self, died: bool) -> None:
        self.deaths += died
        self.tap.is_dead = False
        self.house = self.process()
        self.snapshot()

    def _receive(self) -> dict[str, Any] | None:
        answer = self.cloud.sqs.receive_message(
            QueueUrl=self.cloud.resources.queue_url,
            MaxNumberOfMessages=1,
            WaitTimeSeconds=0,
            MessageSystemAttributeNames=["All"],
        )
        return next(iter(answer.get("Messages", ())), None)

    def _delete(self, received: Mapping[str, Any]) -> None:
        self.cloud.sqs.delete_message(QueueUrl=self.cloud.resources.queue_url, ReceiptHandle=received["ReceiptHandle"])

    def _show(self, received: Mapping[str, Any]) -> None:
        self.cloud.sqs.change_message_visibility(
            QueueUrl=self.cloud.resources.queue_url, ReceiptHandle=received["ReceiptHandle"], VisibilityTimeout=0
        )

    def _empty_queue(self) -> None:
        while (received := self._receive()) is not None:
            self._delete(received)


def say(text: str, delivery: Delivery = Delivery.JOIN) -> Say:
    """A message of one text part."""
    return Say(content=({"type": "text", "text": text},), metadata={}, delivery=delivery)


def _key(key: str) -> Idempotency:
    return Idempotency(key=key, fingerprint=key.ljust(64, "0")[:64])


def _settings(resources: Resources) -> Settings:
    return Settings(
        stage="test",
        table=resources.table,
        queue_url=resources.queue_url,
        bucket=resources.bucket,
        socket_endpoint="http://127.0.0.1:9/_sockets",
        socket_url="ws://127.0.0.1:9/ws",
        secret=b"x" * 32,
        region="us-east-1",
        endpoint=resources.endpoint,
        default_model="offline:echo",
        allowed_origins=(),
        openai_base_url=None,
        openai_api_key=None,
        anthropic_api_key=None,
    )
