"""The offline models: what they say, when they ask for tools, and that they always come to an end."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from chalicelib.engine.models import ModelRegistry
from chalicelib.ports import CallArgs, CallStart, Chunk, ModelRequest, Reasoning, Stop, Text, ToolSpec, Usage


def tool(name: str, description: str, required: list[str] | None = None, **properties: Any) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
    }
    return ToolSpec(name=name, description=description, parameters=schema)


NUMBER, STRING = {"type": "number"}, {"type": "string"}
ADD = tool("add", "Add two numbers.", a=NUMBER, b=NUMBER)
TIME = tool("current_time", "The time in a city.", city=STRING)
CALCULATOR = tool("calculator", "Calculate an arithmetic expression.", expression=STRING)
BOOK = tool("book", "Make a reservation.", [], guest=STRING, email=STRING)
TOOLS = (ADD, TIME, CALCULATOR, BOOK)


class Waits:
    """A cancel that notes how often it was waited for, and happens at one of the waits."""

    def __init__(self, cancelled_at: int | None = None) -> None:
        self.seconds: list[float] = []
        self.cancelled_at = cancelled_at

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return self.cancelled_at is not None and len(self.seconds) > self.cancelled_at


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def request(*messages: dict[str, Any], **changes: Any) -> ModelRequest:
    fields: dict[str, Any] = {
        "model": "offline:demo",
        "system": "",
        "messages": messages,
        "tools": (),
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "options": {},
        "deadline_seconds": 60,
        "call_index": 0,
        "arguments": {},
    }
    return ModelRequest(**{**fields, **changes})


def ask(*messages: dict[str, Any], name: str = "demo", cancel: Waits | None = None, **changes: Any) -> list[Chunk]:
    model = ModelRegistry().resolve(f"offline:{name}")
    return list(model.stream(request(*messages, **changes), cancel or Waits()))


def text_of(chunks: list[Chunk]) -> str:
    return "".join(str(chunk.text) for chunk in chunks if isinstance(chunk, Text))


def calls(chunks: list[Chunk]) -> list[tuple[str, Any]]:
    texts = {
        start.ref: "".join(chunk.part for chunk in chunks if isinstance(chunk, CallArgs) and chunk.ref == start.ref)
        for start in chunks
        if isinstance(start, CallStart)
    }
    return [(start.name, json.loads(texts[start.ref])) for start in chunks if isinstance(start, CallStart)]


def test_it_answers_about_what_was_said_in_small_pieces_and_counts_words() -> None:
    cancel = Waits()
    chunks = ask(user("Good morning to you"), cancel=cancel)
    words = [chunk for chunk in chunks if isinstance(chunk, Text)]
    assert "Good morning to you" in text_of(chunks)
    assert len(words) == len(cancel.seconds) == len(text_of(chunks).split())
    assert chunks[-2:] == [Usage(mode="total", input_tokens=4, output_tokens=len(words)), Stop(reason="end")]


def test_echo_says_back_what_was_said() -> None:
    assert text_of(ask(user("one  two\nthree"), name="echo")) == "You said: one  two\nthree"


def test_the_same_request_has_the_same_answer() -> None:
    assert ask(user("think about tea"), tools=TOOLS) == ask(user("think about tea"), tools=TOOLS)


def test_it_counts_when_asked_to_so_that_there_is_something_to_cancel() -> None:
    assert text_of(ask(user("Please count to 12"))) == "1 2 3 4 5 6 7 8 9 10 11 12"


def test_a_cancel_ends_it_without_a_stop() -> None:
    chunks = ask(user("count to 100"), cancel=Waits(cancelled_at=3))
    assert text_of(chunks) == "1 2 3 4 "
    assert not any(isinstance(chunk, Stop | Usage) for chunk in chunks)


def test_a_limit_of_tokens_is_a_limit_of_words() -> None:
    chunks = ask(user("count to 100"), options={"max_tokens": 3})
    assert text_of(chunks).split() == ["1", "2", "3"]
    assert chunks[-1] == Stop(reason="length")


@pytest.mark.parametrize(("text", "options"), [("think first", {}), ("hello", {"reasoning": "low"})])
def test_it_reasons_when_asked_to(text: str, options: dict[str, Any]) -> None:
    chunks = ask(user(text), options=options)
    assert isinstance(chunks[0], Reasoning)
    assert any(isinstance(chunk, Text) for chunk in chunks)


def test_it_does_not_reason_unasked() -> None:
    assert not any(isinstance(chunk, Reasoning) for chunk in ask(user("hello")))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("add 2 and 3", [("add", {"a": 2, "b": 3})]),
        ("What time is it in New York?", [("current_time", {"city": "New York"})]),
        ("please use current_time with city: Oslo", [("current_time", {"city": "Oslo"})]),
        ("book, guest is Ada", [("book", {"guest": "Ada"})]),
        ("calculate 12 * (3)", [("calculator", {"expression": "12 * (3)"})]),
        (
            "add 1.5 and -2, and tell me the current time in Rome",
            [("add", {"a": 1.5, "b": -2}), ("current_time", {"city": "Rome"})],
        ),
        ("hello, how are you?", []),
        ("", []),
    ],
)  # fmt: skip
def test_it_asks_for_the_tools_that_the_words_are_about(text: str, wanted: list[tuple[str, Any]]) -> None:
    chunks = ask(user(text), tools=TOOLS)
    assert calls(chunks) == wanted
    assert chunks[-1] == Stop(reason="tool_calls" if wanted else "end")


def test_an_expression_is_enough_for_a_tool_that_does_sums() -> None:
    assert calls(ask(user("what is 2+3?"), tools=(TIME, CALCULATOR))) == [("calculator", {"expression": "2+3"})]


def test_without_parallel_calls_it_asks_for_one() -> None:
    chunks = ask(user("add 1 and 2, then the current time in Rome"), tools=TOOLS, parallel_tool_calls=False)
    assert [name for name, _ in calls(chunks)] == ["add"]


@pytest.mark.parametrize(("choice", "names"), [("none", []), ("required", ["add"]), ("current_time", ["current_time"])])
def test_the_choice_of_tools_is_obeyed(choice: str, names: list[str]) -> None:
    assert [name for name, _ in calls(ask(user("good day"), tools=TOOLS, tool_choice=choice))] == names


def test_optional_arguments_without_a_value_are_left_out_and_required_ones_are_filled() -> None:
    odd = tool(
        "odd", "Odd.", ["mode", "flag", "many", "where"],
        mode={"enum": ["fast", "slow"]}, flag={"type": "boolean"}, many={"type": "array", "items": {"type": "integer"}},
        where={"type": ["string", "null"]}, note=STRING,
    )  # fmt: skip
    assert calls(ask(user("odd, slow: 1 2 3"), tools=(odd,))) == [
        ("odd", {"mode": "slow", "flag": True, "many": [1, 2, 3], "where": "odd, slow: 1 2 3"})
    ]


def with_result(content: Any, outcome: str = "ok") -> list[dict[str, Any]]:
    call = {"type": "tool_call", "call_id": "c1", "name": "add", "arguments": {"a": 2, "b": 3}}
    result = {"type": "tool_result", "call_id": "c1", "outcome": outcome, "content": content}
    return [user("add 2 and 3"), {"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}]


@pytest.mark.parametrize("choice", ["auto", "required", "add"])
def test_after_a_result_it_answers_in_prose_with_it_and_never_asks_again(choice: str) -> None:
    chunks = ask(*with_result(5), tools=TOOLS, tool_choice=choice)
    assert text_of(chunks) == "I asked `add` and it answered 5."
    assert chunks[-1] == Stop(reason="end")


@pytest.mark.parametrize(
    ("content", "outcome", "told"),
    [
        ({"sum": 5}, "ok", '{"sum": 5}'),
        ("", "ok", "returned nothing"),
        (None, "ok", "returned nothing"),
        ("no luck", "error", "ended as error: no luck"),
        ("", "refused", "ended as refused"),
    ],
)
def test_each_outcome_of_a_call_is_told(content: Any, outcome: str, told: str) -> None:
    assert told in text_of(ask(*with_result(content, outcome), tools=TOOLS))


def test_a_new_message_after_a_result_may_ask_again() -> None:
    assert calls(ask(*with_result(5), user("now add 4 and 5"), tools=TOOLS)) == [("add", {"a": 4, "b": 5})]


@settings(deadline=None)  # a busy machine is no fault of ours
@given(text=st.text(max_size=60), numbers=st.lists(st.integers(-999, 999), max_size=3))
def test_whatever_is_said_the_arguments_fit_the_schema(text: str, numbers: list[int]) -> None:
    said = f"{text} add calculator current_time {numbers}"
    for name, arguments in calls(ask(user(said), tools=TOOLS)):
        schema = next(one.parameters for one in TOOLS if one.name == name)
        assert list(Draft202012Validator(dict(schema)).iter_errors(arguments)) == []


PLAN = '/add {"a": 1, "b": 2}\n/add {"a": 3, "b": 4}\n\n/calculator {"expression": "${1.sum} + ${2.sum}"}'


def asked(step: int, *results: Any) -> list[dict[str, Any]]:
    """An answer that asked for tools, and what they answered."""
    ids = [f"c{step}-{number}" for number, _ in enumerate(results)]
    call_parts = [{"type": "tool_call", "call_id": name, "name": "add", "arguments": {}} for name in ids]
    result_parts = [
        {"type": "tool_result", "call_id": name, "outcome": "ok", "content": content}
        for name, content in zip(ids, results, strict=True)
    ]
    return [{"role": "assistant", "content": call_parts}, {"role": "tool", "content": result_parts}]


def report(text: str) -> dict[str, Any]:
    return {**user(text), "subagent_id": "sub-1-1-1", "silent": True}


def test_it_follows_a_plan_of_the_user_step_by_step_and_then_answers() -> None:
    first, second = asked(1, {"sum": 3}, {"sum": 7}), asked(2, 10)
    plan = user(f"Please:\n{PLAN}")
    assert calls(ask(plan, tools=TOOLS)) == [("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})]
    assert calls(ask(plan, *first, tools=TOOLS)) == [("calculator", {"expression": "3 + 7"})]
    end = ask(plan, *first, *second, tools=TOOLS)
    assert calls(end) == []
    assert text_of(end).endswith("I asked `add` and it answered 10.")


def test_a_plan_of_the_agent_stands_in_for_one_of_the_user_and_knows_what_was_said() -> None:
    options = {"offline_plan": '/current_time {"city": "${user.said}"}'}
    said = 'the "old" town'
    assert calls(ask(user(said), tools=TOOLS, options=options)) == [("current_time", {"city": said})]
    assert calls(ask(user('/add {"a": 1, "b": 1}'), tools=TOOLS, options=options)) == [("add", {"a": 1, "b": 1})]


def test_without_parallel_calls_each_call_of_a_plan_is_a_step() -> None:
    (first,) = calls(ask(user(PLAN), tools=TOOLS, parallel_tool_calls=False))
    (second,) = calls(ask(user(PLAN), *asked(1, {"sum": 3}), tools=TOOLS, parallel_tool_calls=False))
    assert (first[1], second[1]) == ({"a": 1, "b": 2}, {"a": 3, "b": 4})


def test_a_call_without_arguments_gives_none_and_a_tool_that_is_not_offered_is_only_a_word() -> None:
    assert calls(ask(user("/add"), tools=TOOLS)) == [("add", {})]
    assert calls(ask(user("/help me"), tools=TOOLS)) == []
    assert calls(ask(user(PLAN), tools=TOOLS, tool_choice="none")) == []


def test_a_report_of_a_subagent_is_repeated_and_asks_for_nothing() -> None:
    done = [user("/add"), *asked(1, 5), {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}]
    chunks = ask(*done, report("add 2 and 3"), tools=TOOLS)
    assert calls(chunks) == []
    assert text_of(chunks) == "I was told: add 2 and 3"
    assert calls(ask(report("add 2 and 3"), tools=TOOLS)) == []


def test_a_report_between_two_steps_of_a_plan_leaves_it_where_it_is() -> None:
    messages = [user(PLAN), *asked(1, {"sum": 3}, {"sum": 7}), report("add 2 and 3")]
    assert calls(ask(*messages, tools=TOOLS)) == [("calculator", {"expression": "3 + 7"})]
