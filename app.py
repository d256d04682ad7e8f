"""The page of doors: every Lambda entry point of Turnlog, one line of body each.

Deployed functions are named `app.<function>`; infra/resources.json hangs settings on those names. Importing this needs
no credential and no environment. A door, and the house behind it, is loaded by the first event that needs it: the
function that answers HTTP never loads the engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chalice.app import (
    CloudWatchEvent,
    DynamoDBEvent,
    SQSEvent,
    WebsocketEvent,
)

from chalicelib.doors.application import Application
from chalicelib.doors.http import commands, endpoints, events, files, messages, notes, people, runs, service, threads

if TYPE_CHECKING:
    from chalicelib.doors.http.house import House

# Names at deployment; the template merged at packaging puts the real queue and the table's own stream in their place.
WAKE_QUEUE = "turnlog-wake.fifo"
STREAM_ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/turnlog/stream/latest"


def _house() -> "House":
    house: House = import_module("chalicelib.bootstrap").house()
    return house


def _door(name: str) -> Any:
    return import_module(f"chalicelib.doors.{name}")


app = Application("turnlog", house=_house)
app.experimental_feature_flags.add("WEBSOCKETS")
for topic in (threads, messages, runs, people, events, files, notes, endpoints, commands, service):
    app.register_blueprint(topic.routes, url_prefix="/api")


@app.on_sqs_message(queue=WAKE_QUEUE, batch_size=1)
def run_turn(event: SQSEvent) -> Any:
    """A wake-up: this thread may have work."""
    return _door("runner").run(event.to_dict(), event.context)


@app.on_dynamodb_record(stream_arn=STREAM_ARN, batch_size=100, starting_position="TRIM_HORIZON")
def fan_out(event: DynamoDBEvent) -> Any:
    """The table's stream: something was stored that subscribers wait for."""
    return _door("stream").run(event.to_dict(), event.context)


@app.on_ws_connect()
def connect(event: WebsocketEvent) -> Any:
    """A websocket opens, with a ticket."""
    return _door("socket").connect(event.to_dict(), event.context)


@app.on_ws_message()
def message(event: WebsocketEvent) -> Any:
    """A frame of a client."""
    return _door("socket").message(event.to_dict(), event.context)


@app.on_ws_disconnect()
def disconnect(event: WebsocketEvent) -> Any:
    """A websocket has closed."""
    return _door("socket").disconnect(event.to_dict(), event.context)


@app.schedule("rate(1 minute)")
def sweep(event: CloudWatchEvent) -> Any:
    """Takes up what a crash left behind."""
    return _door("sweep").run(event.to_dict(), event.context)


@app.lambda_function()
def provision(event: dict[str, Any], context: Any) -> Any:
    """An operator makes an org and its first key."""
    return _door("provision").run(event, context)
