"""Events -> state: the proof that the log tells the whole story (spec section 5, invariant I4).

It reads envelopes as clients see them and nothing else: no records, no store; large fields come through `blob`. It
guarantees that folding page by page equals folding at once, that an event told twice counts once, and that a hole in
the log is an error and never a wrong state.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from chalicelib.domain.events import TERMINAL
from chalicelib.domain.model import Role, RunStatus, State

Body = dict[str, Any]
Blob = Callable[[str], Any]

_COMMAND_NUMBER = re.compile(r"_c([0-9]+)\Z")
_REFERENCE = {"ref": str, "bytes": int, "sha256": str, "content_type": str}  # spec section 5: what stands for a field
_MICRO = 1_000_000
_ENDS = {
    "run.completed": RunStatus.COMPLETED,
    "run.failed": RunStatus.FAILED,
    "run.cancelled": RunStatus.CANCELLED,
}


class LogGap(ValueError):
    """An event is missing: a fold needs every event from 1."""


@dataclass(frozen=True, kw_only=True)
class Folded:
    """A thread as its events tell it. Bodies have the form of spec section 3.

    `messages`: those in their place in the order of the conversation, then those that wait for one, by command number;
    `pending`: ids of those that no run has taken in. `runs`: id -> what the events say of a run, `usage` and `cost_usd`
    being sums of its model steps. `streaming`: text so far of answers that are not complete. `cost_usd` is None once a
    price was unknown.
    """

    seq: int
    agent: str | None
    title: str | None
    tags: list[str]
    arguments: Any
    thread: Body
    status: Body
    messages: list[Body]
    pending: list[str]
    queue: Body
    runs: dict[str, Body]
    files: dict[str, Body]
    children: dict[str, Body]
    streaming: dict[str, str]
    usage: Body
    cost_usd: float | None


def fold(events: Iterable[Mapping[str, Any]], blob: Blob | None = None) -> Folded:
    """State of a thread from its events, from number 1 on. Raises LogGap.

    `blob` gives the JSON value of a large field by its `ref`; without it the reference stays in the field's place.
    """
    return Fold(blob).feed(events).folded()


class Fold:
    """A fold in the works, for pages: `Fold(blob).feed(page).feed(page).folded()`."""

    def __init__(self, blob: Blob | None = None) -> None:
        self._blob = blob
        self._seq = 0
        self._thread: Body = {"agent": None, "title": None, "tags": [], "arguments": None}
        self._status: Body = {"state": State.IDLE.value, "since": 0, "reason": None}
        self._placed: dict[str, Body] = {}
        self._waiting: dict[str, Body] = {}
        self._waits_for: dict[str, str] = {}
        self._queued: dict[str, Body] = {}
        self._runs: dict[str, Body] = {}
        self._micro: dict[str, int | None] = {}
        self._files: dict[str, Body] = {}
        self._children: dict[str, Body] = {}
        self._streaming: dict[str, str] = {}

    def feed(self, events: Iterable[Mapping[str, Any]]) -> "Fold":
        """Take the next events in; what was told before is passed over."""
        for event in events:
            if event["delivery_seq"] > self._seq:
                self._take(event)
        return self

    def folded(self) -> Folded:
        """The state after the events so far; the fold may go on afterwards."""
        unplaced = sorted([*self._waiting.values(), *self._queued.values()], key=_command_number)
        runs = {number: {**run, "cost_usd": _money([self._micro[number]])} for number, run in self._runs.items()}
        return Folded(
            seq=self._seq,
            agent=self._thread["agent"],
            title=self._thread["title"],
            tags=list(self._thread["tags"]),
            arguments=self._thread["arguments"],
            thread=dict(self._thread),
            status=dict(self._status),
            messages=[dict(message) for message in (*self._placed.values(), *unplaced)],
            pending=[message["id"] for message in sorted(self._queued.values(), key=_command_number)],
            queue={
                "pending": len(self._queued),
                "runs": sum(run["status"] == RunStatus.QUEUED.value for run in runs.values()),
            },
            runs=runs,
            files={path: dict(file) for path, file in self._files.items()},
            children={reference: dict(child) for reference, child in self._children.items()},
            streaming=dict(self._streaming),
            usage=_total(run["usage"] for run in runs.values()),
            cost_usd=_money(self._micro.values()),
        )

    def _take(self, event: Mapping[str, Any]) -> None:
        if event["delivery_seq"] != self._seq + 1:
            raise LogGap(f"event {self._seq + 1} is missing before {event['delivery_seq']}")
        self._seq = event["delivery_seq"]
        family, _, verb = event["type"].partition(".")
        take = _FAMILIES.get(family)
        if take is not None:
            take(self, verb, self._opened(event), event)

    def _opened(self, event: Mapping[str, Any]) -> Body:
        """The event's data with references to object storage replaced by what they stand for."""
        data = {name: self._resolved(value) for name, value in self._resolved(event["data"]).items()}
        if isinstance(data.get("message"), dict):
            data["message"] = {name: self._resolved(value) for name, value in data["message"].items()}
        return data

    def _resolved(self, value: Any) -> Any:
        if self._blob is None or not isinstance(value, dict):
            return value
        refers = all(isinstance(value.get(name), kind) for name, kind in _REFERENCE.items())
        return self._blob(value["ref"]) if refers else value

    def _on_thread(self, verb: str, data: Body, event: Mapping[str, Any]) -> None:
        if verb == "created":
            self._thread.update(data)
            self._status["since"] = event["ts"]
        elif verb == "updated":
            self._thread.update(data)
            if self._thread.get("played_by") == self._thread["agent"]:
                del self._thread["played_by"]  # handed back to its own
        elif verb == "status":
            self._status = {name: data[name] for name in ("state", "since", "reason")}
        elif verb == "terminated":
            self._thread["terminated_at"] = event["ts"]
        elif verb == "forked":
            self._thread["forked_from"] = {"thread_id": data["from_thread"], "at_seq": data["at_seq"]}

    def _on_message(self, verb: str, data: Body, event: Mapping[str, Any]) -> None:
        if verb == "completed":
            self._complete(data["message"], event)
        elif verb == "queued":
            self._queued[data["message"]["id"]] = data["message"]
        elif verb == "updated":
            self._replace(data["message"])
        elif verb == "deleted":
            self._delete(data["message_id"])
        elif verb in ("started", "reset"):
            self._streaming[data["message_id"]] = ""
        elif verb == "delta":
            self._streaming[data["message_id"]] = self._streaming.get(data["message_id"], "") + data["text"]

    def _complete(self, message: Body, event: Mapping[str, Any]) -> None:
        """A whole message: in its place now, or at the start of its run if that is still to come."""
        number = message["id"]
        self._streaming.pop(number, None)
        self._queued.pop(number, None)
        run = message.get("run_id") or event.get("run_id")
        if message["role"] == Role.TOOL:
            self._place_behind_calls(message)
        elif not _COMMAND_NUMBER.search(number) or not run or self._has_begun(run) or number in self._placed:
            self._placed[number] = message
        else:
            self._waiting[number] = message
            self._waits_for[number] = run

    def _place_behind_calls(self, message: Body) -> None:
        """Results stand directly behind their calls, whatever was placed between the two moments."""
        results = {part.get("call_id") for part in message["content"]}
        order = list(self._placed.values())
        at = next((n for n in reversed(range(len(order))) if _call_ids(order[n]) & results), len(order) - 1)
        order.insert(at + 1, message)
        self._placed = {one["id"]: one for one in order}

    def _has_begun(self, run: str) -> bool:
        return run in self._runs and self._runs[run]["status"] != RunStatus.QUEUED.value

    def _replace(self, message: Body) -> None:
        for shelf in (self._placed, self._waiting, self._queued):
            if message["id"] in shelf:
                shelf[message["id"]] = message

    def _delete(self, number: str) -> None:
        """Forget a message, and with one that made calls the results behind it."""
        order = list(self._placed)
        gone = self._placed.pop(number, None)
        self._waiting.pop(number, None)
        self._queued.pop(number, None)
        if gone is None or not _has_calls(gone):
            return
        following = order[order.index(number) + 1 :][:1]
        if following and self._placed[following[0]]["role"] == Role.TOOL:
            del self._placed[following[0]]

    def _on_run(self, verb: str, data: Body, event: Mapping[str, Any]) -> None:
        run = self._run(event["run_id"])
        run["attempts"] = max(run["attempts"], event.get("attempt", 0))
        if event["type"] in TERMINAL:
            self._end(run, data, event)
        elif verb == "queued":
            run.update({name: data[name] for name in ("command_id", "parent_run_id") if name in data})
        elif verb in ("started", "resumed"):
            run.update(status=RunStatus.RUNNING.value, reason=None)
            run.update({name: data[name] for name in ("agent", "model", "version") if name in data})
            self._place(run["id"])
        elif verb == "waiting":
            run.update(status=RunStatus.WAITING.value, reason=data["reason"])

    def _end(self, run: Body, data: Body, event: Mapping[str, Any]) -> None:
        run.update(status=_ENDS[event["type"]].value, reason=data["reason"])
        if "error" in data:
            run["error"] = data["error"]
        self._place(run["id"])
        self._streaming.clear()
        if data.get("superseded"):
            for number, message in self._placed.items():
                if message.get("run_id") == run["id"]:
                    self._placed[number] = {**message, "superseded": True}

    def _place(self, run: str) -> None:
        """Give the messages that waited for a run their place, in accepted order."""
        ready = [message for number, message in self._waiting.items() if self._waits_for[number] == run]
        for message in sorted(ready, key=_command_number):
            self._placed[message["id"]] = self._waiting.pop(message["id"])

    def _run(self, number: str) -> Body:
        fresh: Body = {
            "id": number,
            "status": RunStatus.QUEUED.value,
            "reason": None,
            "attempts": 0,
            "usage": {"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0},
        }
        self._micro.setdefault(number, 0)
        return self._runs.setdefault(number, fresh)

    def _on_usage(self, verb: str, data: Body, event: Mapping[str, Any]) -> None:
        run = self._run(event["run_id"])
        run["usage"] = _total((run["usage"], data))
        cost, before = data.get("cost_usd"), self._micro[run["id"]]
        self._micro[run["id"]] = None if cost is None or before is None else before + round(cost * _MICRO)

    def _on_file(self, verb: str, data: Body, event: Mapping[str, Any]) -> None:
        if data["change"] == "deleted":
            self._files.pop(data["path"], None)
        else:
            self._files[data["path"]] = {name: data.get(name) for name in ("bytes", "sha256")}

    def _on_child(self, verb: str, data: Body, event: Mapping[str, Any]) -> None:
        self._children.setdefault(data["reference_id"], {}).update(data)


_FAMILIES: Mapping[str, Callable[[Fold, str, Body, Mapping[str, Any]], None]] = {
    "thread": Fold._on_thread,
    "message": Fold._on_message,
    "run": Fold._on_run,
    "usage": Fold._on_usage,
    "file": Fold._on_file,
    "child": Fold._on_child,
}


def _command_number(message: Body) -> int:
    found = _COMMAND_NUMBER.search(message["id"])
    return int(found.group(1)) if found else 0


def _call_ids(message: Body) -> set[Any]:
    return {part["call_id"] for part in message["content"] if part["type"] == "tool_call"}


def _has_calls(message: Body) -> bool:
    return any(part["type"] == "tool_call" for part in message["content"])


def _total(parts: Iterable[Mapping[str, Any]]) -> Body:
    total = {"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0}
    for part in parts:
        total = {name: count + part.get(name, 0) for name, count in total.items()}
    return total


def _money(micro: Iterable[int | None]) -> float | None:
    """USD of micro-USD; unknown if one of them is."""
    known = list(micro)
    return None if None in known else sum(one for one in known if one is not None) / _MICRO
