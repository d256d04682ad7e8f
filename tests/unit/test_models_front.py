"""The thin server in front of the small model: which turns become calls, and how a call is asked for and told."""

import json
from typing import Any

import pytest

from infra.local import real_model_server as front

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Sum two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}, "note": {"type": "string"}},
            "required": ["a", "b"],
        },
    },
}


def body(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "tools": [ADD], **more}


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (body("Sum these."), True),
        (body("What is 2 plus 3?"), True),
        (body("Good morning!"), False),
        (body("Good morning!", tool_choice="required"), True),
        (body("What is 2 plus 3?", tool_choice="none"), False),
        (body("What is 2 plus 3?", tools=[]), False),
        ({"messages": [{"role": "user", "content": "add"}, {"role": "tool", "content": "5"}], "tools": [ADD]}, False),
    ],
)
def test_a_turn_becomes_a_call_if_it_is_about_a_tool(asked: dict[str, Any], wanted: bool) -> None:
    assert front.wants_call(asked) is wanted


def test_the_question_allows_the_offered_calls_only_with_their_required_arguments() -> None:
    question = front.call_question(body("What is 2 plus 3?"))
    (schema,) = question["response_format"]["json_schema"]["schema"]["anyOf"]
    assert schema["properties"]["name"] == {"const": "add"}
    assert set(schema["properties"]["arguments"]["properties"]) == {"a", "b"}
    assert question["messages"][-1] == {"role": "user", "content": "What is 2 plus 3?"}
    assert "stream" not in question


def test_text_arguments_are_bounded() -> None:
    assert front.bounded({"type": "string"}) == {"type": "string", "maxLength": front.STRING_LENGTH}
    assert front.bounded({"type": "string", "maxLength": 5}) == {"type": "string", "maxLength": 5}
    assert front.bounded({"type": "number"}) == {"type": "number"}


def answer(content: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return {"id": "chatcmpl-0123456789abcdef", "created": 1, "model": "local", "choices": [choice], "usage": {"n": 1}}


def test_a_call_is_told_as_its_start_its_arguments_its_finish_and_the_usage() -> None:
    deltas = front.call_deltas(answer('{"name": "add", "arguments": {"a": 2, "b": 3}}'))
    calls = [chunk["choices"][0]["delta"]["tool_calls"][0] for chunk in deltas[:-2]]
    assert calls[0]["function"] == {"name": "add", "arguments": ""}
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"a": 2, "b": 3}
    assert deltas[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert (deltas[-1]["choices"], deltas[-1]["usage"]) == ([], {"n": 1})


def test_a_call_that_was_cut_is_told_as_the_text_that_it_is() -> None:
    deltas = front.call_deltas(answer('{"name": "add", "argu'))
    assert deltas[0]["choices"][0]["delta"]["content"] == '{"name": "add", "argu'
    assert deltas[-2]["choices"][0]["finish_reason"] == "length"


def test_calls_and_results_are_told_to_the_model_in_words() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert front.plain(said) == {"role": "assistant", "content": 'add({"a": 2})'}
    assert front.plain({"role": "tool", "tool_call_id": "c1", "content": "5"})["content"].startswith(
        "The tool answered: 5"
    )
