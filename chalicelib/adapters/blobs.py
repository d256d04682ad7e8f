"""The Blobs port on S3: objects named by thread and content.

An object that is here proves nothing: only a fenced row makes it visible (I3). The org is part of every name (I9).
"""

from urllib.parse import quote

from botocore.exceptions import BotoCoreError, ClientError

from chalicelib.adapters.clients import Clients
from chalicelib.adapters.table import code, passes
from chalicelib.domain.errors import RetryLater
from chalicelib.domain.ids import ThreadRef

UNKNOWN = "application/octet-stream"
ADDRESS_SECONDS = 300  # a download begins at once; one that has begun goes on


class S3Blobs:
    """`ports.Blobs` on a bucket."""

    def __init__(self, clients: Clients, bucket: str) -> None:
        self._clients = clients
        self._bucket = bucket

    def put(self, ref: ThreadRef, sha256: str, data: bytes, content_type: str) -> None:
        """See the port. Raises RetryLater when the bucket does not answer."""
        try:
            self._clients.client("s3").put_object(
                Bucket=self._bucket, Key=name(ref, sha256), Body=data, ContentType=content_type
            )
        except (BotoCoreError, ClientError) as error:
            raise _retry_later(error) from error

    def get(self, ref: ThreadRef, sha256: str) -> tuple[bytes, str] | None:
        """See the port. Raises RetryLater when the bucket does not answer."""
        try:
            found = self._clients.client("s3").get_object(Bucket=self._bucket, Key=name(ref, sha256))
            return found["Body"].read(), found.get("ContentType", UNKNOWN)
        except (BotoCoreError, ClientError) as error:
            if isinstance(error, ClientError) and code(error) in ("NoSuchKey", "404"):
                return None
            raise _retry_later(error) from error

    def address(self, ref: ThreadRef, sha256: str) -> str:
        """See the port: a presigned address, made without a call."""
        wanted = {"Bucket": self._bucket, "Key": name(ref, sha256), "ResponseContentDisposition": "attachment"}
        made: str = self._clients.client("s3").generate_presigned_url(
            "get_object", Params=wanted, ExpiresIn=ADDRESS_SECONDS
        )
        return made


def name(ref: ThreadRef, sha256: str) -> str:
    """The object's key: `<org>/<token>/<sha256>`."""
    return "/".join(quote(part, safe="") for part in (ref.org, ref.token, sha256))


def _retry_later(error: Exception) -> Exception:
    """RetryLater for what may pass; what is set up wrongly stays what it is."""
    return RetryLater("The object store is busy.", retry_after_seconds=1) if passes(error) else error
