"""Routes of messages: say, list, edit, remove."""

from chalice.app import Blueprint, Response

from chalicelib.doors.http import asks
from chalicelib.doors.http.exchange import answered, current

routes = Blueprint(__name__)


@routes.route("/threads/{thread_id}/messages", methods=["POST"])
def post_message(thread_id: str) -> Response:
    """201 {message, command, run}; 200 for a replay."""
    x = current()
    ask = asks.post_message(x.json())
    return answered(x.house.accept.post_message(x.principal, thread_id, ask, x.idempotency(ask)))


@routes.route("/threads/{thread_id}/messages", methods=["GET"])
def list_messages(thread_id: str) -> Response:
    """In order, or with `order=desc` newest first; `include=silent` shows silent ones too."""
    x = current()
    query = x.query
    descending = query.choice("order", ("asc", "desc")) == "desc"
    silent = "silent" in query.choices("include", ("silent",))
    scope = x.scope("messages", thread_id, order="desc" if descending else None, include="silent" if silent else None)
    page = x.house.read.messages(
        x.principal, thread_id, descending=descending, silent=silent, limit=query.limit(), position=x.position(scope)
    )
    return x.page(scope, page)


@routes.route("/threads/{thread_id}/messages/{message_id}", methods=["PATCH"])
def patch_message(thread_id: str, message_id: str) -> Response:
    """New content or metadata; answers the message."""
    x = current()
    ask = asks.patch_message(x.json())
    return Response(body=x.house.edit.patch_message(x.principal, thread_id, message_id, ask))


@routes.route("/threads/{thread_id}/messages/{message_id}", methods=["DELETE"])
def delete_message(thread_id: str, message_id: str) -> Response:
    """204."""
    x = current()
    x.house.edit.delete_message(x.principal, thread_id, message_id)
    return Response(body=None, status_code=204)
