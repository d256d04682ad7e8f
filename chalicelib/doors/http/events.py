"""Routes of what happened: the events of a thread with a long poll, their large fields, tickets for the live stream."""

import re

from chalice.app import Blueprint, Response

from chalicelib.domain.limits import KB
from chalicelib.doors.http.exchange import Headers, current

routes = Blueprint(__name__)

ANSWER_BYTES = 4 * KB * KB  # spec section 3: above it 307; a function's answer is at most 6 MB, in base64 4.5 MB
_MEDIA = re.compile(r"[ -~]{3,255}")


@routes.route("/threads/{thread_id}/events", methods=["GET"])
def list_events(thread_id: str) -> Response:
    """{items, cursor, status} after a delivery_seq; waits up to `wait` seconds for news."""
    x = current()
    query = x.query
    after, limit, wait = query.whole("after", default=0, least=0), query.limit(), query.wait()
    return Response(body=x.house.read.events(x.principal, thread_id, after=after, limit=limit, wait=wait))


@routes.route("/threads/{thread_id}/blobs/{ref}", methods=["GET"])
def get_blob(thread_id: str, ref: str) -> Response:
    """A large field of an event as bytes, or where they are. Nothing in it may run in a browser of ours."""
    x = current()
    content, content_type = x.house.read.blob(x.principal, thread_id, ref)
    if len(content) > ANSWER_BYTES:
        address = x.house.read.blob_address(x.principal, thread_id, ref)
        return Response(body=b"", status_code=307, headers={"Location": address})
    safe_type = content_type if _MEDIA.fullmatch(content_type) else "application/octet-stream"
    headers: Headers = {
        "Content-Type": safe_type,
        "Content-Disposition": "attachment",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return Response(body=content, headers=headers)


@routes.route("/stream/tickets", methods=["POST"])
def issue_ticket() -> Response:
    """201 {ticket, url, expires_at}: opens one websocket within a minute."""
    x = current()
    x.no_body()
    return Response(body=dict(x.house.tickets.issue(x.principal)), status_code=201)
