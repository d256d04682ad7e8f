"""Frames of the websocket: what a client may ask, and how events become frames that the gateway carries.

Pure: envelopes and records in, bytes out. It must not know who reads them or how they are sent. It guarantees that each
frame is one JSON object of UTF-8 below `FRAME_BYTES`, that the frames of a list of events hold exactly these events in
their order, and that the same event is always cut in the same places, so that its parts may be sent twice.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.domain.entries import for_frame
from chalicelib.domain.errors import Fault, InvalidRequest, Refusal
from chalicelib.domain.limits import FRAME_BYTES, KB
from chalicelib.domain.values import dumps

# Ours: what is left free below the gateway's limit, so that nobody's way of counting puts a frame above it.
RESERVE_BYTES = KB
_ROOM = FRAME_BYTES - RESERVE_BYTES
_EVENTS_OPEN, _EVENTS_CLOSE = b'{"type":"events","items":[', b"]}"
_WIDEST = 10**15  # no number in a frame is longer: ids allow 15 digits

Envelope = Mapping[str, Any]


# -- from the server


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Bytes to send. Once they are sent, every event up to `covers` is with the client, its change of status too.

    `whole` is False while a part of a cut event is still to come.
    """

    data: bytes
    covers: int
    whole: bool = True


def frames_of(events: Iterable[Envelope]) -> Iterator[Frame]:
    """The frames of contiguous events, in order: as few as fit, a large event in parts of its own."""
    packed: list[bytes] = []
    size = covers = 0
    for event in events:
        text = dumps(event)
        row = _utf8(text)
        if packed and size + len(row) + 1 > _room_for_rows():
            yield _events_frame(packed, covers)
            packed, size = [], 0
        covers = event["delivery_seq"]
        if len(row) > _room_for_rows():
            yield from _parts(event, text)
        else:
            packed.append(row)
            size += len(row) + 1
    if packed:
        yield _events_frame(packed, covers)


def live_frames(events: Sequence[Envelope], *, known: int = 0) -> Iterator[Frame]:
    """The frames of events as a subscriber gets them: right after a change of status its `thread_status` frame.

    Changes up to the number `known` are left out: the snapshot that the client got is not older than them.
    """
    changes = [event for event in events if event["type"] == "thread.status" and event["delivery_seq"] > known]
    covered = events[0]["delivery_seq"] - 1 if events else 0
    for frame in frames_of(events):
        told = [event for event in changes if covered < event["delivery_seq"] <= frame.covers]
        yield Frame(data=frame.data, covers=covered if told else frame.covers, whole=frame.whole and not told)
        for event in told:
            last = event is told[-1]
            covers = frame.covers if last else covered
            yield Frame(data=status_frame(event["thread_id"], _status(event)), covers=covers, whole=last)
        covered = frame.covers


def status_frame(thread_id: str, status: Mapping[str, Any]) -> bytes:
    """`thread_status`: first after a subscribe, then on every change."""
    return _frame({"type": "thread_status", "thread_id": thread_id, "status": status})


def caught_up_frame(thread_id: str, cursor: int, *, more: bool = False) -> bytes:
    """`caught_up`: every event up to `cursor` was sent. With `more` the replay has stopped: the client asks again."""
    body: dict[str, Any] = {"type": "caught_up", "thread_id": thread_id, "cursor": cursor}
    return _frame(body | {"more": True} if more else body)


def log_frame(row: Mapping[str, Any]) -> bytes:
    """`log`: a row of the thread's log; of one that is too large the large fields are cut and named in `truncated`."""
    return _frame({"type": "log", "row": for_frame(row, _ROOM)})


def gap_frame(thread_id: str, first: int, last: int) -> bytes:
    """`gap`: retention has removed these rows."""
    return _frame({"type": "gap", "thread_id": thread_id, "from": first, "to": last})


def pong_frame() -> bytes:
    """`pong`."""
    return _frame({"type": "pong"})


def error_frame(refusal: Refusal) -> bytes:
    """`error` with the problem object of a refusal; as many of its faults as a frame holds."""
    faults = [{"path": fault.path, "message": fault.message} for fault in refusal.faults[:_FAULTS]]
    problem: dict[str, Any] = {
        "type": f"/problems/{refusal.name}",
        "title": refusal.title,
        "status": refusal.status,
        "detail": refusal.detail[:_DETAIL_CHARACTERS],
    }
    if faults:
        problem["errors"] = [{name: text[:_DETAIL_CHARACTERS] for name, text in fault.items()} for fault in faults]
    return _frame({"type": "error", "problem": problem})


# Ours: 8 faults of two texts and a detail, at 6 bytes a character, stay below a frame.
_FAULTS, _DETAIL_CHARACTERS = 8, 250


def _room_for_rows() -> int:
    return _ROOM - len(_EVENTS_OPEN) - len(_EVENTS_CLOSE)


def _events_frame(rows: list[bytes], covers: int) -> Frame:
    return Frame(data=_EVENTS_OPEN + b",".join(rows) + _EVENTS_CLOSE, covers=covers)


def _parts(event: Envelope, text: str) -> Iterator[Frame]:
    """`event_part` frames: the pieces of `data` joined are the event's JSON text. They name the thread, because the
    parts of two threads may come in turns on one socket."""
    seq = event["delivery_seq"]
    escaped = _utf8(dumps(text)[1:-1])
    pieces = list(_cut(escaped, _ROOM - len(_part(event, _WIDEST, _WIDEST, b""))))
    for index, piece in enumerate(pieces):
        last = index == len(pieces) - 1
        yield Frame(data=_part(event, index, len(pieces), piece), covers=seq if last else seq - 1, whole=last)


def _part(event: Envelope, index: int, count: int, piece: bytes) -> bytes:
    head = {
        "type": "event_part",
        "thread_id": event["thread_id"],
        "delivery_seq": event["delivery_seq"],
        "index": index,
        "count": count,
        "data": "",
    }
    return _frame(head)[:-2] + piece + b'"}'


def _cut(escaped: bytes, room: int) -> Iterator[bytes]:
    """Pieces of at most `room` bytes of the inside of a JSON string; none ends inside a character or an escape.

    The string holds a JSON text, which has no raw control character: its escapes are all of two characters.
    """
    start = 0
    while start < len(escaped):
        end = min(start + room, len(escaped))
        if end < len(escaped):
            end = _before_escape(escaped, start, _before_character(escaped, end))
        yield escaped[start:end]
        start = end


def _before_character(text: bytes, end: int) -> int:
    while text[end] & 0xC0 == 0x80:  # a continuation byte of UTF-8
        end -= 1
    return end


def _before_escape(text: bytes, start: int, end: int) -> int:
    piece = text[start:end]  # it starts outside of any escape
    backslashes = len(piece) - len(piece.rstrip(b"\\"))
    return end - backslashes % 2


def _status(event: Envelope) -> dict[str, Any]:
    return {name: event["data"].get(name) for name in ("state", "since", "reason")}


def _frame(body: Mapping[str, Any]) -> bytes:
    return _utf8(dumps(body))


def _utf8(text: str) -> bytes:
    # Stored text has no half characters (domain.values); one that slipped in must not stop a thread's stream for ever.
    return text.encode("utf-8", "replace")


# -- from the client


@dataclass(frozen=True, kw_only=True)
class Ping:
    """`ping`: keeps the socket open."""


@dataclass(frozen=True, kw_only=True)
class Follow:
    """`subscribe`: the events of a thread after the number `after`; `logs`: its log rows too."""

    thread_id: str
    after: int
    logs: bool


@dataclass(frozen=True, kw_only=True)
class Leave:
    """`unsubscribe`."""

    thread_id: str


Asked = Ping | Follow | Leave
_FIELDS: Mapping[str, frozenset[str]] = {
    "ping": frozenset({"action"}),
    "subscribe": frozenset({"action", "thread_id", "after", "logs"}),
    "unsubscribe": frozenset({"action", "thread_id"}),
}


def asked(body: Any) -> Asked:
    """What a parsed client frame asks for; `InvalidRequest` with all its faults if it is none of the three actions."""
    if not isinstance(body, dict):
        raise InvalidRequest.at("", "a frame is a JSON object with an `action`")
    action = body.get("action")
    if not isinstance(action, str) or action not in _FIELDS:
        raise InvalidRequest.at("action", f"is one of {', '.join(sorted(_FIELDS))}")
    faults = tuple(_faults(action, body))
    if faults:
        raise InvalidRequest(f"{faults[0].path}: {faults[0].message}", faults=faults)
    if action == "ping":
        return Ping()
    if action == "unsubscribe":
        return Leave(thread_id=body["thread_id"])
    return Follow(thread_id=body["thread_id"], after=body.get("after", 0), logs=body.get("logs", False))


def _faults(action: str, body: Mapping[str, Any]) -> Iterator[Fault]:
    for name in sorted(body.keys() - _FIELDS[action]):
        yield Fault(path=name, message=f"is no field of {action}")
    if action == "ping":
        return
    if not isinstance(body.get("thread_id"), str):
        yield Fault(path="thread_id", message="is the id of a thread")
    after = body.get("after", 0)
    if type(after) is not int or after < 0:
        yield Fault(path="after", message="is the number of the last event that you have, 0 for none")
    if not isinstance(body.get("logs", False), bool):
        yield Fault(path="logs", message="is true or false")
