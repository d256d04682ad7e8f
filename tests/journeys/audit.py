"""The audit of a thread's whole log against the rules that hold for every log, whatever happened in it.

It reads envelopes as clients see them, with large fields put back, and the stored messages; it knows the contract and
nothing of the house but the table of event types. It answers sentences, one a fault, and no sentence for a sound log:

    numbers contiguous from 1, event ids used once     one terminal event a run, after run.queued and run.started,
    known types with all their fields                  and nothing of the run behind it
    deltas are the beginning of the message            messages and tool calls closed before it, each once
    idle only when nothing is queued or running        pending joins taken in once
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from chalicelib.client import Thread
from chalicelib.domain.events import FIELDS, TERMINAL, is_known
from chalicelib.domain.fold import fold
from tests.journeys.product import Talk

Body = Mapping[str, Any]

#: What may be told of a run after its end: later edits belong to the thread (I5).
_LATER = ("message.updated", "message.deleted")


class Audit:
    """Feed it the events of a thread in order, then read `faults`."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._seen: set[str] = set()
        self._queued: set[str] = set()
        self._started: set[str] = set()
        self._ended: dict[str, str] = {}
        self._pending: set[str] = set()
        self._complete: set[str] = set()
        self._streams: dict[str, tuple[str, str]] = {}
        self._calls: dict[str, str] = {}
        self._closed_calls: set[str] = set()
        self.state = "idle"

    def feed(self, number: int, event: Body) -> None:
        """Take the event at a place, counted from 1, into account."""
        at = f"{number} {event['type']}"
        self._check_envelope(number, at, event)
        run = event.get("run_id")
        self._fault_if(
            run in self._ended and not event["type"].startswith(("thread.", "child.")) and event["type"] not in _LATER,
            f"{at}: follows the end of {run}",
        )
        for kind, look in _LOOKS:
            if event["type"] == kind or (kind == "end" and event["type"] in TERMINAL):
                look(self, at, event)

    def settle(self) -> None:
        """The log is over and the thread at rest: nothing may be open."""
        left = (self._queued | self._started) - self._ended.keys()
        self.faults += [f"{run} has no end" for run in sorted(left)]
        self.faults += [f"{message} stayed pending" for message in sorted(self._pending)]
        self._fault_if(self.state == "running", "the last status is running")

    def _check_envelope(self, number: int, at: str, event: Body) -> None:
        self._fault_if(event["delivery_seq"] != number, f"{at}: has number {event['delivery_seq']}")
        self._fault_if(event["event_id"] in self._seen, f"{at}: its id was used before")
        self._seen.add(event["event_id"])
        self._fault_if(event["schema_version"] != 1, f"{at}: schema version")
        instant = event["ts"]
        self._fault_if(type(instant) is not int or not 10**15 < instant < 10**16, f"{at}: ts {instant} in microseconds")
        self._fault_if(not is_known(event["type"]), f"{at}: unknown type")
        missing = set(FIELDS.get(event["type"], ())) - event["data"].keys()
        self._fault_if(bool(missing), f"{at}: without {sorted(missing)}")

    def _fault_if(self, wrong: bool, sentence: str) -> None:
        if wrong:
            self.faults.append(sentence)

    # -- one look at each type that opens or closes something

    def on_status(self, at: str, event: Body) -> None:
        """Rest is told only when nothing is queued, running or pending."""
        self.state = event["data"]["state"]
        busy = (self._queued | self._started) - self._ended.keys() | self._pending
        self._fault_if(self.state != "running" and bool(busy), f"{at}: {self.state} with {sorted(busy)}")

    def on_queued(self, at: str, event: Body) -> None:
        """A run is accepted once."""
        self._fault_if(event["run_id"] in self._queued, f"{at}: a second time")
        self._queued.add(event["run_id"])

    def on_started(self, at: str, event: Body) -> None:
        """A run starts once, after it was accepted, while no other is being worked on."""
        run, busy = event["run_id"], self._started - self._ended.keys()
        self._fault_if(run in self._started, f"{at}: a second time")
        self._fault_if(run not in self._queued, f"{at}: never queued")
        self._fault_if(bool(busy - {run}), f"{at}: while {sorted(busy)} is being worked on")
        self._started.add(run)

    def on_end(self, at: str, event: Body) -> None:
        """A run ends once, with everything of it closed."""
        run = event["run_id"]
        self._fault_if(run in self._ended, f"{at}: a second end")
        self._ended[run] = event["type"]
        open_streams = [message for message, (owner, _) in self._streams.items() if owner == run]
        open_calls = [call for call, owner in self._calls.items() if owner == run]
        self._fault_if(bool(open_streams or open_calls), f"{at}: {open_streams + open_calls} still open")

    def on_pending(self, at: str, event: Body) -> None:
        """A message waits to be taken in."""
        self._pending.add(event["data"]["message"]["id"])

    def on_begun(self, at: str, event: Body) -> None:
        """An answer begins, or begins anew."""
        self._streams[event["data"]["message_id"]] = (event["run_id"], "")

    def on_reset(self, at: str, event: Body) -> None:
        """What was streamed is superseded."""
        self._streams.pop(event["data"]["message_id"], None)

    def on_delta(self, at: str, event: Body) -> None:
        """A piece of an answer that is open."""
        message = event["data"]["message_id"]
        self._fault_if(message not in self._streams, f"{at}: of a message that is not open")
        owner, so_far = self._streams.get(message, (event["run_id"], ""))
        self._streams[message] = (owner, so_far + event["data"]["text"])

    def on_complete(self, at: str, event: Body) -> None:
        """A message is whole, once; what was streamed of it is its beginning."""
        message = event["data"]["message"]
        self._fault_if(message["id"] in self._complete, f"{at}: a second time")
        self._complete.add(message["id"])
        self._pending.discard(message["id"])
        _, streamed = self._streams.pop(message["id"], ("", ""))
        words = "".join(part["text"] for part in message["content"] if part["type"] == "text")
        self._fault_if(not words.startswith(streamed), f"{at}: deltas {streamed[:40]!r} of {words[:40]!r}")

    def on_tool(self, at: str, event: Body) -> None:
        """A call starts once and never after its end."""
        call = event["data"]["call_id"]
        self._fault_if(call in self._calls or call in self._closed_calls, f"{at}: {call} a second time")
        self._calls[call] = event["run_id"]

    def on_result(self, at: str, event: Body) -> None:
        """A call ends once; one that never ran ends without a start."""
        call = event["data"]["call_id"]
        self._fault_if(call in self._closed_calls, f"{at}: {call} a second time")
        self._closed_calls.add(call)
        self._calls.pop(call, None)


_LOOKS: Sequence[tuple[str, Callable[[Audit, str, Body], None]]] = (
    ("thread.status", Audit.on_status),
    ("run.queued", Audit.on_queued),
    ("run.started", Audit.on_started),
    ("end", Audit.on_end),
    ("message.queued", Audit.on_pending),
    ("message.started", Audit.on_begun),
    ("message.reset", Audit.on_reset),
    ("message.delta", Audit.on_delta),
    ("message.completed", Audit.on_complete),
    ("tool.started", Audit.on_tool),
    ("tool.completed", Audit.on_result),
)


def audit(log: Iterable[Body], *, settled: bool = True) -> list[str]:
    """The faults of a whole log. `settled`: nothing is queued or running any more."""
    auditor = Audit()
    for number, event in enumerate(log, start=1):
        auditor.feed(number, event)
    if settled:
        auditor.settle()
    return auditor.faults


def unpaired(messages: Sequence[Body]) -> list[str]:
    """The faults of a stored conversation in the pairing of calls and results (I6)."""
    faults = []
    following = [*messages[1:], {"role": "", "content": []}]
    for message, behind in zip(messages, following, strict=True):
        asked = _ids(message, "tool_call")
        answered = _ids(behind, "tool_result") if behind["role"] == "tool" else []
        if asked != answered and (asked or message["role"] != "tool"):
            faults.append(f"{message['id']}: calls {asked}, results behind them {answered}")
    every = Counter(call for message in messages for call in _ids(message, "tool_call"))
    return faults + [f"call id {call} is used {count} times" for call, count in every.items() if count > 1]


def blank_texts(messages: Sequence[Body]) -> Iterator[str]:
    """Ids of stored messages that hold an empty text part."""
    for message in messages:
        if any(part["type"] == "text" and not part["text"] for part in message["content"]):
            yield message["id"]


def _ids(message: Body, kind: str) -> list[str]:
    return [part["call_id"] for part in message["content"] if part["type"] == kind]


def assert_sound(talk: Talk) -> Thread:
    """The thread once it is at rest: its log has no fault, says what is stored, and no model was asked unfairly."""
    thread = talk.settled()
    whole, messages = talk.whole(), talk.messages()
    assert audit(whole) == []
    assert unpaired(messages) == []
    assert list(blank_texts(messages)) == []
    for asked in talk.asked() if talk.watch else ():
        assert unpaired(asked) == []
        assert list(blank_texts(asked)) == []
    folded = fold(whole)
    assert folded.messages == messages
    assert (folded.status, folded.queue) == (thread["status"], thread["queue"])
    assert [folded.thread[name] for name in _THREAD] == [thread.get(name) for name in _THREAD]
    stored = {run["id"]: run for run in talk.runs()}
    assert folded.runs == {n: {name: stored[n].get(name) for name in run} for n, run in folded.runs.items()}
    assert stored.keys() == folded.runs.keys()
    return thread


_THREAD = ("agent", "title", "tags", "arguments")
