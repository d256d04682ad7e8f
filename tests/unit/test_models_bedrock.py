"""Bedrock models against a loopback server that speaks AWS event streams."""

import json
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from chalicelib.domain.errors import ModelError
from chalicelib.engine.models import ModelRegistry, ProviderSettings
from chalicelib.ports import CallArgs, CallStart, Chunk, Model, ModelRequest, Reasoning, Stop, Text, ToolSpec, Usage

DEADLINE = 20.0  # seconds that a test waits for a condition before it fails
LOOK = ToolSpec(name="look", description="Look.", parameters={"type": "object", "properties": {}})


def frame(event: str, payload: dict[str, Any], kind: str = "event") -> bytes:
    """One message of an AWS event stream: prelude, headers (all strings, type 7), payload, checksums."""
    name = ":event-type" if kind == "event" else ":exception-type"
    headers = b""
    for key, value in ((name, event), (":content-type", "application/json"), (":message-type", kind)):
        headers += struct.pack("!B", len(key)) + key.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
    body = json.dumps(payload).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + body
    return message + struct.pack("!I", zlib.crc32(message))


def delta(text: str, index: int = 0) -> bytes:
    return frame("contentBlockDelta", {"contentBlockIndex": index, "delta": {"text": text}})


START = frame("messageStart", {"role": "assistant"})
SPOKEN = [START, delta("Hello"), delta(" there"), frame("contentBlockStop", {"contentBlockIndex": 0})]
STOP = frame("messageStop", {"stopReason": "end_turn"})
METADATA = frame(
    "metadata",
    {
        "usage": {"inputTokens": 10, "outputTokens": 3, "totalTokens": 17, "cacheReadInputTokens": 4},
        "metrics": {"latencyMs": 1},
    },
)
CALL = [
    START,
    frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "Look first."}}}),
    frame("contentBlockStop", {"contentBlockIndex": 0}),
    frame("contentBlockStart", {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t1", "name": "look"}}}),
    frame("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"toolUse": {"input": '{"at": '}}}),
    frame("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"toolUse": {"input": '"sky"}'}}}),
    frame("contentBlockStop", {"contentBlockIndex": 1}),
    frame("messageStop", {"stopReason": "tool_use"}),
    METADATA,
]


@dataclass(kw_only=True)
class Bedrock:
    """What the server answers, and what it was asked."""

    server: ThreadingHTTPServer
    frames: Sequence[bytes] = ()
    status: int = 200
    hold: threading.Event | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def model(self, *frames: bytes) -> Model:
        self.frames = frames
        settings = ProviderSettings(
            aws_region="eu-west-1", bedrock_endpoint_url=f"http://127.0.0.1:{self.server.server_port}"
        )
        return ModelRegistry(settings=settings).resolve("bedrock:amazon.nova-lite-v1:0")


class Handler(BaseHTTPRequestHandler):
    bedrock: Bedrock
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        bedrock = self.bedrock
        bedrock.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(bedrock.status)
        plain = "application/json" if bedrock.status != 200 else "application/vnd.amazon.eventstream"
        self.send_header("Content-Type", plain)
        if bedrock.status == 429:
            self.send_header("x-amzn-ErrorType", "ThrottlingException")
        self.send_header("Transfer-Encoding", "chunked")  # as AWS does, so that each frame arrives by itself
        self.end_headers()
        for message in bedrock.frames:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(message), message))
            self.wfile.flush()
        if bedrock.hold is not None:
            bedrock.hold.wait(DEADLINE)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def bedrock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bedrock]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)

    class OwnHandler(Handler):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), OwnHandler)
    server.daemon_threads = True
    OwnHandler.bedrock = Bedrock(server=server)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield OwnHandler.bedrock
    if OwnHandler.bedrock.hold is not None:
        OwnHandler.bedrock.hold.set()
    server.shutdown()
    server.server_close()
    thread.join(DEADLINE)


class Asked:
    """A cancel that happens when the test sets it."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def wait(self, seconds: float) -> bool:
        return self.event.wait(seconds)


def request(**changes: Any) -> ModelRequest:
    fields: dict[str, Any] = {
        "model": "bedrock:amazon.nova-lite-v1:0",
        "system": "",
        "messages": ({"role": "user", "content": [{"type": "text", "text": "hi"}]},),
        "tools": (LOOK,),
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "options": {},
        "deadline_seconds": DEADLINE,
        "call_index": 0,
        "arguments": {},
    }
    return ModelRequest(**{**fields, **changes})


def ask(model: Model) -> list[Chunk]:
    return list(model.stream(request(), Asked()))


def stops_or_retryable(model: Model) -> list[str]:
    """The stops of an answer, or what its error says of another try."""
    try:
        return [chunk.reason for chunk in ask(model) if isinstance(chunk, Stop)]
    except ModelError as error:
        return ["retryable" if error.retryable else "not retryable"]


def test_a_whole_stream_is_text_usage_and_stop(bedrock: Bedrock) -> None:
    assert ask(bedrock.model(*SPOKEN, STOP, METADATA)) == [
        Text(text="Hello"),
        Text(text=" there"),
        Usage(mode="total", input_tokens=14, output_tokens=3, cache_read_tokens=4),
        Stop(reason="end"),
    ]


def test_a_call_is_told_with_the_providers_id_after_the_reasoning(bedrock: Bedrock) -> None:
    chunks = ask(bedrock.model(*CALL))
    assert chunks[0] == Reasoning(text="Look first.")
    assert chunks[1:4] == [
        CallStart(ref="1", call_id="t1", name="look"),
        CallArgs(ref="1", part='{"at": '),
        CallArgs(ref="1", part='"sky"}'),
    ]
    assert chunks[-1] == Stop(reason="tool_calls")


@pytest.mark.parametrize("frames", [SPOKEN, [*SPOKEN, METADATA], [*SPOKEN, STOP]], ids=["neither", "usage", "finish"])
def test_a_stream_that_ends_before_messagestop_or_its_usage_has_no_stop(bedrock: Bedrock, frames: list[bytes]) -> None:
    chunks = ask(bedrock.model(*frames))
    assert [chunk.text for chunk in chunks if isinstance(chunk, Text)] == ["Hello", " there"]
    assert not any(isinstance(chunk, Stop) for chunk in chunks)


def test_a_stream_that_breaks_inside_a_frame_has_no_stop(bedrock: Bedrock) -> None:
    whole = b"".join([*SPOKEN, STOP, METADATA])
    for cut in range(40, len(whole) - 1, 101):
        assert stops_or_retryable(bedrock.model(whole[:cut])) in ([], ["retryable"])


def test_throttling_is_retryable_and_is_asked_once(bedrock: Bedrock) -> None:
    bedrock.status = 429
    with pytest.raises(ModelError) as raised:
        ask(bedrock.model(b'{"message": "slow down"}'))
    assert (raised.value.status, raised.value.retryable) == (429, True)
    assert len(bedrock.bodies) == 1


def test_a_refused_request_is_not_retryable(bedrock: Bedrock) -> None:
    bedrock.status = 400
    with pytest.raises(ModelError) as raised:
        ask(bedrock.model(b'{"message": "The model is not here", "__type": "ValidationException"}'))
    assert (raised.value.status, raised.value.retryable) == (400, False)
    assert "The model is not here" in raised.value.detail


def test_an_exception_inside_the_stream_comes_after_the_text_before_it(bedrock: Bedrock) -> None:
    failing = frame("modelStreamErrorException", {"message": "broken"}, kind="exception")
    stream = bedrock.model(START, delta("Hello"), failing).stream(request(), Asked())
    assert next(stream) == Text(text="Hello")
    with pytest.raises(ModelError) as raised:
        next(stream)
    assert (raised.value.detail, raised.value.retryable) == ("broken", True)


def test_a_cancel_during_a_silence_ends_the_call(bedrock: Bedrock) -> None:
    bedrock.hold, cancel = threading.Event(), Asked()
    stream = bedrock.model(START, delta("Hello")).stream(request(), cancel)
    assert next(stream) == Text(text="Hello")
    cancel.event.set()
    assert list(stream) == []
    assert not bedrock.hold.is_set()


def test_the_history_starts_with_the_user_alternates_and_pairs_results_with_calls(bedrock: Bedrock) -> None:
    call = {"type": "tool_call", "call_id": "t1", "name": "look", "arguments": {"at": "sky"}}
    result = {"type": "tool_result", "call_id": "t1", "outcome": "error", "content": "clouds"}
    messages = (
        {"role": "assistant", "content": [{"type": "text", "text": "Welcome."}]},
        {"role": "user", "content": [{"type": "text", "text": "Look up."}]},
        {"role": "user", "content": [{"type": "text", "text": "Now."}]},
        {"role": "assistant", "content": [call]},
        {"role": "tool", "content": [result]},
    )
    model = bedrock.model(*SPOKEN, STOP, METADATA)
    list(model.stream(request(messages=messages, system="Be brief."), Asked()))
    body = bedrock.bodies[0]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    told = body["messages"][-1]["content"][0]["toolResult"]
    assert (told["toolUseId"], told["status"]) == ("t1", "error")
    assert "The call ended as error: clouds" in json.dumps(told)
    assert body["system"] == [{"text": "Be brief."}]
