"""A handoff over the running product: who plays a thread is told by HTTP and in its events."""

from collections.abc import Callable

from chalicelib.client import Turnlog
from tests.journeys.product import Talk, asking, call, step, text


def test_a_thread_shows_who_plays_it_until_it_is_handed_back(turnlog: Turnlog, begin: Callable[..., Talk]) -> None:
    script = [asking(call("h1", "to_host")), step(text("The host.")), asking(call("b1", "to_guest")), step(text("I."))]
    talk = begin(script)
    talk.turn("hello")
    shown = turnlog.thread(talk.id)
    assert (shown["agent"], shown["played_by"]) == ("guest", "host")
    talk.turn("and then?")
    assert "played_by" not in turnlog.thread(talk.id)
    assert [event["data"] for event in talk.of("thread.updated")] == [{"played_by": "host"}, {"played_by": "guest"}]
    models = [event["data"]["model"] for event in talk.of("usage.updated")]
    assert models == ["scripted:script", "scripted:host", "scripted:host", "scripted:script"]
