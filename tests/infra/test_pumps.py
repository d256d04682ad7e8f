"""Queue, stream and schedule against a real emulator: order, parallel groups, retries, dead letters, restarts."""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.local import resources
from infra.local.lambdas import Activity, Function
from infra.local.queue_pump import QueuePump
from infra.local.resources import Resources, client
from infra.local.stream_pump import Source, StreamPump
from infra.local.ticker import Ticker
from tests.infra.conftest import until

Handler = Callable[[dict[str, Any], Any], Any]


@pytest.fixture
def cloud(emulator: str) -> Resources:
    """Table, queues and bucket of this test alone."""
    return resources.create(emulator, f"turnlog-{uuid.uuid4().hex[:8]}")


class Bench:
    """Starts pumps over one cloud and stops them all."""

    def __init__(self, cloud: Resources, folder: Path) -> None:
        self.cloud, self._folder = cloud, folder
        self.sqs, self._dynamodb = client("sqs", cloud.endpoint), client("dynamodb", cloud.endpoint)
        self._started: list[QueuePump | StreamPump] = []

    def queue(self, handler: Handler) -> QueuePump:
        activity = Activity()
        function = Function(name="run_turn", handler=handler, seconds=900, activity=activity)
        pump = QueuePump(self.sqs, self.cloud.queue_url, self.cloud.queue_arn, function, activity)
        self._start(pump)
        return pump

    def stream(self, handler: Handler, **settings: Any) -> StreamPump:
        activity = Activity()
        function = Function(name="fan_out", handler=handler, seconds=60, activity=activity)
        source = Source(**{"batch_size": 100, "retries": 2, "filters": [], **settings})
        streams = client("dynamodbstreams", self.cloud.endpoint)
        checkpoint = self._folder / "stream.json"
        arn = self.cloud.stream_arn
        pump = StreamPump(streams, arn, function, activity, settings=source, checkpoint=checkpoint)
        self._start(pump)
        return pump

    def _start(self, pump: QueuePump | StreamPump) -> None:
        self._started.append(pump)
        pump.start()

    def send(self, group: str, *bodies: str) -> None:
        for body in bodies:
            self.sqs.send_message(QueueUrl=self.cloud.queue_url, MessageBody=body, MessageGroupId=group)

    def put(self, *names: str) -> None:
        for name in names:
            item = {"pk": {"S": "row"}, "sk": {"S": name}, "raw": {"B": b"\x00"}}
            self._dynamodb.put_item(TableName=self.cloud.table, Item=item)

    def stop(self) -> None:
        for pump in self._started:
            pump.stop(1)


@pytest.fixture
def bench(cloud: Resources, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(cloud, tmp_path)
    yield made
    made.stop()


def _body(event: dict[str, Any]) -> str:
    (record,) = event["Records"]
    return str(record["body"])


def _names(event: dict[str, Any]) -> list[str]:
    return [record["dynamodb"]["Keys"]["sk"]["S"] for record in event["Records"]]


def test_creating_the_resources_again_changes_nothing(cloud: Resources) -> None:
    assert resources.create(cloud.endpoint, cloud.table) == cloud


def test_the_queue_has_the_settings_of_the_template(bench: Bench) -> None:
    got = bench.sqs.get_queue_attributes(QueueUrl=bench.cloud.queue_url, AttributeNames=["All"])["Attributes"]
    assert (got["FifoQueue"], got["VisibilityTimeout"]) == ("true", "960")
    assert (got["DeduplicationScope"], got["FifoThroughputLimit"]) == ("messageGroup", "perMessageGroupId")
    assert json.loads(got["RedrivePolicy"])["maxReceiveCount"] == 10


def test_a_group_is_served_in_order_and_groups_in_parallel(bench: Bench) -> None:
    seen: list[str] = []
    both, first_of = threading.Barrier(2, timeout=10), {"a0", "b0"}

    def handler(event: dict[str, Any], _context: Any) -> None:
        if _body(event) in first_of:
            both.wait()  # breaks unless the first messages of both groups are at work at once
        seen.append(_body(event))

    bench.send("a", "a0", "a1", "a2")
    bench.send("b", "b0", "b1", "b2")
    bench.queue(handler)
    until(lambda: len(seen) == 6)
    assert [name for name in seen if name[0] == "a"] == ["a0", "a1", "a2"]
    assert [name for name in seen if name[0] == "b"] == ["b0", "b1", "b2"]


def test_a_group_never_runs_twice_at_once(bench: Bench) -> None:
    running, most, done = 0, 0, 0

    def handler(_event: dict[str, Any], _context: Any) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        threading.Event().wait(0.02)
        running -= 1
        done += 1

    bench.send("a", *map(str, range(8)))
    bench.queue(handler)
    until(lambda: done == 8)
    assert most == 1


def test_a_message_whose_handler_raises_comes_again_before_the_rest_of_its_group(bench: Bench) -> None:
    seen: list[tuple[str, str]] = []

    def handler(event: dict[str, Any], _context: Any) -> None:
        count = event["Records"][0]["attributes"]["ApproximateReceiveCount"]
        seen.append((_body(event), count))
        if count == "1" and _body(event) == "first":
            raise RuntimeError("not yet")

    bench.send("a", "first", "second")
    bench.queue(handler)
    until(lambda: len(seen) == 3)
    assert seen == [("first", "1"), ("first", "2"), ("second", "1")]


def test_a_message_that_fails_too_often_is_a_dead_letter(bench: Bench) -> None:
    dead_url = bench.cloud.queue_url.replace(".fifo", "-dead.fifo")
    policy = {
        "deadLetterTargetArn": bench.cloud.queue_arn.replace(".fifo", "-dead.fifo"),
        "maxReceiveCount": 1,
    }
    bench.sqs.set_queue_attributes(QueueUrl=bench.cloud.queue_url, Attributes={"RedrivePolicy": json.dumps(policy)})

    def handler(_event: dict[str, Any], _context: Any) -> None:
        raise RuntimeError("never")

    bench.send("a", "poison")
    bench.queue(handler)
    bodies: list[str] = []

    def look() -> list[str]:
        found = bench.sqs.receive_message(QueueUrl=dead_url).get("Messages", [])
        bodies.extend(message["Body"] for message in found)
        return bodies

    until(look)
    assert bodies == ["poison"]


def test_what_runs_when_the_pump_stops_is_given_back_at_once(bench: Bench) -> None:
    begun, forever, seen = threading.Event(), threading.Event(), []

    def stuck(_event: dict[str, Any], _context: Any) -> None:
        begun.set()
        forever.wait(20)

    bench.send("a", "work")
    pump = bench.queue(stuck)
    assert begun.wait(10)
    pump.stop(0.1)
    bench.queue(lambda event, _context: seen.append(_body(event)))
    until(lambda: seen == ["work"])
    forever.set()


def test_the_runner_sees_lambdas_time_and_none_once_the_process_stops() -> None:
    activity, left = Activity(), []

    def handler(_event: dict[str, Any], context: Any) -> None:
        left.append(context.get_remaining_time_in_millis())
        activity.stopping.set()
        left.append(context.get_remaining_time_in_millis())

    Function(name="run_turn", handler=handler, seconds=900, activity=activity)({})
    assert 890_000 < left[0] <= 900_000
    assert left[1] == 0


def test_the_stream_arrives_in_order_also_what_was_written_before_the_pump_began(bench: Bench) -> None:
    seen: list[str] = []
    names = [f"{number:03}" for number in range(120)]
    bench.put(*names[:60])
    bench.stream(lambda event, _context: seen.extend(_names(event)), batch_size=25)
    bench.put(*names[60:])
    until(lambda: len(seen) >= 120)
    assert seen == names


def test_a_stream_record_has_the_shape_of_lambda(bench: Bench) -> None:
    seen: list[dict[str, Any]] = []
    bench.stream(lambda event, _context: seen.extend(event["Records"]))
    bench.put("a")
    until(lambda: seen)
    record = json.loads(json.dumps(seen[0]))
    assert (record["eventName"], record["eventSourceARN"]) == ("INSERT", bench.cloud.stream_arn)
    assert record["dynamodb"]["NewImage"] == {"pk": {"S": "row"}, "sk": {"S": "a"}, "raw": {"B": "AA=="}}
    assert record["dynamodb"]["SequenceNumber"]


def test_filtered_records_never_reach_the_handler(bench: Bench) -> None:
    seen: list[str] = []
    filters = [{"dynamodb": {"Keys": {"sk": {"S": [{"prefix": "yes"}]}}}}]
    bench.stream(lambda event, _context: seen.extend(_names(event)), filters=filters)
    bench.put("no-1", "yes-1", "no-2", "yes-2")
    until(lambda: len(seen) == 2)
    assert seen == ["yes-1", "yes-2"]


def test_a_batch_that_fails_is_cut_until_the_bad_record_stands_alone_and_is_skipped(bench: Bench) -> None:
    seen: list[str] = []

    def handler(event: dict[str, Any], _context: Any) -> None:
        if "bad" in _names(event):
            raise RuntimeError("cannot read this one")
        seen.extend(_names(event))

    bench.put("a", "b", "bad", "c")
    bench.stream(handler, retries=1)
    bench.put("d")
    until(lambda: "d" in seen)
    assert seen == ["a", "b", "c", "d"]


def test_a_new_pump_goes_on_where_the_last_one_ended(bench: Bench) -> None:
    first: list[str] = []
    second: list[str] = []
    pump = bench.stream(lambda event, _context: first.extend(_names(event)))
    bench.put("a", "b")
    until(lambda: first == ["a", "b"])
    pump.stop(2)
    bench.put("c", "d")
    bench.stream(lambda event, _context: second.extend(_names(event)))
    until(lambda: second == ["c", "d"])


def test_the_sweep_fires_at_once_and_goes_on_after_a_crash() -> None:
    fired: list[dict[str, Any]] = []

    def handler(event: dict[str, Any], _context: Any) -> None:
        fired.append(event)
        raise RuntimeError("a bad sweep")

    ticker = Ticker(Function(name="sweep", handler=handler, seconds=60, activity=Activity()), period=0.01)
    ticker.start()
    until(lambda: len(fired) >= 3)
    ticker.stop(2)
    assert fired[0]["source"] == "aws.events"
    assert time.strptime(fired[0]["time"], "%Y-%m-%dT%H:%M:%SZ")
