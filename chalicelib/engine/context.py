"""What the model is shown: a window of recent turns with pairing repaired. Reading it costs the window, not the thread.

Stored prompts hold what the user wrote; the assembled context is never stored.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from chalicelib.domain import pairing, wire
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import Head, Message

#: Newest messages that are read for a turn; one batch read takes 100 keys and two are the command and the about row.
WINDOW_MESSAGES = 64
#: Bytes of JSON of the window that is sent to a model: about 125,000 tokens, within the context of current models.
WINDOW_BYTES = 500_000


def window_places(head: Head) -> range:
    """Places of the messages that the window reads."""
    return range(max(1, head.messages - WINDOW_MESSAGES + 1), head.messages + 1)


def assemble(ref: ThreadRef, messages: Iterable[Message]) -> tuple[Mapping[str, Any], ...]:
    """Message bodies for the model, oldest first, from stored messages in order of place."""
    usable = [wire.message_body(ref, m) for m in messages if not m.deleted and not m.superseded]
    repaired = pairing.repair(usable)
    return tuple(pairing.window(repaired, max_messages=WINDOW_MESSAGES, max_bytes=WINDOW_BYTES))
