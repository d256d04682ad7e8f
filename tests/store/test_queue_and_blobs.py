"""Wake-ups and objects, on the emulator's own queue and bucket."""

import hashlib
import json
from typing import Any

import pytest

from chalicelib.adapters.blobs import S3Blobs, name
from chalicelib.adapters.clients import Clients
from chalicelib.adapters.queue import SqsQueue
from chalicelib.adapters.system import SystemIds
from chalicelib.domain.errors import RetryLater
from chalicelib.domain.ids import ThreadRef
from tests.store.kit import thread

DEAD_END = "http://127.0.0.1:1"  # nobody listens on port 1


@pytest.fixture
def clients(emulator: str) -> Clients:
    """Clients that speak to the emulator."""
    return Clients(region="us-east-1", endpoint=emulator)


@pytest.fixture
def queue_url(clients: Clients) -> str:
    """A FIFO queue of this test."""
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    made = clients.client("sqs").create_queue(QueueName=f"{SystemIds().token()}.fifo", Attributes=attributes)
    return str(made["QueueUrl"])


@pytest.fixture
def bucket(clients: Clients) -> str:
    """A bucket of this test."""
    bucket = f"bucket-{SystemIds().token()}"
    clients.client("s3").create_bucket(Bucket=bucket)
    return bucket


def _received(clients: Clients, url: str) -> list[Any]:
    """All messages that can be received; each is deleted, so that its group goes on."""
    found: list[Any] = []
    while (
        batch := clients.client("sqs")
        .receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])
        .get("Messages", [])
    ):
        found += batch
        for message in batch:
            clients.client("sqs").delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return found


def test_a_wake_up_carries_ids_and_nothing_else(clients: Clients, queue_url: str, ref: ThreadRef) -> None:
    SqsQueue(clients, queue_url).wake(ref, epoch=0, number=1)

    (message,) = _received(clients, queue_url)

    assert json.loads(message["Body"]) == {"v": 1, "kind": "wake", "org": ref.org, "thread": ref.id}


def test_a_wake_up_for_an_effect_names_it_and_waits_for_no_turn(
    clients: Clients, queue_url: str, ref: ThreadRef
) -> None:
    queue = SqsQueue(clients, queue_url)
    queue.wake(ref, epoch=0, number=1)
    for number in (1, 1, 2):
        queue.wake_effect(ref, "eff_x", number=number)

    messages = _received(clients, queue_url)

    bodies = [json.loads(message["Body"]) for message in messages if "effect" in message["Body"]]
    assert bodies == [{"v": 1, "kind": "effect", "org": ref.org, "thread": ref.id, "effect": "eff_x"}] * 2
    assert len({message["Attributes"]["MessageGroupId"] for message in messages}) == 3


def test_the_same_wake_up_is_sent_once(clients: Clients, queue_url: str, ref: ThreadRef) -> None:
    queue = SqsQueue(clients, queue_url)
    for number in (1, 1, 2, 1, 2):
        queue.wake(ref, epoch=0, number=number)
    queue.wake(thread(ref.org), epoch=0, number=1)
    queue.wake(ThreadRef("org_other", ref.token), epoch=0, number=1)

    assert len(_received(clients, queue_url)) == 4


def test_threads_and_epochs_do_not_wait_for_each_other(clients: Clients, queue_url: str, ref: ThreadRef) -> None:
    queue = SqsQueue(clients, queue_url)
    queue.wake(ref, epoch=0, number=1)
    queue.wake(ref, epoch=0, number=2)
    queue.wake(ref, epoch=1, number=3)
    queue.wake(thread(ref.org), epoch=0, number=1)

    groups = [message["Attributes"]["MessageGroupId"] for message in _received(clients, queue_url)]

    assert len(groups) == 4
    assert len(set(groups)) == 3
    assert max(len(group) for group in groups) <= 128


def test_a_wake_up_that_cannot_be_sent_says_retry_later(ref: ThreadRef) -> None:
    queue = SqsQueue(Clients(region="us-east-1", endpoint=DEAD_END), f"{DEAD_END}/000000000000/q.fifo")

    with pytest.raises(RetryLater):
        queue.wake(ref, epoch=0, number=1)


def test_a_queue_that_does_not_exist_says_retry_later(clients: Clients, emulator: str, ref: ThreadRef) -> None:
    with pytest.raises(RetryLater):
        SqsQueue(clients, f"{emulator}/000000000000/missing.fifo").wake(ref, epoch=0, number=1)


def test_an_object_comes_back_with_its_type(clients: Clients, bucket: str, ref: ThreadRef) -> None:
    blobs, data = S3Blobs(clients, bucket), bytes(range(256)) * 1_000
    sha256 = hashlib.sha256(data).hexdigest()

    blobs.put(ref, sha256, data, "application/json")
    blobs.put(ref, sha256, data, "application/json")

    assert blobs.get(ref, sha256) == (data, "application/json")


def test_an_object_of_another_thread_or_org_is_not_there(clients: Clients, bucket: str, ref: ThreadRef) -> None:
    blobs = S3Blobs(clients, bucket)
    blobs.put(ref, "hash", b"data", "text/plain")

    assert blobs.get(ref, "other") is None
    assert blobs.get(thread(ref.org), "hash") is None
    assert blobs.get(ThreadRef("org_other", ref.token), "hash") is None


def test_names_of_objects_cannot_be_confused() -> None:
    assert name(ThreadRef("a/b", "c"), "d") != name(ThreadRef("a", "b/c"), "d")
    assert name(ThreadRef("a%2Fb", "c"), "d") != name(ThreadRef("a/b", "c"), "d")
    assert name(ThreadRef("org_a", "token"), "sha") == "org_a/token/sha"


def test_a_store_of_objects_that_does_not_answer_says_retry_later(ref: ThreadRef) -> None:
    blobs = S3Blobs(Clients(region="us-east-1", endpoint=DEAD_END), "bucket")

    with pytest.raises(RetryLater):
        blobs.put(ref, "hash", b"", "text/plain")
    with pytest.raises(RetryLater):
        blobs.get(ref, "hash")


def test_a_client_is_made_once(clients: Clients) -> None:
    assert clients.client("sqs") is clients.client("sqs")
    assert clients.client("sqs") is not clients.client("sqs", endpoint=DEAD_END)
