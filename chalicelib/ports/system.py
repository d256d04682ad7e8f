"""What stands beside the table: time and randomness, wake-ups, objects, and the purge."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from chalicelib.domain.ids import ThreadRef


class Clock(Protocol):
    """Time from outside. Wall time is for rows and leases, monotonic time for spans inside a process."""

    def now(self) -> int:
        """Microseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""


class Ids(Protocol):
    """Randomness from outside."""

    def token(self) -> str:
        """100 random bits as 20 characters of a-z and 2-7."""

    def uniform(self) -> float:
        """A number in [0, 1), for jitter."""


class Queue(Protocol):
    """Wake-ups. A wake-up carries ids, never the work; a repeat inside the deduplication window is swallowed."""

    def wake(self, ref: ThreadRef, *, epoch: int, number: int) -> None:
        """Say that a thread may have work. The same number again is swallowed. Raises RetryLater when it could not be
        sent.
        """

    def wake_inbox(self, ref: ThreadRef, report: str) -> None:
        """Say that a report is in a thread's inbox; the same report again is swallowed. Raises RetryLater."""

    def wake_effect(self, ref: ThreadRef, effect_id: str, *, number: int) -> None:
        """Say that an effect may be due, by its public id. The same number again is swallowed. Raises RetryLater."""


class Blobs(Protocol):
    """Objects too large for a row: named by their content, visible only through a fenced row."""

    def put(self, ref: ThreadRef, sha256: str, data: bytes, content_type: str) -> None:
        """Store; a second put of the same content changes nothing."""

    def get(self, ref: ThreadRef, sha256: str) -> tuple[bytes, str] | None:
        """The bytes and their content type, or None."""

    def address(self, ref: ThreadRef, sha256: str) -> str:
        """Where anybody can fetch the object for some minutes. Whether it exists shows only there."""


@dataclass(frozen=True, kw_only=True)
class Uploaded:
    """An object that a client has sent to an upload's address: its size, and what tells it from a later one there."""

    bytes: int
    etag: str


class FileObjects(Protocol):
    """The bytes of files, apart from `Blobs`: named by thread and hash, so that a name never gets other bytes.

    Only the row of a file makes its object visible. What a client uploads stands under a name of its own until `keep`.
    """

    def put(self, ref: ThreadRef, sha256: str, data: bytes) -> None:
        """Store; a second put of the same bytes changes nothing. Raises RetryLater."""

    def copy(self, source: ThreadRef, target: ThreadRef, sha256: str) -> None:
        """Put the bytes of one thread's object under the same name of another thread; twice changes nothing. Raises
        RetryLater, and KeyError if there is no such object.
        """

    def read(self, ref: ThreadRef, sha256: str) -> Iterator[bytes]:
        """The bytes in pieces: one request. Raises RetryLater, and KeyError if there is no such object."""

    def address(self, ref: ThreadRef, sha256: str, headers: Mapping[str, str]) -> str:
        """Where anybody can fetch the object for some minutes, answered with these headers (`Content-Type`,
        `Content-Disposition`). Made without a request.
        """

    def upload_address(
        self, ref: ThreadRef, upload: str, *, size: int, content_type: str, sha256: str | None, seconds: int
    ) -> tuple[str, Mapping[str, str]]:
        """Where anybody can PUT the object of an upload for some seconds, and with which headers: no other size, type
        or (if one is given) content is taken. Made without a request.
        """

    def uploaded(self, ref: ThreadRef, upload: str) -> Uploaded | None:
        """What stands under an upload's name now."""

    def read_upload(self, ref: ThreadRef, upload: str, etag: str) -> Iterator[bytes]:
        """Its bytes in pieces. Raises RetryLater, and KeyError if another object stands there by now."""

    def keep(self, ref: ThreadRef, upload: str, etag: str, sha256: str) -> None:
        """Copy an upload to the name of its content; twice changes nothing. Raises as `read_upload`."""


class Purge(Protocol):
    """Takes away what is left of a deleted thread. Every part can be asked for again: what is gone is not there."""

    def rows(self, ref: ThreadRef, family: str, block: int | None = None) -> None:
        """All rows of a family (`domain.purging`), or of one of its blocks. Raises RetryLater."""

    def beside(self, ref: ThreadRef) -> None:
        """The rows that stand beside the head."""

    def objects(self, ref: ThreadRef) -> None:
        """All objects of the thread. Raises RetryLater."""
