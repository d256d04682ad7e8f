"""The management API of the websocket API (`@connections`): how functions post to, look at and end connections.

Answers as AWS does: a gone or unknown id 410 GoneException, a message above 128 KB 413 PayloadTooLargeException. It
knows connections by id and nothing of what is said on them.
"""

import json
from datetime import UTC, datetime

from infra.local.answers import Answer, Pairs
from infra.local.sockets import NORMAL, Connection, Sockets

MESSAGE_LIMIT = 128 * 1024  # API Gateway's websocket message payload
PREFIX = "/_sockets/@connections/"


class Management:
    """The three calls on a connection."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets

    async def answer(self, method: str, path: str, body: bytes) -> Answer:
        """The answer to one call; `path` is decoded."""
        connection = self._sockets.find(path.removeprefix(PREFIX)) if path.startswith(PREFIX) else None
        if method not in ("POST", "GET", "DELETE"):
            return _error(405, "MethodNotAllowedException", "Use POST, GET or DELETE.")
        if method == "POST" and len(body) > MESSAGE_LIMIT:
            return _error(413, "PayloadTooLargeException", "The message is larger than 128 KB.")
        if connection is None or (method == "POST" and not connection.post(body.decode("utf-8", "replace"))):
            return _error(410, "GoneException", "The connection is gone.")
        if method == "GET":
            return _found(connection)
        if method == "DELETE":
            connection.close(NORMAL, "Connection closed")
            return _answer(204, b"")
        return _answer(200, b"")


def _found(connection: Connection) -> Answer:
    request = connection.request
    body = {
        "connectedAt": _instant(connection.connected_at),
        "identity": {"sourceIp": request.client, "userAgent": request.header("user-agent")},
        "lastActiveAt": _instant(connection.last_active_at),
    }
    return _answer(200, json.dumps(body).encode())


def _instant(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().replace("+00:00", "Z")


def _error(status: int, name: str, text: str) -> Answer:
    return _answer(status, json.dumps({"message": text}).encode(), [("x-amzn-ErrorType", name)])


def _answer(status: int, body: bytes, more: Pairs | None = None) -> Answer:
    return Answer(status=status, headers=[("Content-Type", "application/json"), *(more or [])], body=body)
