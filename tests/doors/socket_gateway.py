"""The other end of the websocket: the gateway's `@connections` endpoint, and a client that checks what clients rely on.

The endpoint is a small HTTP server of our own, since no emulator answers 410, 403, 429 or nothing at all on demand.
"""

import json
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event as Flag
from threading import Lock, Thread
from typing import Any, Self
from urllib.parse import unquote

from chalicelib.domain.limits import FRAME_BYTES

STALL = 0  # an answer that does not come


class Gateway:
    """The management endpoint. `answers[id]`: the statuses of the next posts to a connection; then 200."""

    def __init__(self) -> None:
        self.answers: dict[str, deque[int]] = defaultdict(deque)
        self.posts: dict[str, int] = defaultdict(int)
        self.received: dict[str, list[bytes]] = defaultdict(list)
        self._lock = Lock()
        self._released = Flag()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, connection: str, data: bytes) -> int:
        with self._lock:
            self.posts[connection] += 1
            status = self.answers[connection].popleft() if self.answers[connection] else 200
            if status == 200:
                self.received[connection].append(data)
        if status == STALL:
            self._released.wait(30)
        return status or 503

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                status = gateway.answer(unquote(self.path.rpartition("/@connections/")[2]), data)
                body = b"" if status == 200 else b'{"message": "no"}'
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        return Handler


@dataclass(kw_only=True)
class Reader:
    """A client on one connection: keeps what came and refuses a hole, a swap or a change.

    `cursor` is what it said that it has; a row before it is a repeat that it cannot compare.
    """

    connection: str
    frames: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    cursor: int = 0
    repeats: int = 0
    frames_before: int = 0
    _parts: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))

    def take(self, frames: Iterable[bytes]) -> None:
        for data in frames:
            assert len(data) < FRAME_BYTES
            frame = json.loads(data)
            self.frames.append(frame)
            for row in self._items(frame):
                self._keep(row)

    def _items(self, frame: dict[str, Any]) -> list[dict[str, Any]]:
        if frame["type"] == "events":
            items: list[dict[str, Any]] = frame["items"]
            return items
        if frame["type"] != "event_part":
            return []
        pieces = self._parts[frame["delivery_seq"]]
        pieces[frame["index"]] = frame["data"]
        if len(pieces) < frame["count"]:
            return []
        del self._parts[frame["delivery_seq"]]
        return [json.loads("".join(pieces[index] for index in sorted(pieces)))]

    def _keep(self, row: dict[str, Any]) -> None:
        seq = row["delivery_seq"]
        if seq <= self.cursor:
            self.repeats += 1
            assert self.rows.get(seq, row) == row
            return
        assert seq == self.cursor + 1, f"row {seq} came after {self.cursor}"
        self.rows[seq], self.cursor = row, seq

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame["type"] == kind]

    @property
    def states(self) -> list[str]:
        return [frame["status"]["state"] for frame in self.of("thread_status")]

    @property
    def problem(self) -> dict[str, Any]:
        """The problem of the newest error frame."""
        found: dict[str, Any] = self.of("error")[-1]["problem"]
        return found
