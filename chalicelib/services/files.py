"""Files of a thread by the front door: read, list, write, remove, and uploads of what is too large for a request.

What a request writes is put away first and becomes visible by one write on the thread's head, together with its
`file.changed`. The same request again finds its own bytes there and changes nothing. Files have nothing to do with
work: they may be changed while a run is in flight and after the thread was terminated, and wake nobody.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from chalicelib.domain.commands import Answer, Idempotency, Page, Principal, StartUpload, Upload
from chalicelib.domain.errors import InvalidRequest, KeyReused, NotFound, TooLarge
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.limits import FILE_BYTES, UPLOAD_BYTES
from chalicelib.domain.model import File, Head, replace
from chalicelib.domain.queueing import Draft
from chalicelib.engine.files import Change, Shelf, entry_of, new_file
from chalicelib.engine.log import commit_of
from chalicelib.ports import Committed, FileObjects, Remembered, Store
from chalicelib.services.appending import Appender, alive, kept_key, known

#: How long an address for an upload is good: 100 MB over a slow line. It is signed anew for a replay.
ADDRESS_SECONDS = 3600
MICROS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class FileContent:
    """A file and its bytes; `data` None: they are larger than an answer."""

    file: File
    data: bytes | None


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files of threads."""

    store: Store
    objects: FileObjects
    appender: Appender

    def get_file(self, p: Principal, thread_id: str, path: str) -> FileContent:
        """A file with its bytes, or with none if it is larger than an answer. Raises NotFound."""
        shelf, _ = self._shelf(p, thread_id)
        row = shelf.file(path)
        if row.bytes > FILE_BYTES:
            return FileContent(file=row, data=None)
        try:
            return FileContent(file=row, data=b"".join(self.objects.read(shelf.ref, row.sha256)))
        except KeyError:  # objects go with their thread, and with nothing else
            raise NotFound from None

    def file_address(self, p: Principal, thread_id: str, file: File, headers: dict[str, str]) -> str:
        """Where the bytes of a file that `get_file` has answered can be fetched, with these headers."""
        return self.objects.address(known(p.org, thread_id), file.sha256, headers)

    def list_files(self, p: Principal, thread_id: str, folder: str, *, limit: int, position: Any) -> Page:
        """What is directly in a folder. One that does not exist is as empty as any other."""
        shelf, _ = self._shelf(p, thread_id)
        low = None if position is None else bytes.fromhex(position).decode()
        page = shelf.entries(folder, position=low, limit=limit)
        following = None if page.position is None else page.position.encode().hex()
        return Page(items=[asdict(entry) for entry in page.items], next=following)

    def put_file(self, p: Principal, thread_id: str, path: str, data: bytes, content_type: str) -> Answer:
        """Create (201) or replace (200) a file; answers its entry."""
        if len(data) > FILE_BYTES:
            raise TooLarge.at("", f"the file has {len(data)} bytes, the limit of a request is {FILE_BYTES}")
        shelf, head = self._shelf(p, thread_id)
        new = new_file(path, data, content_type, self.appender.clock.now())
        self.objects.put(shelf.ref, new.sha256, data)
        return self._show(shelf, head, new)

    def start_upload(self, p: Principal, thread_id: str, ask: StartUpload, idem: Idempotency | None) -> Answer:
        """An address for a file of up to 100 MB. 201 {upload, url, headers, expires_at}; the door signs the upload."""
        ref = known(p.org, thread_id)
        if ask.bytes > UPLOAD_BYTES:
            raise TooLarge.at("bytes", f"the file has {ask.bytes} bytes, the limit is {UPLOAD_BYTES}")
        now, nonce = self.appender.clock.now(), self.appender.ids.token()
        opened = self.store.open(ref, key=idem.key if idem else None, now=now)
        alive(opened.head)
        named = nonce if idem is None else self._name(ref, idem, opened.remembered, nonce, now)
        body = self._address_of(ref, Upload(nonce=named, ask=ask), now)
        return Answer(status=201 if named == nonce else 200, body=body, replayed=named != nonce)

    def finish_upload(self, p: Principal, thread_id: str, path: str, upload: Upload) -> Answer:
        """Make an upload visible under its path once its size and hash are what was said; answers the file's entry."""
        if path != upload.ask.path:
            raise InvalidRequest.at("path", "is not the path that the upload was made for")
        shelf, head = self._shelf(p, thread_id)
        sha256 = self._kept(shelf, upload)
        now = self.appender.clock.now()
        new = File(
            path=path,
            bytes=upload.ask.bytes,
            sha256=sha256,
            content_type=upload.ask.content_type,
            created_at=now,
            updated_at=now,
        )
        return self._show(shelf, head, new)

    def delete_file(self, p: Principal, thread_id: str, path: str) -> None:
        """Remove a file. Raises NotFound, also for one that was removed before."""
        shelf, head = self._shelf(p, thread_id)
        self._write(shelf, head, lambda at: shelf.removed(at, path, self.appender.clock.now()))

    def _shelf(self, p: Principal, thread_id: str) -> tuple[Shelf, Head]:
        ref = known(p.org, thread_id)
        head = alive(self.store.open(ref).head)
        return Shelf(store=self.store, objects=self.objects, ref=ref), head

    def _show(self, shelf: Shelf, head: Head, new: File) -> Answer:
        """Make bytes that are put away visible."""
        stands, created = new, False

        def change(at: Head) -> Draft | None:
            nonlocal stands, created
            stands, draft = shelf.written(at, replace(new, updated_at=self.appender.clock.now()))
            created = draft is not None and draft.facts[0].data["change"] == "created"
            return draft

        self._write(shelf, head, change)
        return Answer(status=201 if created else 200, body=asdict(entry_of(stands)))

    def _write(self, shelf: Shelf, head: Head, change: Change) -> None:
        """Decide on the head, which was read before the rows: if it still stands at the commit, so do they."""
        standing: Head | None = head
        for _ in self.appender.tries():
            before = alive(standing)
            draft = change(before)
            if draft is None:
                return
            now = self.appender.clock.now()
            commit = commit_of(shelf.ref, before, draft, now=now, write=self.appender.ids.token())
            result = self.appender.log.commit(commit)
            if isinstance(result, Committed):
                return
            standing = result.head

    def _name(self, ref: ThreadRef, idem: Idempotency, seen: Remembered | None, nonce: str, now: int) -> str:
        """The name of an upload's object: the one that an earlier request with this key was given, else this one."""
        mine = kept_key(ref, idem, nonce=nonce, now=now)
        standing = seen or self.store.remember(ref.org, mine, now)
        if standing.fingerprint != idem.fingerprint:
            raise KeyReused
        return standing.nonce

    def _kept(self, shelf: Shelf, upload: Upload) -> str:
        """Look at what was sent, and put it under the name of its content; answers the hash."""
        sent = self.objects.uploaded(shelf.ref, upload.nonce)
        if sent is None:
            raise InvalidRequest.at("upload_id", "nothing has been sent to the address of this upload, or too long ago")
        if sent.bytes != upload.ask.bytes:
            raise InvalidRequest.at("upload_id", f"{sent.bytes} bytes were sent, {upload.ask.bytes} were announced")
        try:
            sha256 = _sha256(self.objects.read_upload(shelf.ref, upload.nonce, sent.etag))
            if upload.ask.sha256 not in (None, sha256):
                raise InvalidRequest.at("upload_id", f"what was sent has the SHA-256 {sha256}")
            self.objects.keep(shelf.ref, upload.nonce, sent.etag, sha256)
        except KeyError:
            raise InvalidRequest.at("upload_id", "other bytes were sent while these were looked at") from None
        return sha256

    def _address_of(self, ref: ThreadRef, upload: Upload, now: int) -> dict[str, Any]:
        ask = upload.ask
        url, headers = self.objects.upload_address(
            ref,
            upload.nonce,
            size=ask.bytes,
            content_type=ask.content_type,
            sha256=ask.sha256,
            seconds=ADDRESS_SECONDS,
        )
        return {"upload": upload, "url": url, "headers": dict(headers), "expires_at": now + ADDRESS_SECONDS * MICROS}


def _sha256(pieces: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()
