"""The Chalice application of Turnlog: it owns the way from a proxy event to its answer.

Chalice keeps the current request in one attribute of the app (which crosses requests on threads), answers some errors
in a form of its own before any view, refuses binary answers without an Accept header, and gives a 204 a body. So this
subclass keeps Chalice's routes, decorators and packaging, and answers REST events itself. It must not know single
routes. It guarantees, in this order: 401 before anything about a request is told, 404, 405, 403, then what the view
says; every error is a problem, every answer has a `Turnlog-Request-Id`, no answer holds a stack trace. HTTP middleware
of Chalice does not run.
"""

import base64
import json
import logging
import re
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from chalice.app import Chalice, ChaliceViewError, Request, Response, RouteEntry, WebsocketAPI

from chalicelib.domain.commands import Principal
from chalicelib.domain.errors import MethodNotAllowed, NotFound, Refusal
from chalicelib.doors import auth, problems
from chalicelib.doors.http.exchange import Exchange, opened, running

if TYPE_CHECKING:
    from chalicelib.doors.http.house import House

REQUEST_ID = "Turnlog-Request-Id"
_EVERY_ANSWER = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
# What could be an id of ours or a reference; anything else in a path names nothing, and no key is built from it.
_ID = re.compile(r"[!-~]{1,255}")
logger = logging.getLogger("turnlog.http")


class _NoSocketClient(WebsocketAPI):
    """Chalice's websocket client ignores AWS_ENDPOINT_URL and raises without a region; ours is in `adapters`."""

    def configure_from_api_id(self, api_id: str, stage: str) -> None:
        return None


class Application(Chalice):
    """Chalice with one error form, requests that do not cross, and a house that is built on first use."""

    def __init__(self, app_name: str, *, house: "Callable[[], House]") -> None:
        # No handler of Chalice's own on stdout and no change to the environment: telemetry and settings own those.
        super().__init__(app_name, configure_logs=False, env={})
        self.websocket_api = _NoSocketClient(env={})
        # Everything is bytes to API Gateway, so that blobs pass unchanged; bodies then come as base64.
        self.api.binary_types = ["*/*"]
        self.house = house

    @property
    def current_request(self) -> Request | None:
        """The request of this thread or task."""
        exchange = running()
        return None if exchange is None else exchange.request

    @current_request.setter
    def current_request(self, request: Request | None) -> None:
        raise AttributeError("a request belongs to its exchange and is never shared")

    @property
    def lambda_context(self) -> Any:
        """The Lambda context of the current request."""
        request = self.current_request
        return None if request is None else request.lambda_context

    @lambda_context.setter
    def lambda_context(self, context: Any) -> None:
        raise AttributeError("a context belongs to its exchange and is never shared")

    def __call__(self, event: Any, context: Any) -> dict[str, Any]:
        """Answer one REST proxy event (version 1). Never raises an Exception."""
        request_id = uuid.uuid4().hex
        try:
            return _proxy_answer(self._answer(event, context), request_id)
        except Exception:
            logger.exception("request %s broke: %s %s", request_id, event.get("httpMethod"), event.get("resource"))
            return _proxy_answer(problems.of_crash(), request_id)

    def _answer(self, event: Any, context: Any) -> Response:
        try:
            return self._dispatch(Request(_whole(event), context))
        except Refusal as refusal:
            return problems.of_refusal(refusal)
        except ChaliceViewError as error:
            return problems.of_status(error.STATUS_CODE, str(error))

    def _dispatch(self, request: Request) -> Response:
        asker = self._asker(request)
        methods = self.routes.get(request.path)  # .get: the table is a defaultdict and must not grow
        if not methods:
            raise NotFound("There is no such route.")
        entry = methods.get(request.method)
        if entry is None:
            return problems.of_refusal(MethodNotAllowed(), headers={"Allow": ", ".join(sorted(methods))})
        auth.authorize(asker, request.method, request.path)
        if not all(_ID.fullmatch(value) for value in (request.uri_params or {}).values()):
            raise NotFound
        return self._view(entry, Exchange(request=request, house=self.house(), asker=asker))

    def _asker(self, request: Request) -> Principal | None:
        if auth.is_open(request.path):
            return None
        token = auth.bearer(request.headers.get("authorization"))
        return self.house().credentials.verify(token)

    def _view(self, entry: RouteEntry, exchange: Exchange) -> Response:
        with opened(exchange):
            answer = entry.view_function(**{name: exchange.ids[name] for name in entry.view_args})
        return answer if isinstance(answer, Response) else Response(body=answer)


def _whole(event: Mapping[str, Any]) -> dict[str, Any]:
    """The event with every key that Chalice's Request reads, for what the gateway leaves out of an unknown route."""
    context = {"resourcePath": event.get("resource") or "", "httpMethod": event.get("httpMethod") or ""}
    absent = dict.fromkeys(("multiValueQueryStringParameters", "headers", "pathParameters", "body", "stageVariables"))
    known = {key: value for key, value in (event.get("requestContext") or {}).items() if value is not None}
    return {**absent, **event, "requestContext": {**context, **known}}


def _proxy_answer(response: Response, request_id: str) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", **_EVERY_ANSWER, **response.headers, REQUEST_ID: request_id}
    if response.status_code == 204:
        del headers["Content-Type"]
    return {
        "statusCode": response.status_code,
        "headers": headers,
        "multiValueHeaders": {},
        **_proxy_body(response),
    }


def _proxy_body(response: Response) -> Mapping[str, Any]:
    if response.status_code == 204:
        return {"body": "", "isBase64Encoded": False}
    if isinstance(response.body, bytes):
        return {"body": base64.b64encode(response.body).decode(), "isBase64Encoded": True}
    text = json.dumps(response.body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return {"body": text, "isBase64Encoded": False}
