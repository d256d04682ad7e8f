"""Files of a thread, as a part of `Turnlog`: what is small goes through the server, what is large to the address that
the server names.

It guarantees that the credential goes to the server alone, never to an address of the object store, and that a write
that is repeated is one change.
"""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, cast

import httpx

from chalicelib.client.errors import ConnectionFailed
from chalicelib.client.wire import FileEntry

REQUEST_BYTES = 4 * 1024 * 1024  # the most that the server takes in a request
UPLOAD_SECONDS = 600.0
UNTYPED = "application/octet-stream"


class Sender(Protocol):
    """What files need of the client."""

    _http: httpx.Client

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        raw: bytes | None = None,
        content_type: str | None = None,
        follow: bool = False,
    ) -> httpx.Response: ...
    def _post(self, path: str, body: Mapping[str, Any], idempotency_key: str | None) -> Any: ...
    def _pages(self, path: str, query: Mapping[str, Any] | None = None) -> Iterator[Any]: ...


def put(sender: Sender, at: str, path: str, data: bytes, content_type: str | None) -> FileEntry:
    """Write a file, in one request or by an upload; answers its entry."""
    kind = content_type or UNTYPED
    query = {"path": path}
    if len(data) <= REQUEST_BYTES:
        return cast(FileEntry, sender._send("PUT", f"{at}/files", query=query, raw=data, content_type=kind).json())
    ask = {"path": path, "bytes": len(data), "content_type": kind}
    upload = sender._post(f"{at}/uploads", ask, uuid.uuid4().hex)
    _upload(sender._http, upload["url"], upload["headers"], data)
    finish = {**query, "upload_id": upload["upload_id"]}
    return cast(FileEntry, sender._send("PUT", f"{at}/files", query=finish).json())


def get(sender: Sender, at: str, path: str) -> bytes:
    """The bytes of a file, from wherever they are."""
    return sender._send("GET", f"{at}/files", query={"path": path}, follow=True).content


def entries(sender: Sender, at: str, folder: str) -> Iterator[FileEntry]:
    """What is directly in a folder."""
    return sender._pages(f"{at}/files/list", {"path": folder})


def delete(sender: Sender, at: str, path: str) -> None:
    """Remove a file."""
    sender._send("DELETE", f"{at}/files", query={"path": path})


def _upload(http: httpx.Client, url: str, headers: Mapping[str, str], data: bytes) -> None:
    """Send bytes to an upload's address. Whoever gets no answer calls `put_file` again."""
    try:
        answer = http.put(url, content=data, headers=dict(headers), timeout=UPLOAD_SECONDS)
    except httpx.TransportError as error:
        raise ConnectionFailed(f"the upload got no answer: {type(error).__name__}") from error
    if not answer.is_success:
        raise ConnectionFailed(f"the address of the upload answered {answer.status_code}")
