"""Routes of files: read, write, remove, list, and uploads. Bytes come and go as they are, never as JSON.

What is stored may be anything, so nothing of it may run in a browser of ours: a download is an attachment, without
sniffing, under a policy that forbids everything.
"""

from typing import Any
from urllib.parse import quote

from chalice.app import Blueprint, Response

from chalicelib.domain import paths
from chalicelib.domain.commands import Answer, StartUpload, Upload
from chalicelib.domain.errors import InvalidRequest
from chalicelib.domain.model import File
from chalicelib.doors import body, cursors
from chalicelib.doors.http import asks
from chalicelib.doors.http.content import MEDIA_CHARACTERS, MEDIA_TYPE
from chalicelib.doors.http.exchange import Exchange, Headers, answered, current

routes = Blueprint(__name__)

UPLOAD_PREFIX = "fil_"


@routes.route("/threads/{thread_id}/files", methods=["GET"])
def get_file(thread_id: str) -> Response:
    """The bytes of a file, or (above 4 MB) 307 to where they are."""
    x = current()
    found = x.house.files.get_file(x.principal, thread_id, _file_path(x))
    if found.data is None:
        address = x.house.files.file_address(x.principal, thread_id, found.file, _shown(found.file))
        return Response(body=b"", status_code=307, headers={"Location": address, "ETag": _etag(found.file)})
    headers: Headers = {
        **_shown(found.file),
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "ETag": _etag(found.file),
    }
    return Response(body=found.data, headers=headers)


@routes.route("/threads/{thread_id}/files", methods=["PUT"])
def put_file(thread_id: str) -> Response:
    """201 for a new file, 200 for one that was there: its entry. With `upload_id` what was uploaded becomes visible."""
    x = current()
    path = _file_path(x)
    token = x.query.text("upload_id", most=cursors.CHARACTERS)
    raw = body.raw_bytes(x.request.to_original_event())
    if token is None:
        return answered(x.house.files.put_file(x.principal, thread_id, path, raw, _content_type(x)))
    if raw:
        raise InvalidRequest.at("", "the bytes of an upload go to its address, not here")
    return answered(x.house.files.finish_upload(x.principal, thread_id, path, _opened(x, thread_id, token)))


@routes.route("/threads/{thread_id}/files", methods=["DELETE"])
def delete_file(thread_id: str) -> Response:
    """204; 404 if there is no file."""
    x = current()
    path = _file_path(x)
    x.no_body()
    x.house.files.delete_file(x.principal, thread_id, path)
    return Response(body=None, status_code=204)


@routes.route("/threads/{thread_id}/files/list", methods=["GET"])
def list_files(thread_id: str) -> Response:
    """What is directly in a folder, the root if none is named."""
    x = current()
    given = x.query.text("path", most=paths.RAW_CHARACTERS)
    folder = paths.ROOT if given is None else paths.folder_path(given)
    scope = x.scope("files", thread_id, path=folder)
    page = x.house.files.list_files(x.principal, thread_id, folder, limit=x.query.limit(), position=x.position(scope))
    return x.page(scope, page)


@routes.route("/threads/{thread_id}/uploads", methods=["POST"])
def start_upload(thread_id: str) -> Response:
    """201 {upload_id, url, headers, expires_at}: PUT the bytes to the url with these headers, then PUT the file with
    the upload's id.
    """
    x = current()
    ask = asks.start_upload(x.json())
    answer = x.house.files.start_upload(x.principal, thread_id, ask, x.idempotency(ask))
    told = {name: value for name, value in answer.body.items() if name != "upload"}
    upload_id = UPLOAD_PREFIX + _signed(x, thread_id, answer.body["upload"])
    return answered(Answer(status=answer.status, body={"upload_id": upload_id, **told}, replayed=answer.replayed))


def _file_path(x: Exchange) -> str:
    text = x.query.text("path", most=paths.RAW_CHARACTERS)
    if text is None:
        raise InvalidRequest.at("path", "is required")
    return paths.file_path(text)


def _content_type(x: Exchange) -> str:
    given = x.request.headers.get("content-type") or asks.UNTYPED
    if len(given) > MEDIA_CHARACTERS or not MEDIA_TYPE.fullmatch(given):
        raise InvalidRequest.at("Content-Type", "must be a media type such as image/png")
    return given


def _shown(file: File) -> dict[str, str]:
    """How a browser is to take a file: by its stored type, and never shown in a page."""
    named = quote(paths.name(file.path), safe="")
    kind = file.content_type if MEDIA_TYPE.fullmatch(file.content_type) else asks.UNTYPED
    return {"Content-Type": kind, "Content-Disposition": f"attachment; filename*=UTF-8''{named}"}


def _etag(file: File) -> str:
    return f'"{file.sha256}"'


def _scope(x: Exchange, thread_id: str) -> cursors.Scope:
    return x.scope("uploads", thread_id)


def _signed(x: Exchange, thread_id: str, upload: Upload) -> str:
    """An upload as its id: whoever brings it back brings back what was announced, for this thread of this org."""
    ask = upload.ask
    # The path as hex: escapes of JSON could make it longer than a query field may be.
    told = [upload.nonce, ask.path.encode().hex(), ask.bytes, ask.content_type, ask.sha256]
    return cursors.sign(x.house.settings.secret, _scope(x, thread_id), told)


def _opened(x: Exchange, thread_id: str, token: str) -> Upload:
    try:
        told: Any = cursors.open_cursor(
            x.house.settings.secret, _scope(x, thread_id), token.removeprefix(UPLOAD_PREFIX)
        )
    except InvalidRequest:
        raise InvalidRequest.at("upload_id", "is not an upload of this thread") from None
    nonce, path, size, content_type, sha256 = told
    ask = StartUpload(path=bytes.fromhex(path).decode(), bytes=size, content_type=content_type, sha256=sha256)
    return Upload(nonce=nonce, ask=ask)
