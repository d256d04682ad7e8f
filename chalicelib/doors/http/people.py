"""Routes of what a thread asks people: its questions and approvals."""

from chalice.app import Blueprint, Response

from chalicelib.doors.http import asks
from chalicelib.doors.http.exchange import answered, current

routes = Blueprint(__name__)


@routes.route("/threads/{thread_id}/questions", methods=["GET"])
def list_questions(thread_id: str) -> Response:
    """Questions and approvals, oldest first; `?state=open` shows those that wait for people."""
    x = current()
    state = x.query.choice("state", ("open",))
    scope = x.scope("questions", thread_id, state=state)
    page = x.house.people.list_inquiries(
        x.principal, thread_id, open_only=state == "open", limit=x.query.limit(), position=x.position(scope)
    )
    return x.page(scope, page)


@routes.route("/threads/{thread_id}/questions/{question_id}/answer", methods=["POST"])
def answer_question(thread_id: str, question_id: str) -> Response:
    """200 with the question; 409 if it is resolved already."""
    x = current()
    ask = asks.answer_question(x.json())
    return answered(x.house.people.answer_question(x.principal, thread_id, question_id, ask, x.idempotency(ask)))


@routes.route("/threads/{thread_id}/approvals/{approval_id}/decision", methods=["POST"])
def decide(thread_id: str, approval_id: str) -> Response:
    """200 with the approval; 409 if it is resolved already."""
    x = current()
    ask = asks.decide(x.json())
    return answered(x.house.people.decide(x.principal, thread_id, approval_id, ask, x.idempotency(ask)))
