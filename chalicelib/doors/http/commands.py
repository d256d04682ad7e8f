"""Routes of commands: one by its id, or by the idempotency key that made it."""

from chalice.app import Blueprint, Response

from chalicelib.domain.errors import InvalidRequest
from chalicelib.domain.limits import KEY_CHARACTERS
from chalicelib.doors.http.exchange import current
from chalicelib.doors.http.idempotency import is_key

routes = Blueprint(__name__)

_FIELD = "idempotency_key"


@routes.route("/commands/{command_id}", methods=["GET"])
def get_command(command_id: str) -> Response:
    """A command."""
    x = current()
    return Response(body=x.house.read.command(x.principal, command_id))


@routes.route("/commands", methods=["GET"])
def get_command_by_key() -> Response:
    """The command that a key made; 404 if none did."""
    x = current()
    key = x.query.text(_FIELD, most=KEY_CHARACTERS)
    if key is None:
        raise InvalidRequest.at(_FIELD, "is required")
    if not is_key(key):
        raise InvalidRequest.at(_FIELD, "must be visible ASCII characters")
    return Response(body=x.house.read.command_by_key(x.principal, key))
