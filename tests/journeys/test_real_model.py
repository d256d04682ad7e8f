"""A real small model, installed and started as `make run MODEL=smollm2` does, spoken to through the OpenAI provider.

Its answers are real but weak, so nothing here depends on what it says, only on how the answer comes.
"""

import json
import os
import signal
import socket
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from chalicelib.engine.models import ModelRegistry, ProviderSettings
from chalicelib.ports import CallArgs, CallStart, Chunk, Model, ModelRequest, Stop, Text, ToolSpec, Usage
from infra.local.real_model import RealModel, RealModelError, start

pytestmark = pytest.mark.real_model

CHECKOUT = Path(__file__).parents[2]
#: Seconds that a test waits for an answer or a condition before it fails: nothing but a hang takes that long, however
#: slow and busy the machine is (60 tokens in 60 s were too much for one).
DEADLINE = 600.0
WEATHER = ToolSpec(
    name="weather",
    description="The weather in a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


@pytest.fixture(scope="module")
def running() -> Iterator[RealModel]:
    model = start(CHECKOUT)
    yield model
    model.stop()


@pytest.fixture
def model(running: RealModel) -> Model:
    environment = running.environment
    settings = ProviderSettings(
        openai_base_url=environment["OPENAI_BASE_URL"], openai_api_key=environment["OPENAI_API_KEY"]
    )
    return ModelRegistry(settings=settings).resolve(environment["TURNLOG_MODEL"])


class Asked:
    """A cancel that happens when the test sets it."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def wait(self, seconds: float) -> bool:
        return self.event.wait(seconds)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def request(*messages: dict[str, Any], tools: tuple[ToolSpec, ...] = (), max_tokens: int = 60) -> ModelRequest:
    return ModelRequest(
        model="openai:local",
        system="You are a helpful assistant.",
        messages=messages,
        tools=tools,
        tool_choice="auto",
        parallel_tool_calls=False,
        options={"temperature": 0, "max_tokens": max_tokens},
        deadline_seconds=DEADLINE,
        call_index=0,
        arguments={},
    )


def text_of(chunks: list[Chunk]) -> str:
    return "".join(str(chunk.text) for chunk in chunks if isinstance(chunk, Text))


def busy_slots(running: RealModel) -> int:
    address = running.environment["OPENAI_BASE_URL"].removesuffix("/v1")
    with urllib.request.urlopen(f"{address}/slots", timeout=DEADLINE) as response:
        return sum(slot["is_processing"] for slot in json.load(response))


def until(condition: Any) -> None:
    """Look again and again, with a deadline."""
    waiting = threading.Event()
    for _ in range(int(DEADLINE / 0.05)):
        if condition():
            return
        waiting.wait(0.05)
    raise AssertionError("the condition did not come true in time")


def test_it_streams_text_in_many_pieces_with_usage_and_a_stop(model: Model) -> None:
    chunks = list(model.stream(request(user("Tell me about the sea.")), Asked()))
    assert sum(isinstance(chunk, Text) for chunk in chunks) > 5
    usage, stop = chunks[-2:]
    assert isinstance(usage, Usage)
    assert usage.input_tokens > 0
    assert usage.output_tokens > 5
    assert isinstance(stop, Stop)
    assert stop.reason in ("end", "length")


def test_it_is_cancelled_in_the_middle_of_an_answer_and_answers_when_asked_again(
    running: RealModel, model: Model
) -> None:
    cancel = Asked()
    stream = model.stream(request(user("Write a long story about a ship."), max_tokens=2000), cancel)
    begun = [next(stream) for _ in range(5)]
    assert busy_slots(running) == 1
    cancel.event.set()
    assert not any(isinstance(chunk, Stop) for chunk in stream)
    until(lambda: busy_slots(running) == 0)
    messages = (
        user("Write a long story about a ship."),
        {"role": "assistant", "content": [{"type": "text", "text": text_of(begun)}]},
        user("Stop. Only say hello."),
    )
    again = list(model.stream(request(*messages), Asked()))
    assert text_of(again)
    assert isinstance(again[-1], Stop)


def test_it_asks_for_a_tool_and_answers_in_prose_after_its_result(model: Model) -> None:
    question = user("What is the weather in Oslo?")
    asked = list(model.stream(request(question, tools=(WEATHER,)), Asked()))
    (start_of_call,) = [chunk for chunk in asked if isinstance(chunk, CallStart)]
    arguments = json.loads("".join(chunk.part for chunk in asked if isinstance(chunk, CallArgs)))
    assert start_of_call.name == "weather"
    assert set(arguments) == {"city"}
    assert asked[-1] == Stop(reason="tool_calls")
    call = {"type": "tool_call", "call_id": "c1", "name": "weather", "arguments": arguments}
    result = {"type": "tool_result", "call_id": "c1", "outcome": "ok", "content": {"sky": "clear", "degrees": 12}}
    messages = (question, {"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]})
    told = list(model.stream(request(*messages, tools=(WEATHER,)), Asked()))
    assert text_of(told)
    assert not any(isinstance(chunk, CallStart) for chunk in told)
    assert isinstance(told[-1], Stop)


def test_words_that_have_nothing_to_do_with_a_tool_are_answered_in_prose(model: Model) -> None:
    chunks = list(model.stream(request(user("Good morning!"), tools=(WEATHER,)), Asked()))
    assert text_of(chunks)
    assert not any(isinstance(chunk, CallStart) for chunk in chunks)


def test_stop_leaves_no_process_and_no_open_port() -> None:
    model = start(CHECKOUT)
    port = urlsplit(model.environment["OPENAI_BASE_URL"]).port
    assert port
    model.stop()
    model.stop()
    assert model.process.poll() is not None
    with pytest.raises(ProcessLookupError):
        os.killpg(model.process.pid, 0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), DEADLINE)


def test_a_server_that_is_killed_can_be_started_again() -> None:
    model = start(CHECKOUT)
    os.killpg(model.process.pid, signal.SIGKILL)
    model.process.wait(DEADLINE)
    again = start(CHECKOUT)
    again.stop()
    assert again.process.pid != model.process.pid


def test_a_folder_without_the_requirements_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(RealModelError, match=r"requirements-smollm2\.txt is missing"):
        start(tmp_path)
