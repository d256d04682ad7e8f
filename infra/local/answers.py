"""HTTP answers that the gateway gives by itself: RFC 9457 problems with a request id."""

import json
from dataclasses import dataclass
from http import HTTPStatus

Pairs = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What goes back over HTTP."""

    status: int
    headers: Pairs
    body: bytes = b""


def problem(status: int, name: str, detail: str, request_id: str) -> Answer:
    """A problem document; `name` is the stable end of its type."""
    title = HTTPStatus(status).phrase
    body = {"type": f"/problems/{name}", "title": title, "status": status, "detail": detail}
    headers = [("Content-Type", "application/problem+json"), ("Turnlog-Request-Id", request_id)]
    return Answer(status=status, headers=headers, body=json.dumps(body).encode())
