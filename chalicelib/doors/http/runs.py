"""Routes of runs: start, list, read, cancel, and stop, terminate and continue of a thread."""

from chalice.app import Blueprint, Response

from chalicelib.doors.http import asks
from chalicelib.doors.http.exchange import answered, current

routes = Blueprint(__name__)


@routes.route("/threads/{thread_id}/runs", methods=["POST"])
def create_run(thread_id: str) -> Response:
    """201 {message, command, run}; 200 for a replay."""
    x = current()
    ask = asks.create_run(x.json())
    return answered(x.house.accept.create_run(x.principal, thread_id, ask, x.idempotency(ask)))


@routes.route("/threads/{thread_id}/runs", methods=["GET"])
def list_runs(thread_id: str) -> Response:
    """Runs of a thread."""
    x = current()
    scope = x.scope("runs", thread_id)
    page = x.house.read.runs(x.principal, thread_id, limit=x.query.limit(), position=x.position(scope))
    return x.page(scope, page)


@routes.route("/runs", methods=["GET"])
def list_roots() -> Response:
    """Thread roots with their latest run: {thread, run}."""
    x = current()
    scope = x.scope("roots")
    page = x.house.read.roots(x.principal, limit=x.query.limit(), position=x.position(scope))
    return x.page(scope, page)


@routes.route("/runs/{run_id}", methods=["GET"])
def get_run(run_id: str) -> Response:
    """A run."""
    x = current()
    return Response(body=x.house.read.run(x.principal, run_id))


@routes.route("/runs/{run_id}/steps", methods=["GET"])
def list_steps(run_id: str) -> Response:
    """The step lane of a run."""
    x = current()
    scope = x.scope("steps", run_id)
    page = x.house.read.steps(x.principal, run_id, limit=x.query.limit(), position=x.position(scope))
    return x.page(scope, page)


@routes.route("/runs/{run_id}/cancel", methods=["POST"])
def cancel_run(run_id: str) -> Response:
    """202 {command, run} while it is cancelling; 200 if there was nothing in flight to cancel."""
    x = current()
    x.no_body()
    return answered(x.house.cancel.cancel_run(x.principal, run_id, x.idempotency()))


@routes.route("/threads/{thread_id}/stop", methods=["POST"])
def stop(thread_id: str) -> Response:
    """Cancels the run in flight; `?all=true` withdraws what is queued too."""
    x = current()
    x.no_body()
    everything = x.query.flag("all")
    idem = x.idempotency({"all": everything})
    return answered(x.house.cancel.stop(x.principal, thread_id, everything, idem))


@routes.route("/threads/{thread_id}/terminate", methods=["POST"])
def terminate(thread_id: str) -> Response:
    """200 {thread, command, run}: it takes no more work, for good."""
    x = current()
    x.no_body()
    return answered(x.house.cancel.terminate(x.principal, thread_id, x.idempotency()))


@routes.route("/threads/{thread_id}/continue", methods=["POST"])
def continue_thread(thread_id: str) -> Response:
    """201: the agent runs again with no new message."""
    x = current()
    x.no_body()
    return answered(x.house.accept.continue_thread(x.principal, thread_id, x.idempotency()))
