"""A thread is deleted on the running product while its tool runs: unknown at once, and who follows it is told."""

import pytest

from chalicelib.client import NotFound, Turnlog
from tests.journeys.product import Talk, asking, call, step, text


def test_a_thread_that_is_deleted_while_a_tool_runs_is_gone_and_its_follower_is_told(turnlog: Turnlog) -> None:
    tools = {"slow": {"returns": 1, "takes_ms": 1500}}
    talk = Talk.begin(turnlog, [asking(call("c1", "slow")), step(text("never said"))], tools, message="go")
    talk.event("tool.started")
    with turnlog.stream(talk.id) as stream:
        stream.wait_live()
        deleted_at = turnlog.delete(talk.id)
        with pytest.raises(NotFound, match="deleted"):
            for _ in stream:
                pass
    for ask in (turnlog.thread, turnlog.events, turnlog.delete):
        with pytest.raises(NotFound):
            ask(talk.id)
    assert dict(turnlog.cost(talk.id)) == {"total_cost": 0.0, "deleted_at": deleted_at}
