"""A thread's messages as a provider gets them: nothing empty, the user's side first and last, calls paired."""

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from chalicelib.engine.models.providers.history import history
from chalicelib.ports import ModelRequest, ToolSpec

ADD = ToolSpec(name="add", description="", parameters={})
PIXEL = "iVBORw0KGgo="  # the first bytes of a PNG


def text(role: str, *texts: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": one} for one in texts]}


def call(call_id: str, arguments: Any) -> dict[str, Any]:
    part = {"type": "tool_call", "call_id": call_id, "name": "add", "arguments": arguments}
    return {"role": "assistant", "content": [part]}


def result(call_id: str, content: Any, outcome: str = "ok") -> dict[str, Any]:
    part = {"type": "tool_result", "call_id": call_id, "outcome": outcome, "content": content}
    return {"role": "tool", "content": [part]}


def sent(*messages: dict[str, Any], system: str = "", tools: tuple[ToolSpec, ...] = (ADD,)) -> list[ModelMessage]:
    return history(
        ModelRequest(
            model="openai:x",
            system=system,
            messages=messages,
            tools=tools,
            tool_choice="auto",
            parallel_tool_calls=True,
            options={},
            deadline_seconds=60,
            call_index=0,
            arguments={},
        )
    )


def prompts(messages: list[ModelMessage]) -> list[Any]:
    return [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)]


def returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


def test_a_conversation_is_sent_in_its_order_with_the_prompt_first() -> None:
    messages = sent(text("user", "hi"), text("assistant", "hello"), text("user", "bye"), system="Be brief.")
    assert [type(message).__name__ for message in messages] == ["ModelRequest", "ModelResponse", "ModelRequest"]
    assert isinstance(messages[0].parts[0], SystemPromptPart)
    assert prompts(messages) == ["hi", "bye"]
    assert messages[1].parts == [TextPart(content="hello")]


def test_a_result_carries_the_name_of_its_call_and_its_content_as_text() -> None:
    messages = sent(text("user", "2+3"), call("c1", {"a": 2, "b": 3}), result("c1", {"sum": 5}))
    assert messages[1].parts == [ToolCallPart(tool_name="add", args={"a": 2, "b": 3}, tool_call_id="c1")]
    (told,) = returns(messages)
    assert (told.tool_name, told.tool_call_id, told.content, told.outcome) == ("add", "c1", '{"sum": 5}', "success")


def test_an_empty_result_gets_a_stand_in() -> None:
    for content in ("", "  ", None):
        assert returns(sent(text("user", "x"), call("c1", {}), result("c1", content)))[0].content == "(no output)"


def test_an_outcome_that_is_not_ok_is_told_as_an_error() -> None:
    for outcome in ("error", "refused", "aborted", "unknown"):
        (told,) = returns(sent(text("user", "x"), call("c1", {}), result("c1", "no luck", outcome)))
        assert (told.content, told.outcome) == (f"The call ended as {outcome}: no luck", "failed")


def test_arguments_that_are_no_object_are_shown_as_invalid() -> None:
    messages = sent(text("user", "x"), call("c1", '{"a": '), call("c2", [1]), call("c3", None))
    calls = [part for message in messages for part in message.parts if isinstance(part, ToolCallPart)]
    assert [part.args for part in calls] == [{"invalid_arguments": '{"a": '}, {"invalid_arguments": [1]}, {}]


def test_where_no_tool_is_offered_calls_and_results_are_told_in_words() -> None:
    conversation = sent(text("user", "1 + 2?"), call("c1", {"a": 1}), result("c1", 3), tools=())
    assert returns(conversation) == []
    said = [part.content for message in conversation for part in message.parts if isinstance(part, TextPart)]
    assert said == ['[called add: {"a": 1}]']
    assert prompts(conversation) == ["1 + 2?", "[add answered: 3]"]


def test_an_answer_without_content_is_left_out_and_the_users_messages_around_it_are_joined() -> None:
    messages = sent(text("user", "a"), text("assistant"), text("assistant", ""), text("user", "b"))
    assert len(messages) == 1
    assert prompts(messages) == ["a", "b"]


def test_a_conversation_that_begins_or_ends_with_an_answer_gets_the_users_side() -> None:
    messages = sent(text("assistant", "Welcome."))
    assert prompts(messages) == ["(the conversation begins)", "(continue)"]


def test_files_are_mentioned_images_are_shown_and_text_data_is_read_out() -> None:
    parts = [
        {"type": "text", "text": "look"},
        {"type": "file", "path": "/attachments/a.csv"},
        {"type": "data", "name": "p.png", "content_type": "image/png", "base64": PIXEL},
        {"type": "data", "name": "t.txt", "content_type": "text/plain", "base64": "aGk="},
        {"type": "data", "name": "z.zip", "content_type": "application/zip", "base64": "aGk="},
        {"type": "data", "name": "bad.png", "content_type": "image/png", "base64": "%%"},
    ]
    (content,) = prompts(sent({"role": "user", "content": parts}))
    assert isinstance(content[2], BinaryContent)
    assert content[2].media_type == "image/png"
    assert [one for one in content if isinstance(one, str)] == [
        "look",
        "[attached file: /attachments/a.csv]",
        "[attached data: t.txt]\nhi",
        "[attached data: z.zip, application/zip]",
        "[attached data: bad.png, image/png]",
    ]


PART = st.one_of(
    st.builds(lambda value: {"type": "text", "text": value}, st.sampled_from(["", " ", "a"])),
    st.just({"type": "file", "path": "/f"}),
    st.just({"type": "data", "name": "d", "content_type": "image/png", "base64": ""}),
)
MESSAGE = st.builds(
    lambda role, parts: {"role": role, "content": parts},
    st.sampled_from(["user", "assistant", "system"]),
    st.lists(PART, max_size=3),
)


@settings(deadline=None)  # a busy machine is no fault of ours
@given(messages=st.lists(MESSAGE, max_size=6), system=st.sampled_from(["", " ", "Be brief."]))
def test_no_conversation_has_an_empty_part_or_two_neighbours_of_one_side(messages: list[Any], system: str) -> None:
    told = sent(*messages, system=system)
    sides = [isinstance(message, ModelResponse) for message in told]
    assert all(one != other for one, other in itertools.pairwise(sides))
    assert not sides[-1]
    assert all(message.parts for message in told)
    for message in told:
        for part in message.parts:
            assert isinstance(part, SystemPromptPart | UserPromptPart | TextPart)
            assert all(str(one).strip() for one in ([part.content] if isinstance(part.content, str) else part.content))
            assert part.content
