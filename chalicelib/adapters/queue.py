"""The Queue port on SQS FIFO: wake-ups that carry ids and never the work (I11: a body does not grow with anything).

Message group: thread and epoch, so that one thread's wake-ups are delivered one after another, and a new epoch does not
wait behind the message of a dead runner. Deduplication: thread and wake number. Both are hashed, because SQS takes at
most 128 characters of a small alphabet.
"""

import json
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from chalicelib.adapters.clients import Clients
from chalicelib.adapters.keys import digest
from chalicelib.domain.errors import RetryLater
from chalicelib.domain.ids import ThreadRef

BODY_VERSION = 1
ATTEMPTS = 2  # the stored row wakes again by its due time; nobody needs to wait for a third try


class SqsQueue:
    """`ports.Queue` on a FIFO queue."""

    def __init__(self, clients: Clients, url: str) -> None:
        self._clients = clients
        self._url = url

    def wake(self, ref: ThreadRef, *, epoch: int, number: int) -> None:
        """See the port. The window of deduplication is five minutes (SQS FIFO)."""
        body = {"v": BODY_VERSION, "kind": "wake", "org": ref.org, "thread": ref.id}
        self._send(
            body,
            group=digest("group", ref.org, ref.token, str(epoch)).hex(),
            once=digest("wake", ref.org, ref.token, str(number)).hex(),
        )

    def wake_inbox(self, ref: ThreadRef, report: str) -> None:
        """See the port. A group of its own: it needs no epoch, so that nobody has to read the head to send it."""
        body = {"v": BODY_VERSION, "kind": "wake", "org": ref.org, "thread": ref.id}
        self._send(
            body,
            group=digest("inbox", ref.org, ref.token).hex(),
            once=digest("inbox", ref.org, ref.token, report).hex(),
        )

    def wake_effect(self, ref: ThreadRef, effect_id: str, *, number: int) -> None:
        """See the port. Each effect is a group of its own: none waits behind a turn, and no turn behind one."""
        body = {"v": BODY_VERSION, "kind": "effect", "org": ref.org, "thread": ref.id, "effect": effect_id}
        self._send(
            body,
            group=digest("effect", ref.org, effect_id, str(number)).hex(),
            once=digest("effect", ref.org, effect_id, str(number)).hex(),
        )

    def _send(self, body: Mapping[str, Any], *, group: str, once: str) -> None:
        try:
            self._clients.client("sqs", attempts=ATTEMPTS).send_message(
                QueueUrl=self._url,
                MessageBody=json.dumps(body, separators=(",", ":")),
                MessageGroupId=group,
                MessageDeduplicationId=once,
            )
        except (BotoCoreError, ClientError) as error:
            raise RetryLater("The wake-up could not be sent.", retry_after_seconds=1) from error
