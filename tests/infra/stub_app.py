"""A page of doors for the tests of the local cloud: handlers that only tell what reached them."""

import base64
import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import boto3

Event = dict[str, Any]
SEEN: dict[str, list[Any]] = {"fan_out": [], "run_turn": [], "sweep": [], "disconnect": [], "posts": [], "hold": []}
HOLD = threading.Event()


def page(name: str) -> dict[str, Any]:
    """A row that the event source's filter takes for an event page."""
    return {"pk": {"S": "thread#o#t#events#0"}, "sk": {"S": name}, "body": {"B": b"\x01"}, "chain": {"B": b"\x02"}}


class Api:
    """Stands where the Chalice application stands: a route table, binary types, and a call for each event."""

    routes: Mapping[str, object] = dict.fromkeys(
        (
            *("/", "/api/health", "/api/raise", "/api/malformed", "/api/binary", "/api/empty"),
            *("/api/echo", "/api/echo/{name}", "/api/echo/mine", "/api/echo/{name}/inner"),
            *("/api/hold", "/api/seen", "/api/put", "/api/send"),
        )
    )
    api = SimpleNamespace(binary_types=["application/octet-stream", "image/*"])

    def __call__(self, event: Event, context: Any) -> Event:
        """Answer by the last literal segment of the resource."""
        name = event["resource"].replace("/{name}", "").replace("/mine", "").rpartition("/")[2] or "root"
        answer: Event = getattr(self, f"_{name}")(event, context)
        return answer

    def _health(self, event: Event, context: Any) -> Event:
        return _json(200, {"pid": os.getpid(), "millis": context.get_remaining_time_in_millis()})

    def _root(self, event: Event, context: Any) -> Event:
        return {"statusCode": 200, "headers": {"Content-Type": "text/html"}, "body": "<p>here</p>"}

    def _echo(self, event: Event, context: Any) -> Event:
        if event["httpMethod"] == "DELETE":
            return _json(405, {"status": 405})
        return _json(200, event) | {"multiValueHeaders": {"X-Two": ["a", "b"]}}

    _inner = _echo

    def _raise(self, event: Event, context: Any) -> Event:
        raise RuntimeError("a crash that the gateway must not tell")

    def _malformed(self, event: Event, context: Any) -> Event:
        return {"status": "none"}

    def _binary(self, event: Event, context: Any) -> Event:
        body = base64.b64encode(b"\x00\xff").decode()
        return {"statusCode": 200, "headers": {"Content-Type": "image/png"}, "body": body, "isBase64Encoded": True}

    def _empty(self, event: Event, context: Any) -> Event:
        return {"statusCode": 204, "headers": {"Turnlog-Request-Id": "r"}, "body": "null"}

    def _hold(self, event: Event, context: Any) -> Event:
        SEEN["hold"].append(event["path"])
        HOLD.wait(20)
        return _json(200, {})

    def _seen(self, event: Event, context: Any) -> Event:
        return _json(200, SEEN)

    def _put(self, event: Event, context: Any) -> Event:
        item = page(event["body"])
        boto3.client("dynamodb").put_item(TableName=os.environ["TURNLOG_TABLE"], Item=item)
        return _json(201, {})

    def _send(self, event: Event, context: Any) -> Event:
        boto3.client("sqs").send_message(
            QueueUrl=os.environ["TURNLOG_QUEUE_URL"], MessageBody=event["body"], MessageGroupId="group"
        )
        return _json(201, {})


app = Api()


def run_turn(event: Event, context: Any) -> None:
    """Remember the message."""
    SEEN["run_turn"].append(event["Records"][0]["body"])


def fan_out(event: Event, context: Any) -> None:
    """Remember the sort keys."""
    SEEN["fan_out"] += [record["dynamodb"]["Keys"]["sk"]["S"] for record in event["Records"]]


def sweep(event: Event, context: Any) -> None:
    """Remember what kind of event it was."""
    SEEN["sweep"].append(event["detail-type"])


def provision(event: Event, context: Any) -> Event:
    """Give back a known key, or make one."""
    return {"org_id": f"org_{event['org']}", "key": event.get("key") or f"tlk_{event['org']}_{os.urandom(8).hex()}"}


def connect(event: Event, context: Any) -> Event:
    """Refuse on wish; post to the new id on wish."""
    query = event.get("queryStringParameters", {})
    if query.get("raise"):
        raise RuntimeError("a crash in $connect")
    if query.get("early"):
        post(event, "too early")
    return {"statusCode": int(query.get("status", "200"))}


def message(event: Event, context: Any) -> Event:
    """Say what was heard: the whole event, or the frame itself after `say `."""
    text = event["body"]
    if text == "raise":
        raise RuntimeError("a crash in $default")
    if text.startswith("big "):
        post(event, "x" * int(text[4:]))
    else:
        post(event, text[4:] if text.startswith("say ") else json.dumps(event))
    return {"statusCode": 200}


def disconnect(event: Event, context: Any) -> Event:
    """Remember who left and how."""
    SEEN["disconnect"].append(event["requestContext"])
    post(event, "too late")
    return {"statusCode": 200}


def post(event: Event, text: str) -> int:
    """Post to the connection of an event; remembers and answers the status."""
    connection = quote(event["requestContext"]["connectionId"], safe="")
    status = _post(event, connection, text)
    SEEN["posts"].append((event["requestContext"]["connectionId"], status))
    return status


def _post(event: Event, connection: str, text: str) -> int:
    base = f"http://{event['requestContext']['domainName']}/_sockets"
    request = urllib.request.Request(f"{base}/@connections/{connection}", data=text.encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _json(status: int, body: Any) -> Event:
    return {"statusCode": status, "headers": {"Content-Type": "application/json"}, "body": json.dumps(body)}
