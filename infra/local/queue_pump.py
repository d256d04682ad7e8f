"""SQS's event source: takes messages of the FIFO queue and calls the runner, one message a call.

Groups run in parallel, a group serially: the queue itself locks a group while one of its messages is in flight. A
handler that returns has its message deleted; one that raises has it made visible again after a pause that grows with
its receive count, so that the redrive policy moves it to the dead-letter queue in the end. What is still running when
the process stops is given back at once. Polls are short, since the emulator wakes an idle long poll each 100 ms.
"""

import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra.local import events
from infra.local.lambdas import Activity, Function

WORKERS = 32  # concurrent turns on one machine
BUSY_SECONDS = 0.025
IDLE_SECONDS = 0.1
OUTAGE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30


class QueuePump:
    """Started once, stopped once."""

    def __init__(self, sqs: Any, queue_url: str, queue_arn: str, function: Function, activity: Activity) -> None:
        self._sqs, self._url, self._arn = sqs, queue_url, queue_arn
        self._function, self._activity = function, activity
        self._bell = activity.bell()
        self._slots = threading.BoundedSemaphore(WORKERS)
        self._lock = threading.Lock()
        self._in_flight: dict[str, threading.Thread] = {}
        self._stopping = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="queue-pump", daemon=True)

    def start(self) -> None:
        """Begin to take messages."""
        self._poller.start()

    def stop(self, seconds: float) -> None:
        """Take no more; give what runs `seconds` to end, then give its message back to the queue."""
        self._stopping.set()
        self._bell.set()
        deadline = time.monotonic() + seconds
        self._poller.join(seconds)
        for receipt, worker in list(self._in_flight.items()):
            worker.join(max(0.0, deadline - time.monotonic()))
            if worker.is_alive():
                self._show_again(receipt, 0)

    def _poll(self) -> None:
        while not self._stopping.is_set():
            if not self._slots.acquire(timeout=IDLE_SECONDS):
                continue
            received = self._receive()
            if received is None:
                self._slots.release()
            else:
                self._begin(received)

    def _receive(self) -> dict[str, Any] | None:
        """One message, or None after a pause. Never more: one that waits here behind its group would count as tried."""
        try:
            answer = self._sqs.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=1,
                WaitTimeSeconds=0,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
        except (BotoCoreError, ClientError) as error:
            self._say(f"cannot read the queue: {error}")
            self._stopping.wait(OUTAGE_SECONDS)
            return None
        if messages := answer.get("Messages"):
            return dict(messages[0])
        self._bell.wait(BUSY_SECONDS if self._activity.busy else IDLE_SECONDS)
        self._bell.clear()
        return None

    def _begin(self, received: dict[str, Any]) -> None:
        worker = threading.Thread(target=self._work, args=(received,), name="runner", daemon=True)
        with self._lock:
            self._in_flight[received["ReceiptHandle"]] = worker
        worker.start()

    def _work(self, received: Mapping[str, Any]) -> None:
        receipt = received["ReceiptHandle"]
        try:
            self._function(events.queue(received, self._arn), ring=False)
        except Exception:  # noqa: BLE001 - the function failed: told on stderr, and the message comes again
            traceback.print_exc()
            tries = int(received["Attributes"].get("ApproximateReceiveCount", "1"))
            self._show_again(receipt, min(2 ** (tries - 1), LONGEST_PAUSE_SECONDS))
        else:
            self._delete(receipt)
        finally:
            with self._lock:
                self._in_flight.pop(receipt, None)
            self._slots.release()
            self._activity.ring()

    def _delete(self, receipt: str) -> None:
        try:
            self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=receipt)
        except (BotoCoreError, ClientError) as error:
            self._say(f"cannot delete a message, it will come again: {error}")

    def _show_again(self, receipt: str, seconds: int) -> None:
        try:
            self._sqs.change_message_visibility(QueueUrl=self._url, ReceiptHandle=receipt, VisibilityTimeout=seconds)
        except (BotoCoreError, ClientError) as error:
            self._say(f"cannot give a message back, it comes again when its visibility ends: {error}")

    def _say(self, text: str) -> None:
        if not self._stopping.is_set():
            print(f"queue pump: {text}", flush=True)
