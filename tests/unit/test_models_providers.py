"""Provider models against a loopback server that replays recorded streams: whole, cut, stalled and refused."""

import gc
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import AsyncGeneratorType
from typing import Any

import pytest

from chalicelib.domain.errors import ModelError
from chalicelib.engine.models import ModelRegistry, ProviderSettings
from chalicelib.ports import (
    CallArgs,
    CallStart,
    Chunk,
    Model,
    ModelRequest,
    Reasoning,
    Stop,
    Text,
    ToolSpec,
    Usage,
)
from tests.unit.fake_provider import DEADLINE, Provider, Reply, serving

RECORDED = Path(__file__).parents[1] / "fixtures" / "recorded"
ADD = ToolSpec(
    name="add",
    description="Add two numbers.",
    parameters={"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
)


def recorded(name: str) -> list[bytes]:
    """The events of a recorded stream, each with its empty line."""
    raw = (RECORDED / f"{name}.sse").read_bytes()
    return [event + b"\n\n" for event in raw.split(b"\n\n") if event]


@pytest.fixture
def provider() -> Iterator[Provider]:
    with serving() as started:
        yield started


class Asked:
    """A cancel that happens when the test sets it."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def wait(self, seconds: float) -> bool:
        return self.event.wait(seconds)


def request(text: str = "hi", **changes: Any) -> ModelRequest:
    fields: dict[str, Any] = {
        "model": "openai:local",
        "system": "",
        "messages": ({"role": "user", "content": [{"type": "text", "text": text}]},),
        "tools": (),
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "options": {},
        "deadline_seconds": DEADLINE,
        "call_index": 0,
        "arguments": {},
    }
    return ModelRequest(**{**fields, **changes})


def ask(model: Model, **changes: Any) -> list[Chunk]:
    return list(model.stream(request(**changes), Asked()))


def text_of(chunks: Sequence[Chunk]) -> str:
    return "".join(str(chunk.text) for chunk in chunks if isinstance(chunk, Text))


def stops(chunks: Sequence[Chunk]) -> list[str]:
    return [chunk.reason for chunk in chunks if isinstance(chunk, Stop)]


def stops_or_retryable(model: Model) -> list[str]:
    """The stops of an answer, or what its error says of another try."""
    try:
        return stops(ask(model))
    except ModelError as error:
        return ["retryable" if error.retryable else "not retryable"]


def deltas_of(events: Sequence[bytes]) -> list[dict[str, Any]]:
    """The deltas in recorded events: what a reader of the bytes itself sees."""
    bodies = [json.loads(event.removeprefix(b"data: ")) for event in events if event.startswith(b"data: {")]
    return [body["choices"][0]["delta"] for body in bodies if body["choices"]]


def test_a_recorded_text_stream_is_told_delta_by_delta_with_its_usage_and_its_stop(provider: Provider) -> None:
    events = recorded("smollm2-text")
    chunks = ask(provider.answers(Reply(first=b"".join(events))))
    spoken = [delta["content"] for delta in deltas_of(events) if delta.get("content")]
    assert [chunk.text for chunk in chunks if isinstance(chunk, Text)] == spoken
    assert len(spoken) > 20
    assert chunks[-2:] == [Usage(mode="total", input_tokens=27, output_tokens=36), Stop(reason="end")]


def test_a_recorded_stream_that_met_its_limit_of_tokens_says_so_and_counts_cached_tokens(provider: Provider) -> None:
    chunks = ask(provider.answers(Reply(first=b"".join(recorded("smollm2-length")))))
    assert text_of(chunks) == "The sea is a vast and"
    assert chunks[-2] == Usage(mode="total", input_tokens=36, output_tokens=6, cache_read_tokens=7)
    assert stops(chunks) == ["length"]


def test_a_recorded_tool_call_is_told_as_its_start_and_the_pieces_of_its_arguments(provider: Provider) -> None:
    chunks = ask(provider.answers(Reply(first=b"".join(recorded("smollm2-tool")))), tools=(ADD,))
    starts = [chunk for chunk in chunks if isinstance(chunk, CallStart)]
    pieces = [chunk for chunk in chunks if isinstance(chunk, CallArgs)]
    assert [start.name for start in starts] == ["add"]
    assert starts[0].call_id
    assert {piece.ref for piece in pieces} == {starts[0].ref}
    assert len(pieces) > 1
    assert json.loads("".join(piece.part for piece in pieces)) == {"a": 2, "b": 3}
    assert stops(chunks) == ["tool_calls"]


@pytest.mark.parametrize("name", ["smollm2-text", "smollm2-length", "smollm2-tool"])
def test_a_stream_cut_at_any_event_has_no_stop_unless_finish_and_usage_had_come(provider: Provider, name: str) -> None:
    events = recorded(name)
    usage_at = next(number for number, event in enumerate(events) if b'"usage"' in event)
    whole = "".join(str(delta.get("content") or "") for delta in deltas_of(events))
    provider.replies = [Reply(first=b"".join(events[:cut])) for cut in range(1, len(events) + 1)]
    model = provider.model()
    for cut in range(1, len(events) + 1):
        chunks = ask(model, tools=(ADD,))
        assert len(stops(chunks)) == (1 if cut > usage_at else 0), f"cut after {cut} of {len(events)} events"
        assert whole.startswith(text_of(chunks))


def test_a_stream_cut_inside_an_event_has_no_stop(provider: Provider) -> None:
    raw = b"".join(recorded("smollm2-text"))
    usage_at = raw.index(b'"usage"')
    cuts = range(5, usage_at, 397)
    provider.replies = [Reply(first=raw[:cut]) for cut in cuts]
    model = provider.model()
    for _ in cuts:
        assert stops_or_retryable(model) in ([], ["retryable"])


def test_a_finish_reason_alone_or_usage_alone_is_no_stop(provider: Provider) -> None:
    events = recorded("smollm2-text")
    no_finish = [event for event in events if b'"finish_reason":"stop"' not in event]
    no_usage = [event for event in events if b'"usage"' not in event]
    assert len(no_finish) == len(no_usage) == len(events) - 1
    model = provider.answers(Reply(first=b"".join(no_finish)), Reply(first=b"".join(no_usage)))
    without_finish, without_usage = ask(model), ask(model)
    assert stops(without_finish) == stops(without_usage) == []
    assert text_of(without_finish) == text_of(without_usage) != ""


def test_text_is_told_while_the_provider_is_still_speaking(provider: Provider) -> None:
    events, go_on = recorded("smollm2-text"), threading.Event()
    model = provider.answers(Reply(first=b"".join(events[:3]), rest=b"".join(events[3:]), go_on=go_on))
    stream = model.stream(request(), Asked())
    first = [next(stream), next(stream)]
    assert not go_on.is_set()
    go_on.set()
    chunks = [*first, *stream]
    assert text_of(first) == "1."
    assert stops(chunks) == ["end"]


def test_a_cancel_during_a_silence_ends_the_call_and_closes_the_connection(provider: Provider) -> None:
    events, cancel = recorded("smollm2-text"), Asked()
    model = provider.answers(Reply(first=b"".join(events[:3]), go_on=threading.Event()))
    stream = model.stream(request(), cancel)
    assert text_of([next(stream), next(stream)]) == "1."
    cancel.event.set()
    assert list(stream) == []
    assert provider.client_left.wait(DEADLINE)


def test_a_cancel_before_the_first_byte_ends_the_call_and_closes_the_connection(provider: Provider) -> None:
    cancel = Asked()
    cancel.event = provider.asked  # cancelled once the request is there
    model = provider.answers(Reply(go_on=threading.Event()))
    assert list(model.stream(request(), cancel)) == []
    assert provider.client_left.wait(DEADLINE)


def test_a_reader_that_walks_away_closes_the_connection(provider: Provider) -> None:
    events = recorded("smollm2-text")
    model = provider.answers(Reply(first=b"".join(events[:3]), go_on=threading.Event()))
    stream = model.stream(request(), Asked())
    next(stream)
    stream.close()  # type: ignore[attr-defined]  # it is a generator
    assert provider.client_left.wait(DEADLINE)


def test_after_a_cancel_the_same_model_answers_again(provider: Provider) -> None:
    events, cancel = recorded("smollm2-text"), Asked()
    model = provider.answers(Reply(first=b"".join(events[:3]), go_on=threading.Event()), Reply(first=b"".join(events)))
    stream = model.stream(request(), cancel)
    next(stream)
    cancel.event.set()
    assert list(stream) == []
    assert stops(ask(model)) == ["end"]


def test_a_provider_that_stays_silent_past_the_deadline_is_a_retryable_error(provider: Provider) -> None:
    model = provider.answers(Reply(first=recorded("smollm2-text")[1], go_on=threading.Event()))
    with pytest.raises(ModelError) as raised:
        ask(model, deadline_seconds=1.0)
    assert raised.value.retryable
    assert provider.client_left.wait(DEADLINE)


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        *((status, False) for status in (400, 401, 403, 404, 422)),
        *((status, True) for status in (408, 409, 429, 500, 503, 529)),
    ],
)
def test_an_error_status_says_whether_asking_again_can_help_and_is_asked_once(
    provider: Provider, status: int, retryable: bool
) -> None:
    body = json.dumps({"error": {"message": "the server says no", "type": "some_error", "code": None}}).encode()
    model = provider.answers(Reply(status=status, first=body))
    with pytest.raises(ModelError) as raised:
        ask(model)
    assert (raised.value.status, raised.value.retryable) == (status, retryable)
    assert "the server says no" in raised.value.detail
    assert len(provider.bodies) == 1


def test_an_exhausted_quota_is_not_worth_another_try(provider: Provider) -> None:
    body = json.dumps({"error": {"message": "no credit", "type": "insufficient_quota", "code": "insufficient_quota"}})
    with pytest.raises(ModelError) as raised:
        ask(provider.answers(Reply(status=429, first=body.encode())))
    assert (raised.value.status, raised.value.retryable) == (429, False)


def test_an_error_inside_the_stream_comes_after_the_text_before_it(provider: Provider) -> None:
    failing = b'data: {"error": {"message": "overloaded", "type": "server_error", "code": 500}}\n\n'
    model = provider.answers(Reply(first=b"".join(recorded("smollm2-text")[:3]) + failing))
    told: list[Chunk] = []
    with pytest.raises(ModelError) as raised:
        told.extend(model.stream(request(), Asked()))  # keeps what came before the error
    assert text_of(told) == "1."
    assert "overloaded" in raised.value.detail
    assert raised.value.retryable


def half_read_generators() -> list[object]:
    return [one for one in gc.get_objects() if type(one) is AsyncGeneratorType and one.ag_frame is not None]


def test_a_failure_that_is_kept_keeps_no_half_read_stream(provider: Provider) -> None:
    failing = b'data: {"error": {"message": "overloaded", "type": "server_error", "code": 500}}\n\n'
    waiting, looks = threading.Event(), 0
    with pytest.raises(ModelError) as raised:
        ask(provider.answers(Reply(first=failing + b"".join(recorded("smollm2-text")))))
    while half_read_generators() and looks < DEADLINE / 0.05:
        waiting.wait(0.05)
        looks += 1
    assert half_read_generators() == []
    assert raised.value.__cause__ is not None


def test_bytes_that_are_no_stream_are_a_retryable_error(provider: Provider) -> None:
    with pytest.raises(ModelError) as raised:
        ask(provider.answers(Reply(first=b"data: {not json}\n\n")))
    assert raised.value.retryable


def test_a_server_that_is_not_there_is_a_retryable_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = ProviderSettings(openai_base_url=f"http://127.0.0.1:{port}/v1", openai_api_key="k")
    with pytest.raises(ModelError) as raised:
        ask(ModelRegistry(settings=settings).resolve("openai:local"))
    assert (raised.value.status, raised.value.retryable) == (None, True)


def test_a_refusal_is_an_error_that_repeats_it(provider: Provider) -> None:
    head = json.loads(recorded("smollm2-text")[0].removeprefix(b"data: "))
    events = [
        {**head, "choices": [{"index": 0, "delta": {"refusal": "I will not."}, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {**head, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}},
    ]
    with pytest.raises(ModelError) as raised:
        ask(provider.answers(Reply(first=b"".join(b"data: %s\n\n" % json.dumps(e).encode() for e in events))))
    assert (raised.value.detail, raised.value.retryable) == ("I will not.", False)


def test_reasoning_deltas_are_told_apart_from_text(provider: Provider) -> None:
    head = json.loads(recorded("smollm2-text")[0].removeprefix(b"data: "))
    deltas: list[dict[str, str]] = [
        {"reasoning_content": "Let me "},
        {"reasoning_content": "see."},
        {"content": "Four."},
    ]
    events = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    raw = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)
    chunks = ask(provider.answers(Reply(first=raw + b"".join(recorded("smollm2-text")[-3:]))))
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, Reasoning)) == "Let me see."
    assert text_of(chunks) == "Four."
    assert stops(chunks) == ["end"]


def test_the_request_carries_prompt_tools_choice_and_options(provider: Provider) -> None:
    model = provider.answers(Reply(first=b"".join(recorded("smollm2-text"))))
    ask(
        model,
        system="Be brief.",
        tools=(ADD, replace(ADD, name="subtract")),
        tool_choice="add",
        options={"temperature": 0.5, "max_tokens": 77, "reasoning": None},
    )
    body = provider.bodies[0]
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert body["tools"][0]["function"]["name"] == "add"
    assert body["tools"][0]["function"]["parameters"]["properties"] == ADD.parameters["properties"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert (body["temperature"], body["max_completion_tokens"], body["parallel_tool_calls"]) == (0.5, 77, False)
    assert body["stream_options"] == {"include_usage": True}


def test_many_calls_at_once_share_one_loop_and_do_not_mix(provider: Provider) -> None:
    model = provider.answers(Reply(first=b"".join(recorded("smollm2-text"))))
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(text_of(ask(model)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert len(answers) == 8
    assert len(set(answers)) == 1
    assert sum(thread.name == "provider-models" for thread in threading.enumerate()) == 1
