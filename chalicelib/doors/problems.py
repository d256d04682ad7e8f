"""Refusals become RFC 9457 problem details (spec section 3): one form for ours, Chalice's own, and crashes.

It must not know routes. It guarantees a stable `type`, text that is valid UTF-8 whatever the caller sent, and that
nothing of a crash but its name reaches the caller.
"""

from collections.abc import Mapping
from typing import Any

from chalice.app import Response

from chalicelib.domain.errors import (
    Fault,
    Forbidden,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    QueueFull,
    Refusal,
    RetryLater,
    TooLarge,
    Unauthorized,
    UnsupportedMedia,
)

MEDIA_TYPE = "application/problem+json"
# What stands behind a status that came without a reason of ours.
_BY_STATUS: Mapping[int, type[Refusal]] = {
    kind.status: kind
    for kind in (
        InvalidRequest, Unauthorized, Forbidden, NotFound, MethodNotAllowed, TooLarge, UnsupportedMedia, QueueFull,
        RetryLater,
    )
}  # fmt: skip
_RETRY_STATUSES = (429, 503)
_RETRY_SECONDS = 1  # when a refusal does not say when


def of_refusal(refusal: Refusal, *, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a refused request."""
    more = dict(headers or {})
    if refusal.status in _RETRY_STATUSES:
        more["Retry-After"] = str(max(1, refusal.retry_after_seconds or _RETRY_SECONDS))
    if refusal.status == Unauthorized.status:
        more["WWW-Authenticate"] = "Bearer"
    if isinstance(refusal, MethodNotAllowed) and refusal.allow:
        more["Allow"] = ", ".join(refusal.allow)
    errors = refusal.faults if refusal.faults or refusal.status != InvalidRequest.status else (_whole(refusal),)
    return _problem(refusal.status, refusal.name, refusal.title, refusal.detail, more, errors)


def of_status(status: int, detail: str | None = None) -> Response:
    """The problem of an error that somebody else made and that has only a status."""
    kind = _BY_STATUS.get(status) or (InvalidRequest if status < 500 else None)
    return of_refusal(kind(detail)) if kind else of_crash()


def of_crash() -> Response:
    """The answer to a request that broke something of ours. The log has the rest."""
    return _problem(500, "internal-error", "Something broke here.", "The request could not be answered.", {}, ())


def _whole(refusal: Refusal) -> Fault:
    return Fault(path="", message=refusal.detail)


def _problem(
    status: int, name: str, title: str, detail: str, headers: dict[str, str], errors: tuple[Fault, ...]
) -> Response:
    body: dict[str, Any] = {"type": f"/problems/{name}", "title": title, "status": status, "detail": _safe(detail)}
    if errors:
        body["errors"] = [{"path": _safe(fault.path), "message": _safe(fault.message)} for fault in errors]
    return Response(body=body, status_code=status, headers={**headers, "Content-Type": MEDIA_TYPE})


def _safe(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
