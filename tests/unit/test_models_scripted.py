"""The scripted model: every event of the script's form, the filling of arguments, and scripts of wrong shape."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain.errors import ModelError
from chalicelib.engine.models import BadDeclaration, FakeTool, ModelRegistry, fake_tools
from chalicelib.ports import CallArgs, CallStart, Chunk, ModelRequest, Reasoning, Stop, Text, Usage

SCALAR = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
ANY_JSON = st.recursive(
    SCALAR, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner), max_leaves=8
)
KINDS = st.sampled_from(["text", "reasoning", "call_start", "call_args", "usage", "pause", "stop", "shout"])
ANY_EVENT = SCALAR | st.fixed_dictionaries(
    {},
    optional={
        "type": KINDS | SCALAR,
        **{
            name: SCALAR for name in ("text", "base64", "id", "name", "part", "mode", "input", "output", "ms", "reason")
        },
    },
)
ANY_SCRIPT = SCALAR | st.lists(SCALAR | st.fixed_dictionaries({"events": SCALAR | st.lists(ANY_EVENT, max_size=4)}))


class Waits:
    """A cancel that notes how long it was waited for, and happens at one of the waits."""

    def __init__(self, cancelled_at: int | None = None) -> None:
        self.seconds: list[float] = []
        self.cancelled_at = cancelled_at

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return self.cancelled_at is not None and len(self.seconds) > self.cancelled_at


def request(script: Any, index: int = 0, messages: tuple[dict[str, Any], ...] = ()) -> ModelRequest:
    return ModelRequest(
        model="scripted:script",
        system="",
        messages=messages,
        tools=(),
        tool_choice="auto",
        parallel_tool_calls=True,
        options={},
        deadline_seconds=60,
        call_index=index,
        arguments={"script": script},
    )


def play(*events: Any, messages: tuple[dict[str, Any], ...] = (), cancel: Waits | None = None) -> list[Chunk]:
    model = ModelRegistry(scripted=True).resolve("scripted:script")
    return list(model.stream(request([{"events": list(events)}], 0, messages), cancel or Waits()))


def result(call_id: str, content: Any) -> dict[str, Any]:
    part = {"type": "tool_result", "call_id": call_id, "outcome": "ok", "content": content}
    return {"role": "tool", "content": [part]}


def filled(*parts: str, **results: Any) -> str:
    """The argument text that the parts make, with these stored results."""
    events = [
        {"type": "call_start", "id": "x", "name": "take"},
        *({"type": "call_args", "id": "x", "part": p} for p in parts),
    ]
    chunks = play(*events, messages=tuple(result(call_id, content) for call_id, content in results.items()))
    return "".join(chunk.part for chunk in chunks if isinstance(chunk, CallArgs))


def test_every_kind_of_event_is_told_in_its_order() -> None:
    chunks = play(
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "Hi"},
        {"type": "call_start", "id": "c1", "name": "add"},
        {"type": "call_args", "id": "c1", "part": '{"a": 1}'},
        {"type": "usage", "mode": "total", "input": 10, "output": 2, "cache_read": 4},
        {"type": "stop", "reason": "tool_calls"},
    )
    assert chunks == [
        Reasoning(text="hm"),
        Text(text="Hi"),
        CallStart(ref="0", call_id="c1", name="add"),
        CallArgs(ref="0", part='{"a": 1}'),
        Usage(mode="total", input_tokens=10, output_tokens=2, cache_read_tokens=4),
        Stop(reason="tool_calls"),
    ]


def test_the_step_of_this_call_is_played() -> None:
    model = ModelRegistry(scripted=True).resolve("scripted:script")
    script = [{"events": [{"type": "text", "text": word}, {"type": "stop", "reason": "end"}]} for word in "ab"]
    assert list(model.stream(request(script, 1), Waits())) == [Text(text="b"), Stop(reason="end")]


@pytest.mark.parametrize("script", [None, [], [{"events": []}]])
def test_after_the_last_step_it_answers_done(script: Any) -> None:
    model = ModelRegistry(scripted=True).resolve("scripted:script")
    assert list(model.stream(request(script, 1), Waits())) == [Text(text="done"), Stop(reason="end")]


def test_no_usage_and_no_stop_are_left_out() -> None:
    assert play({"type": "text", "text": "cut"}) == [Text(text="cut")]


def test_base64_text_is_raw_bytes_that_may_be_cut_inside_a_character() -> None:
    raw = "\U0001f680".encode()
    pieces = [{"type": "text", "base64": base64.b64encode(raw[at : at + 1]).decode()} for at in range(4)]
    assert play(*pieces) == [Text(text=raw[at : at + 1]) for at in range(4)]


@pytest.mark.parametrize("call_id", [None, ""])
def test_a_call_without_a_usable_id_is_told_without_one(call_id: str | None) -> None:
    chunks = play(
        {"type": "call_start", "id": call_id, "name": "add"}, {"type": "call_args", "id": call_id, "part": "{}"}
    )
    assert chunks == [CallStart(ref="0", call_id=None, name="add"), CallArgs(ref="0", part="{}")]


@pytest.mark.parametrize("call_id", [None, "", "c1"])
def test_parts_belong_to_the_latest_call_that_began_with_their_id(call_id: str | None) -> None:
    calls = [
        event
        for number in (1, 2)
        for event in (
            {"type": "call_start", "id": call_id, "name": "add"},
            {"type": "call_args", "id": call_id, "part": f'{{"n": {number}}}'},
        )
    ]
    parts = [(chunk.ref, chunk.part) for chunk in play(*calls) if isinstance(chunk, CallArgs)]
    assert parts == [("0", '{"n": 1}'), ("1", '{"n": 2}')]


def test_interleaved_parts_find_their_calls() -> None:
    order = [("call_start", "x"), ("call_start", "y"), ("call_args", "x"), ("call_args", "y"), ("call_args", "x")]
    events = [{"type": kind, "id": call_id, "name": "add", "part": call_id} for kind, call_id in order]
    assert [chunk.ref for chunk in play(*events) if isinstance(chunk, CallArgs)] == ["0", "1", "0"]


def test_a_pause_waits_on_the_cancel_and_a_cancelled_pause_ends_the_answer() -> None:
    events = [{"type": "text", "text": "a"}, {"type": "pause", "ms": 1500}, {"type": "text", "text": "b"}]
    whole, cut = Waits(), Waits(cancelled_at=0)
    assert play(*events, cancel=whole) == [Text(text="a"), Text(text="b")]
    assert play(*events, cancel=cut) == [Text(text="a")]
    assert whole.seconds == cut.seconds == [1.5]


def test_an_error_is_raised_after_what_came_before_it() -> None:
    model = ModelRegistry(scripted=True).resolve("scripted:script")
    failing = {"type": "error", "status": 503, "detail": "busy", "retryable": True}
    stream = model.stream(request([{"events": [{"type": "text", "text": "a"}, failing]}]), Waits())
    assert next(stream) == Text(text="a")
    with pytest.raises(ModelError) as raised:
        next(stream)
    assert (raised.value.status, raised.value.detail, raised.value.retryable) == (503, "busy", True)


def test_a_placeholder_is_the_field_of_a_stored_result() -> None:
    assert filled('{"id": "${c1.id}", "n": ${c1.n}}', c1={"id": "abc", "n": 7}) == '{"id": "abc", "n": 7}'


def test_a_placeholder_goes_into_objects_and_lists() -> None:
    results = {"a": {"b": [{"c": 1}, {"c": "two"}]}}
    assert filled('["${c1.a.b.1.c}", ${c1.a.b.0.c}, ${c1.a.b}]', c1=results) == '["two", 1, [{"c": 1}, {"c": "two"}]]'


def test_a_string_outside_of_quotes_gets_quotes_and_a_value_inside_is_its_json_text() -> None:
    text = filled('{"a": ${c1.s}, "b": "n=${c1.n}, o=${c1.o}"}', c1={"s": 'x"y', "n": 7, "o": {"k": "v"}})
    assert json.loads(text) == {"a": 'x"y', "b": 'n=7, o={"k": "v"}'}


def test_results_that_are_json_text_are_looked_into() -> None:
    assert filled("${c1.id}", c1='{"id": 5}') == "5"


def test_a_missing_field_is_null_outside_of_quotes_and_nothing_inside() -> None:
    assert filled('[${c1.no}, "${c1.no}", ${c1.list.9}]', c1={"list": []}) == '[null, "", null]'


def test_a_call_without_a_result_is_null_outside_of_quotes_and_stays_inside() -> None:
    assert filled('[${k0.id}, "${k0.id}"]', c1={}) == '[null, "${k0.id}"]'


def test_whether_it_is_inside_of_quotes_is_known_across_parts() -> None:
    parts = ('{"a": "', '\\"${c1.v}', '", "b": ', "${c1.v}}")
    assert json.loads(filled(*parts, c1={"v": "x"})) == {"a": '"x', "b": "x"}


@settings(deadline=None)  # a busy machine is no fault of ours
@given(value=ANY_JSON)
def test_whatever_a_result_holds_the_arguments_stay_json(value: Any) -> None:
    inside, outside = json.loads(filled('["${c1.v}", ${c1.v}]', c1={"v": value}))
    assert outside == value
    assert inside == (value if isinstance(value, str) else json.dumps(value))


WRONG = [
    ("script", "words"),
    ("script.0", [1]),
    ("script.0.events", [{}]),
    ("script.0.events", [{"events": "x"}]),
    ("script.0.events.0", [{"events": [None]}]),
    ("script.0.events.0.type", [{"events": [{"type": "shout"}]}]),
    ("script.0.events.0.type", [{"events": [{"type": ["text"]}]}]),
    ("script.0.events.0.text", [{"events": [{"type": "text", "text": 1}]}]),
    ("script.0.events.0.base64", [{"events": [{"type": "text", "base64": "%%%"}]}]),
    ("script.0.events.0.base64", [{"events": [{"type": "text", "base64": 7}]}]),
    ("script.0.events.0.id", [{"events": [{"type": "call_start", "id": 1, "name": "x"}]}]),
    ("script.0.events.0.name", [{"events": [{"type": "call_start", "id": "a"}]}]),
    ("script.0.events.0.id", [{"events": [{"type": "call_args", "id": "a", "part": ""}]}]),
    ("script.0.events.0.mode", [{"events": [{"type": "usage", "mode": "sum", "input": 1, "output": 1}]}]),
    ("script.0.events.0.mode", [{"events": [{"type": "usage", "mode": [], "input": 1, "output": 1}]}]),
    ("script.0.events.0.input", [{"events": [{"type": "usage", "mode": "total", "input": -1, "output": 1}]}]),
    ("script.0.events.0.output", [{"events": [{"type": "usage", "mode": "total", "input": 1, "output": True}]}]),
    ("script.0.events.0.ms", [{"events": [{"type": "pause", "ms": "long"}]}]),
    ("script.0.events.0.status", [{"events": [{"type": "error", "status": "bad", "detail": "x", "retryable": True}]}]),
    ("script.0.events.0.retryable", [{"events": [{"type": "error", "status": 1, "detail": "x", "retryable": 1}]}]),
    ("script.0.events.0.reason", [{"events": [{"type": "stop", "reason": "bored"}]}]),
]


@pytest.mark.parametrize(("path", "script"), WRONG)
def test_a_script_of_wrong_shape_is_an_error_that_names_the_place(path: str, script: Any) -> None:
    model = ModelRegistry(scripted=True).resolve("scripted:script")
    with pytest.raises(ModelError) as raised:
        list(model.stream(request(script), Waits()))
    assert (raised.value.status, raised.value.retryable) == (400, False)
    assert raised.value.detail.startswith(f"{path}: ")


@settings(deadline=None)  # a busy machine is no fault of ours
@given(script=ANY_SCRIPT)
def test_no_script_whatsoever_crashes(script: Any) -> None:
    model = ModelRegistry(scripted=True).resolve("scripted:script")
    try:
        chunks = list(model.stream(request(script), Waits()))
    except ModelError as error:
        status, chunks = error.status, []
    else:
        status = 400
    assert status == 400
    assert all(isinstance(chunk, Text | Reasoning | CallStart | CallArgs | Usage | Stop) for chunk in chunks)


def test_fake_tools_are_read_with_their_defaults() -> None:
    everything = {
        "returns": [1],
        "raises": "no luck",
        "takes_ms": 200,
        "requires_approval": True,
        "asks": {"question": "Why?", "options": ["a"]},
        "logs": [{"name": "x"}, 7],
        "on_retry": "again",
        "parameters": {"properties": {"a": {"type": "string"}}, "required": ["a"]},
    }
    plain, full = fake_tools({"tools": {"plain": {}, "full": everything}})
    assert plain == FakeTool(name="plain")
    assert (plain.on_retry, plain.parameters, plain.returns) == ("surface", {"type": "object"}, None)
    assert full == FakeTool(
        name="full",
        returns=[1],
        raises="no luck",
        takes_ms=200,
        requires_approval=True,
        asks={"question": "Why?", "options": ["a"], "expires_in": None},
        logs=({"name": "x"}, 7),
        on_retry="again",
        parameters={"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    )


def test_a_thread_without_fake_tools_has_none() -> None:
    assert fake_tools({}) == fake_tools({"tools": None}) == fake_tools({"tools": {}}) == ()


@pytest.mark.parametrize(
    ("path", "tools"),
    [
        ("tools", ["add"]),
        ("tools.add", {"add": "x"}),
        ("tools.add.raises", {"add": {"raises": 7}}),
        ("tools.add.takes_ms", {"add": {"takes_ms": -1}}),
        ("tools.add.requires_approval", {"add": {"requires_approval": "yes"}}),
        ("tools.add.asks", {"add": {"asks": {"options": []}}}),
        ("tools.add.logs", {"add": {"logs": "x"}}),
        ("tools.add.on_retry", {"add": {"on_retry": "never"}}),
        ("tools.add.parameters", {"add": {"parameters": []}}),
    ],
)
def test_a_fake_tool_of_wrong_shape_is_refused_with_the_path(path: str, tools: Any) -> None:
    with pytest.raises(BadDeclaration, match=rf"^{path}: "):
        fake_tools({"tools": tools})
