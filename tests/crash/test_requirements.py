"""What an agent requires of the arguments of its threads: a thread that does not fit is not made."""

from collections.abc import Callable

import pytest

from chalicelib.domain.errors import InvalidRequest
from chalicelib.domain.model import Outcome
from tests.crash.audit import audit, told
from tests.crash.scenarios import SHORT_TEXT, call, step, text
from tests.crash.world import World

Worlds = Callable[[str], World]


def test_a_thread_whose_arguments_do_not_fit_is_refused_with_the_path(world: Worlds) -> None:
    played = world("requirements")
    with pytest.raises(InvalidRequest) as refused:
        played.create({}, agent="guide")
    assert [fault.path for fault in refused.value.faults] == ["arguments.city"]
    written = [name for name in played.tap.calls if "Transact" in name or "Put" in name]
    assert written == []


def test_the_key_of_a_refused_request_is_free_and_one_that_fits_is_played(world: Worlds) -> None:
    played = world("requirements")
    with pytest.raises(InvalidRequest):
        played.create({"city": 5}, agent="guide")
    played.create({"city": "Lisbon", **SHORT_TEXT}, agent="guide")
    played.settle()
    assert told(played)["status"] == {"state": "idle", "reason": "stop_on_response"}
    assert audit(played) == []


def test_a_child_whose_arguments_do_not_fit_is_that_calls_error(world: Worlds) -> None:
    played = world("requirements")
    asks = step(*call("k1", "to_guide", '{"town": "Lisbon"}'), stop="tool_calls")
    played.create({"script": [asks, step(text("So be it."))]}, agent="boss")
    played.settle()
    (result,) = [
        part for message in told(played)["messages"] if message["role"] == "tool" for part in message["content"]
    ]
    assert result["outcome"] == Outcome.ERROR
    assert result["content"] == "Agent guide requires other arguments: arguments.city: 'city' is a required property"
    assert played.children() == []
