"""Routes about the service itself: its health, and the agents that it ships."""

from chalice.app import Blueprint, Response

from chalicelib.doors.http.exchange import current

routes = Blueprint(__name__)


@routes.route("/health", methods=["GET"])
def health() -> Response:
    """That this process answers, as what, on which stage. No credential, no call to anything else."""
    settings = current().house.settings
    return Response(body={"status": "ok", "version": settings.version, "stage": settings.stage})


@routes.route("/agents", methods=["GET"])
def list_agents() -> Response:
    """All agents; the list has one page."""
    x = current()
    return Response(body={"items": x.house.read.agents(x.principal), "next_cursor": None})
