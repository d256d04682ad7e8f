"""The FileObjects port on S3: bytes of files under names that never get other bytes.

    <org>/<token>/files/<sha256>        bytes of a file, whatever path shows them
    uploads/<org>/<token>/<upload>      what a client has sent to an upload's address; gone after a day (lifecycle rule)

An object that is here proves nothing: only the row of a file makes it visible (I3). Nothing is ever deleted by a change
of a file, so no reader of a row can find its object gone. Org and thread are part of every name (I9), and no org is
named `uploads`.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from botocore.exceptions import BotoCoreError, ClientError

from chalicelib.adapters.clients import Clients
from chalicelib.adapters.table import code, passes
from chalicelib.domain.errors import RetryLater
from chalicelib.domain.ids import ThreadRef
from chalicelib.ports import Uploaded

T = TypeVar("T")

ADDRESS_SECONDS = 300  # a download begins at once; one that has begun goes on
PIECE_BYTES = 1024 * 1024
COPY_SECONDS = 20.0  # a copy of 100 MB answers when it is done; a request of the HTTP door has 29 s
UNTYPED = "application/octet-stream"
MISSING = frozenset({"NoSuchKey", "404", "PreconditionFailed", "412"})
_CHECKSUM = "x-amz-checksum-sha256"


class S3FileObjects:
    """`ports.FileObjects` on a bucket."""

    def __init__(self, clients: Clients, bucket: str) -> None:
        self._clients = clients
        self._bucket = bucket

    def put(self, ref: ThreadRef, sha256: str, data: bytes) -> None:
        """See the port."""
        where = self._at(name(ref, sha256))
        _sent(lambda: self._client.put_object(**where, Body=data, ContentType=UNTYPED))

    def copy(self, source: ThreadRef, target: ThreadRef, sha256: str) -> None:
        """See the port. The bytes do not pass through here."""
        client = self._clients.client("s3", attempts=1, read_seconds=COPY_SECONDS, purpose="copy")
        where = {**self._at(name(target, sha256)), "CopySource": self._at(name(source, sha256))}
        _sent(lambda: client.copy_object(**where))

    def read(self, ref: ThreadRef, sha256: str) -> Iterator[bytes]:
        """See the port."""
        return self._pieces(name(ref, sha256))

    def address(self, ref: ThreadRef, sha256: str, headers: Mapping[str, str]) -> str:
        """See the port."""
        answer = {f"Response{header.replace('-', '')}": value for header, value in headers.items()}
        return self._signed("get_object", {**self._at(name(ref, sha256)), **answer}, ADDRESS_SECONDS)

    def upload_address(
        self, ref: ThreadRef, upload: str, *, size: int, content_type: str, sha256: str | None, seconds: int
    ) -> tuple[str, Mapping[str, str]]:
        """See the port. Headers are part of the signature, the size too: every client sends that one by itself."""
        headers = {"Content-Type": content_type}
        given: dict[str, Any] = {
            **self._at(upload_name(ref, upload)),
            "ContentType": content_type,
            "ContentLength": size,
        }
        if sha256 is not None:
            given["ChecksumSHA256"] = base64.b64encode(bytes.fromhex(sha256)).decode()
            headers[_CHECKSUM] = given["ChecksumSHA256"]
        return self._signed("put_object", given, seconds), headers

    def uploaded(self, ref: ThreadRef, upload: str) -> Uploaded | None:
        """See the port."""
        try:
            found = _sent(lambda: self._client.head_object(**self._at(upload_name(ref, upload))))
        except KeyError:
            return None
        return Uploaded(bytes=found["ContentLength"], etag=found["ETag"])

    def read_upload(self, ref: ThreadRef, upload: str, etag: str) -> Iterator[bytes]:
        """See the port."""
        return self._pieces(upload_name(ref, upload), IfMatch=etag)

    def keep(self, ref: ThreadRef, upload: str, etag: str, sha256: str) -> None:
        """See the port. The bytes do not pass through here."""
        client = self._clients.client("s3", attempts=1, read_seconds=COPY_SECONDS, purpose="copy")
        source = {"CopySource": self._at(upload_name(ref, upload)), "CopySourceIfMatch": etag}
        where = {**self._at(name(ref, sha256)), "MetadataDirective": "REPLACE", "ContentType": UNTYPED}
        _sent(lambda: client.copy_object(**where, **source))

    @property
    def _client(self) -> Any:
        return self._clients.client("s3")

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": key}

    def _pieces(self, key: str, **condition: str) -> Iterator[bytes]:
        body = _sent(lambda: self._client.get_object(**self._at(key), **condition))["Body"]
        try:
            while piece := _sent(lambda: body.read(PIECE_BYTES)):
                yield piece
        finally:
            body.close()

    def _signed(self, method: str, given: Mapping[str, Any], seconds: int) -> str:
        made: str = self._clients.client("s3").generate_presigned_url(method, Params=given, ExpiresIn=seconds)
        return made


def name(ref: ThreadRef, sha256: str) -> str:
    """The key of a file's object."""
    return "/".join([*_owner(ref), "files", sha256])


def upload_name(ref: ThreadRef, upload: str) -> str:
    """The key of what a client uploads."""
    return "/".join(["uploads", *_owner(ref), quote(upload, safe="")])


def _owner(ref: ThreadRef) -> tuple[str, str]:
    return quote(ref.org, safe=""), quote(ref.token, safe="")


def _sent(request: Callable[[], T]) -> T:
    """What S3 answers. Raises KeyError for an object that is not there, RetryLater for what may pass."""
    try:
        return request()
    except (BotoCoreError, ClientError) as error:
        if isinstance(error, ClientError) and code(error) in MISSING:
            raise KeyError("there is no such object") from error
        if passes(error):
            raise RetryLater("The object store is busy.", retry_after_seconds=1) from error
        raise
