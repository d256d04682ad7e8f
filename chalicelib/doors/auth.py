"""Who asks, and what that level may do: one default-deny table for every route of the HTTP door.

It must not know how credentials are stored. It guarantees that a route that is not in the table is refused, and that
nothing but the credential decides the org.
"""

import re
from collections.abc import Mapping

from chalicelib.domain.commands import Level, Principal
from chalicelib.domain.errors import Forbidden, Unauthorized

# One token of visible ASCII; 8 KB is what API Gateway takes for all headers (quotas page: 10,240 bytes).
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([!-~]{1,8192})")

# Method and route -> the least level; None needs no credential. Watching is reading, so a viewer may have a ticket.
LEVELS: Mapping[str, Level | None] = {
    "GET /api/health": None,
    "GET /api/agents": Level.VIEWER,
    "GET /api/threads": Level.VIEWER,
    "POST /api/threads": Level.MEMBER,
    "GET /api/threads/{thread_id}": Level.VIEWER,
    "PATCH /api/threads/{thread_id}": Level.MEMBER,
    "DELETE /api/threads/{thread_id}": Level.MEMBER,
    "POST /api/threads/{thread_id}/messages": Level.MEMBER,
    "GET /api/threads/{thread_id}/messages": Level.VIEWER,
    "PATCH /api/threads/{thread_id}/messages/{message_id}": Level.MEMBER,
    "DELETE /api/threads/{thread_id}/messages/{message_id}": Level.MEMBER,
    "POST /api/threads/{thread_id}/runs": Level.MEMBER,
    "GET /api/threads/{thread_id}/runs": Level.VIEWER,
    "POST /api/threads/{thread_id}/stop": Level.MEMBER,
    "POST /api/threads/{thread_id}/continue": Level.MEMBER,
    "POST /api/threads/{thread_id}/terminate": Level.MEMBER,
    "GET /api/threads/{thread_id}/children": Level.VIEWER,
    "GET /api/threads/{thread_id}/questions": Level.VIEWER,
    "POST /api/threads/{thread_id}/questions/{question_id}/answer": Level.MEMBER,
    "POST /api/threads/{thread_id}/approvals/{approval_id}/decision": Level.MEMBER,
    "GET /api/threads/{thread_id}/events": Level.VIEWER,
    "GET /api/threads/{thread_id}/blobs/{ref}": Level.VIEWER,
    "GET /api/threads/{thread_id}/logs": Level.VIEWER,
    "POST /api/threads/{thread_id}/logs": Level.MEMBER,
    "GET /api/threads/{thread_id}/cost": Level.VIEWER,
    "GET /api/threads/{thread_id}/values/{name}": Level.VIEWER,
    "PUT /api/threads/{thread_id}/values/{name}": Level.MEMBER,
    "DELETE /api/threads/{thread_id}/values/{name}": Level.MEMBER,
    "GET /api/threads/{thread_id}/files": Level.VIEWER,
    "PUT /api/threads/{thread_id}/files": Level.MEMBER,
    "DELETE /api/threads/{thread_id}/files": Level.MEMBER,
    "GET /api/threads/{thread_id}/files/list": Level.VIEWER,
    "POST /api/threads/{thread_id}/uploads": Level.MEMBER,
    "GET /api/threads/{thread_id}/x/{name}": Level.VIEWER,
    "POST /api/threads/{thread_id}/x/{name}": Level.MEMBER,
    "PUT /api/threads/{thread_id}/x/{name}": Level.MEMBER,
    "PATCH /api/threads/{thread_id}/x/{name}": Level.MEMBER,
    "DELETE /api/threads/{thread_id}/x/{name}": Level.MEMBER,
    "GET /api/runs": Level.VIEWER,
    "GET /api/runs/{run_id}": Level.VIEWER,
    "GET /api/runs/{run_id}/steps": Level.VIEWER,
    "POST /api/runs/{run_id}/cancel": Level.MEMBER,
    "GET /api/commands": Level.VIEWER,
    "GET /api/commands/{command_id}": Level.VIEWER,
    "POST /api/stream/tickets": Level.VIEWER,
}
_RANKS = {level: rank for rank, level in enumerate(Level)}
_OPEN_ROUTES = frozenset(route.partition(" ")[2] for route, level in LEVELS.items() if level is None)


def is_open(route: str) -> bool:
    """Whether a route (without method) answers without a credential."""
    return route in _OPEN_ROUTES


def bearer(authorization: str | None) -> str:
    """The token of an Authorization header; 401 for every other form of it."""
    found = _BEARER.fullmatch(authorization or "")
    if found is None:
        raise Unauthorized("Send `Authorization: Bearer <token>` with an API key.")
    return found[1]


def authorize(principal: Principal | None, method: str, route: str) -> None:
    """403 unless the table lets this level use this route."""
    route = f"{method} {route}"
    if route not in LEVELS:
        raise Forbidden("This route is not open to anybody.")
    least = LEVELS[route]
    if least is None:
        return
    if principal is None:
        raise Unauthorized
    if _RANKS[principal.level] < _RANKS[least]:
        raise Forbidden(f"This needs the level {least}; the credential has {principal.level}.")
