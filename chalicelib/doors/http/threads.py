"""Routes of threads: create, list, read whole, rename. Views read the exchange, call one service, and answer."""

from typing import Any

from chalice.app import Blueprint, Response

from chalicelib.doors.http import asks
from chalicelib.doors.http.exchange import Exchange, answered, current

routes = Blueprint(__name__)

STATES = ("idle", "running", "failed")
PARTS = ("messages", "runs", "steps")


@routes.route("/threads", methods=["POST"])
def create_thread() -> Response:
    """201 {thread, message?, command?, run?}; 200 for a replay."""
    x = current()
    ask = asks.create_thread(x.json())
    return answered(x.house.accept.create_thread(x.principal, ask, x.idempotency(ask)))


@routes.route("/threads", methods=["GET"])
def list_threads() -> Response:
    """Thread roots, newest activity first."""
    x = current()
    query = x.query
    agent, tag, q = query.text("agent"), query.text("tag"), query.text("q", least=0) or None
    state = query.choice("state", STATES)
    scope = x.scope("threads", agent=agent, tag=tag, state=state, q=q)
    page = x.house.read.threads(
        x.principal, agent=agent, tag=tag, state=state, q=q, limit=query.limit(), position=x.position(scope)
    )
    return x.page(scope, page)


@routes.route("/threads/{thread_id}", methods=["GET"])
def get_thread(thread_id: str) -> Response:
    """The thread; with `include` the first page of each part beside its fields."""
    x = current()
    include = x.query.choices("include", PARTS)
    thread = x.house.read.thread(x.principal, thread_id, include)
    return Response(body={**thread, **{name: _first_page(x, name, thread_id, thread[name]) for name in include}})


@routes.route("/threads/{thread_id}", methods=["PATCH"])
def patch_thread(thread_id: str) -> Response:
    """New title or tags; answers the thread."""
    x = current()
    ask = asks.patch_thread(x.json())
    return Response(body=x.house.edit.patch_thread(x.principal, thread_id, ask))


@routes.route("/threads/{thread_id}", methods=["DELETE"])
def delete_thread(thread_id: str) -> Response:
    """202 {deleted_at}: from now on it is unknown, but for what it has cost."""
    x = current()
    x.no_body()
    return answered(x.house.delete.delete_thread(x.principal, thread_id))


@routes.route("/threads/{thread_id}/children", methods=["GET"])
def list_children(thread_id: str) -> Response:
    """The registry of the thread: child threads and child sessions, newest first."""
    x = current()
    scope = x.scope("children", thread_id)
    page = x.house.read.children(x.principal, thread_id, limit=x.query.limit(), position=x.position(scope))
    return x.page(scope, page)


def _first_page(x: Exchange, name: str, thread_id: str, part: dict[str, Any]) -> dict[str, Any]:
    """A part with the cursor that its own list route takes; the lane of steps is a list of its run."""
    inside = part.get("run_id") or thread_id if name == "steps" else thread_id
    listed = x.listed(x.scope(name, inside), part["items"], part["position"])
    return {**listed, "run_id": part["run_id"]} if "run_id" in part else listed
