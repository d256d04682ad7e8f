"""The shapes of Lambda events, exactly as AWS sends them. Pure functions: requests and records in, JSON values out.

Sources: the developer guides of API Gateway ("Set up Lambda proxy integrations", "Lambda event format for WebSocket
APIs"), Lambda ("Using Lambda with Amazon SQS", "... DynamoDB") and EventBridge ("Events from scheduled rules"). A
REST API keeps `path` as it was sent and decodes `pathParameters` and the query once; of a repeated header or query
field the last value stands in the single-value maps.
"""

import base64
import secrets
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from infra.local.resources import ACCOUNT, REGION
from infra.local.routes import Match

STAGE = "live"
API_ID = "local"
Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Request:
    """An HTTP request as it came from the socket; header names as sent (HTTP is read in lower case)."""

    method: str
    raw_path: str
    query: str
    headers: Sequence[tuple[str, str]]
    client: str

    def header(self, name: str) -> str:
        """The last value of a header, or an empty string."""
        return next((value for key, value in reversed(self.headers) if key.lower() == name), "")


def http(request: Request, body: bytes, match: Match, binary_types: Sequence[str], request_id: str) -> Event:
    """An API Gateway REST (v1) proxy event."""
    headers, query = [*request.headers, *_forwarded(request)], _query(request.query)
    is_binary = bool(body) and matches_binary(request.header("content-type"), binary_types)
    text = base64.b64encode(body).decode() if is_binary else body.decode("utf-8", "replace")
    return {
        "resource": match.resource,
        "path": request.raw_path,
        "httpMethod": request.method,
        "headers": dict(headers),
        "multiValueHeaders": _multi(headers),
        "queryStringParameters": dict(query) or None,
        "multiValueQueryStringParameters": _multi(query) or None,
        "pathParameters": match.parameters or None,
        "stageVariables": None,
        "requestContext": _http_context(request, match, request_id),
        "body": text if body else None,
        "isBase64Encoded": is_binary,
    }


def matches_binary(content_type: str, binary_types: Sequence[str]) -> bool:
    """Whether API Gateway treats a media type as binary: one of the API's binary media types, or `*/*` among them."""
    kind = content_type.split(";")[0].split(",")[0].strip().lower()
    return "*/*" in binary_types or kind in binary_types or f"{kind.split('/')[0]}/*" in binary_types


def _http_context(request: Request, match: Match, request_id: str) -> Event:
    now = time.time()
    return {
        "resourceId": "local",
        "resourcePath": match.resource,
        "httpMethod": request.method,
        "extendedRequestId": _short_id(),
        "requestTime": _request_time(now),
        "path": f"/{STAGE}{request.raw_path}",
        "accountId": ACCOUNT,
        "protocol": "HTTP/1.1",
        "stage": STAGE,
        "domainPrefix": request.header("host").partition(":")[0],
        "requestTimeEpoch": int(now * 1000),
        "requestId": request_id,
        "identity": _identity(request),
        "domainName": request.header("host"),
        "deploymentId": "local",
        "apiId": API_ID,
    }


def _identity(request: Request) -> Event:
    absent = ("cognitoIdentityPoolId", "accountId", "cognitoIdentityId", "caller", "principalOrgId", "accessKey")
    also = ("cognitoAuthenticationType", "cognitoAuthenticationProvider", "userArn", "user")
    return {
        **dict.fromkeys((*absent, *also)),
        "sourceIp": request.client,
        "userAgent": request.header("user-agent") or None,
    }


def connect(request: Request, connection: str, connected_at: int) -> Event:
    """A websocket API's $connect event."""
    headers, query = [*request.headers, *_forwarded(request)], _query(request.query)
    event = {
        "headers": dict(headers),
        "multiValueHeaders": _multi(headers),
        "requestContext": _socket_context(request, connection, connected_at, "$connect", "CONNECT"),
        "isBase64Encoded": False,
    }
    if query:
        event |= {"queryStringParameters": dict(query), "multiValueQueryStringParameters": _multi(query)}
    return event


def message(request: Request, connection: str, connected_at: int, body: str) -> Event:
    """A websocket API's $default event."""
    context = _socket_context(request, connection, connected_at, "$default", "MESSAGE")
    return {"requestContext": {**context, "messageId": _short_id()}, "body": body, "isBase64Encoded": False}


def disconnect(request: Request, connection: str, connected_at: int, code: int, reason: str) -> Event:
    """A websocket API's $disconnect event."""
    headers = [("Host", request.header("host")), ("x-api-key", ""), *_forwarded(request)[:1], ("x-restapi", "")]
    context = _socket_context(request, connection, connected_at, "$disconnect", "DISCONNECT")
    return {
        "headers": dict(headers),
        "multiValueHeaders": _multi(headers),
        "requestContext": {**context, "disconnectStatusCode": code, "disconnectReason": reason},
        "isBase64Encoded": False,
    }


def connection_id() -> str:
    """An id as AWS makes them: 11 random bytes in base64."""
    return base64.b64encode(secrets.token_bytes(11), b"-_").decode()


def _socket_context(request: Request, connection: str, connected_at: int, route: str, kind: str) -> Event:
    now = time.time()
    return {
        "routeKey": route,
        "eventType": kind,
        "extendedRequestId": _short_id(),
        "requestTime": _request_time(now),
        "messageDirection": "IN",
        "stage": STAGE,
        "connectedAt": connected_at,
        "requestTimeEpoch": int(now * 1000),
        "identity": {"userAgent": request.header("user-agent"), "sourceIp": request.client},
        "requestId": _short_id(),
        "domainName": request.header("host"),
        "connectionId": connection,
        "apiId": API_ID,
    }


def queue(received: Mapping[str, Any], queue_arn: str) -> Event:
    """A Lambda event of one SQS message, from what ReceiveMessage answered."""
    attributes = received.get("MessageAttributes", {})
    record = {
        "messageId": received["MessageId"],
        "receiptHandle": received["ReceiptHandle"],
        "body": received["Body"],
        "attributes": dict(received.get("Attributes", {})),
        "messageAttributes": {name: _message_attribute(value) for name, value in attributes.items()},
        "md5OfBody": received["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": REGION,
    }
    return {"Records": [record]}


def _message_attribute(value: Mapping[str, Any]) -> Event:
    event: Event = {"stringListValues": [], "binaryListValues": [], "dataType": value["DataType"]}
    if "BinaryValue" in value:
        return event | {"binaryValue": base64.b64encode(value["BinaryValue"]).decode()}
    return event | {"stringValue": value["StringValue"]}


def stream(records: Iterable[Event]) -> Event:
    """A Lambda event of a batch of stream records, each made by `stream_record`."""
    return {"Records": list(records)}


def stream_record(read: Mapping[str, Any], stream_arn: str) -> Event:
    """One record, from what GetRecords answered: bytes become base64, instants become seconds."""
    change = dict(read["dynamodb"])
    change["ApproximateCreationDateTime"] = change["ApproximateCreationDateTime"].timestamp()
    for image in ("Keys", "NewImage", "OldImage"):
        if image in change:
            change[image] = {name: _attribute_value(value) for name, value in change[image].items()}
    record = {
        "eventID": read["eventID"],
        "eventName": read["eventName"],
        "eventVersion": read.get("eventVersion", "1.1"),
        "eventSource": "aws:dynamodb",
        "awsRegion": read.get("awsRegion", REGION),
        "dynamodb": change,
        "eventSourceARN": stream_arn,
    }
    if "userIdentity" in read:
        identity = read["userIdentity"]
        record["userIdentity"] = {"type": identity["Type"], "principalId": identity["PrincipalId"]}
    return record


def _attribute_value(value: Mapping[str, Any]) -> Event:
    ((kind, inner),) = value.items()
    if kind == "B":
        inner = base64.b64encode(inner).decode()
    elif kind == "BS":
        inner = [base64.b64encode(part).decode() for part in inner]
    elif kind == "M":
        inner = {name: _attribute_value(part) for name, part in inner.items()}
    elif kind == "L":
        inner = [_attribute_value(part) for part in inner]
    return {kind: inner}


def schedule(rule: str) -> Event:
    """An EventBridge scheduled event."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": ACCOUNT,
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": REGION,
        "resources": [f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{rule}"],
        "detail": {},
    }


def _forwarded(request: Request) -> list[tuple[str, str]]:
    port = request.header("host").rpartition(":")[2]
    return [
        ("X-Forwarded-For", request.client),
        ("X-Forwarded-Port", port if port.isdigit() else "80"),
        ("X-Forwarded-Proto", "http"),
        ("X-Amzn-Trace-Id", f"Root=1-{int(time.time()):x}-{secrets.token_hex(12)}"),
    ]


def _query(text: str) -> list[tuple[str, str]]:
    return parse_qsl(text, keep_blank_values=True)


def _multi(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def _request_time(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")


def _short_id() -> str:
    return base64.b64encode(secrets.token_bytes(11)).decode()
