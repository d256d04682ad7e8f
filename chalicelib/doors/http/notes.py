"""Routes of what stands beside a conversation: the log of a thread, its cost, its durable values."""

from chalice.app import Blueprint, Response

from chalicelib.domain import entries
from chalicelib.doors.http import asks
from chalicelib.doors.http.exchange import answered, current

routes = Blueprint(__name__)


@routes.route("/threads/{thread_id}/logs", methods=["POST"])
def write_log(thread_id: str) -> Response:
    """201 with the row that an entry became."""
    x = current()
    ask = asks.write_log(x.json())
    return answered(x.house.logs.write_log(x.principal, thread_id, ask, x.idempotency(ask)))


@routes.route("/threads/{thread_id}/logs", methods=["GET"])
def list_logs(thread_id: str) -> Response:
    """Rows of the log, oldest first or `?order=desc`; `?kind=` and `?level=` (of application entries) choose some."""
    x = current()
    order = x.query.choice("order", ("asc", "desc")) or "asc"
    kind, level = x.query.choice("kind", entries.KINDS), x.query.choice("level", entries.LEVELS)
    scope = x.scope("logs", thread_id, order=order, kind=kind, level=level)
    page = x.house.logs.list_logs(
        x.principal,
        thread_id,
        kind=kind,
        level=level,
        descending=order == "desc",
        limit=x.query.limit(),
        position=x.position(scope),
    )
    return x.page(scope, page)


@routes.route("/threads/{thread_id}/cost", methods=["GET"])
def cost(thread_id: str) -> Response:
    """What the thread has cost by now."""
    x = current()
    return Response(body=x.house.cost.thread_cost(x.principal, thread_id))


@routes.route("/threads/{thread_id}/values/{name}", methods=["GET"])
def get_value(thread_id: str, name: str) -> Response:
    """A durable value."""
    x = current()
    return Response(body={"value": x.house.durable.get_value(x.principal, thread_id, name)})


@routes.route("/threads/{thread_id}/values/{name}", methods=["PUT"])
def put_value(thread_id: str, name: str) -> Response:
    """Create or replace a durable value; answers it."""
    x = current()
    value = asks.put_value(x.json())
    return Response(body={"value": x.house.durable.put_value(x.principal, thread_id, name, value)})


@routes.route("/threads/{thread_id}/values/{name}", methods=["DELETE"])
def delete_value(thread_id: str, name: str) -> Response:
    """204; 404 if there is no such value."""
    x = current()
    x.no_body()
    x.house.durable.delete_value(x.principal, thread_id, name)
    return Response(body=None, status_code=204)
