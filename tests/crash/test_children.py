"""Child threads and sessions on the emulator: told once, in their true state, whatever comes between; no deadlock."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.domain.children import LIVE
from chalicelib.domain.commands import Idempotency, Say
from chalicelib.domain.model import Child, ChildKind, Report
from chalicelib.engine.registry import registry
from tests.crash.audit import audit, told
from tests.crash.faults import EVERY
from tests.crash.residents import results
from tests.crash.scenarios import AGAIN, FAMILY, KIDS, SESSIONS, WITH_HELPER, call, kid, spawning, step, text
from tests.crash.tap import Moment
from tests.crash.world import SWEEP_SECONDS, World

Worlds = Callable[[str], World]
FAILS: dict[str, Any] = {"events": [{"type": "error", "status": 400, "detail": "out of luck", "retryable": False}]}
HEARD = [step(text("I see."))] * 4 * AGAIN


def ends(world: World) -> dict[str, str]:
    """Reference -> outcome, as the parent's log tells it; each at most once."""
    found = [event["data"] for event in world.events() if event["type"] == "child.completed"]
    assert len({data["reference_id"] for data in found}) == len(found), found
    return {data["reference_id"]: data["outcome"] for data in found}


def rows(world: World) -> dict[str, Child]:
    with world.tap.outside():
        return {row.reference: row for row in registry(world.house.store, world.thread)}


def settled(world: World) -> World:
    world.rest()
    assert audit(world) == []
    for ref in world.children():
        assert audit(world.at(ref)) == []
    return world


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_a_child_that_ends_at_any_call_of_its_parent_is_told_once(world: Worlds, moment: Moment, every: int) -> None:
    """The child runs and ends within one call of the parent's turn: none is forgotten, none told twice, no timer."""
    clean = world("no child in between")
    clean.create(FAMILY)
    clean.deliver()
    for point in range(8, len(clean.tap.calls) + 1, every):
        at = world(f"{moment.value} {point}")
        at.tap.at(point, moment, lambda at=at: at.meanwhile(at.drain))  # type: ignore[misc]
        at.create(FAMILY)
        at.drain()
        assert set(ends(at).values()) == {"completed"}, point
        assert len(ends(at)) == 2, point
        said = json.dumps([m for m in told(at)["messages"] if m["role"] == "user"])
        assert [said.count(f"kid {number} is done") for number in (1, 2)] == [1, 1], point
        assert audit(at) == [], point


def test_children_that_fail_or_are_cancelled_are_told_as_what_they_are(world: Worlds) -> None:
    at = world("bad children")
    at.create({"script": [spawning(kid(FAILS), KIDS[0]), *HEARD]})
    at.deliver()
    second = at.at(at.children()[1])
    second.cancel(key="of the child")
    settled(at)
    assert ends(at) == {"sub-1-1-1": "failed", "sub-1-1-2": "cancelled"}
    assert {name: row.status for name, row in rows(at).items()} == ends(at)
    said = [m["content"][0]["text"] for m in told(at)["messages"] if m["silent"]]
    assert "out of luck" in "".join(said)


def test_twenty_children_that_end_within_one_model_step_of_their_parent_are_told_each_once(world: Worlds) -> None:
    """All of them, those that fail too, start and end while the parent waits for its model."""
    at = world("twenty")
    kids = [kid(FAILS if n % 5 == 0 else step(text(f"kid {n} is done"))) for n in range(1, 21)]
    at.create({"script": [spawning(*kids), *HEARD]})
    ended: list[str] = []

    def while_asked(_: int) -> None:
        mine = [asked for asked in at.guests.requests if at.thread.token in asked.messages[0]["id"]]
        if len(mine) == 2 and at.guests.requests[-1] is mine[-1]:  # its own second call, none of its children's
            at.meanwhile(at.drain)
            ended.extend(status for ref in at.children() for status in ends_of(at.at(ref)))

    at.guests.while_asked = while_asked
    settled(at)
    assert sorted(ended) == ["run.completed"] * 16 + ["run.failed"] * 4
    assert ends(at) == {f"sub-1-1-{n}": "failed" if n % 5 == 0 else "completed" for n in range(1, 21)}
    last = [m["content"][0]["text"] for m in at.guests.requests[-1].messages if m["role"] == "user"]
    for n in range(1, 21):
        how = "failed" if n % 5 == 0 else f"completed:\nkid {n} is done"
        assert sum(f"(sub-1-1-{n}) has ended: {how}" in said for said in last) == 1


def ends_of(world: World) -> list[str]:
    """The events that end the runs of a thread."""
    with world.tap.outside():
        return [e["type"] for e in world.events() if e["type"] in ("run.completed", "run.failed", "run.cancelled")]


def test_a_child_whose_runners_all_die_is_told_as_failed(world: Worlds) -> None:
    at = world("a lost child")
    at.create(WITH_HELPER, agent="boss")
    at.deliver()
    for _ in range(5):  # attempts without a stored fact that a run has
        deaths = at.deaths
        at.tap.at(len(at.tap.calls) + 2, Moment.AFTER, at.tap.die)
        assert at.deliver()
        assert at.deaths == deaths + 1
        with at.tap.outside():
            at.sweep(SWEEP_SECONDS)
    settled(at)
    (child,) = at.children()
    assert told(at.at(child))["status"]["reason"] == "execution_lost"
    assert ends(at) == {"sub-1-1-1": "failed"}
    assert results(at)["k1"][0] == "error"
    assert told(at)["status"]["reason"] == "stop_on_response"


def test_a_blocking_child_gives_its_outcome_as_the_result(world: Worlds) -> None:
    at = world("blocking")
    at.create(WITH_HELPER, agent="boss")
    settled(at)
    outcome = {"reference_id": "sub-1-1-1", "outcome": "completed", "result": "kid 1 is done"}
    assert results(at) == {"k1": ("ok", outcome)}
    kinds = [event["type"] for event in at.events() if event["type"].startswith(("run.", "child."))]
    assert kinds == [
        "run.queued",
        "run.started",
        "child.started",
        "run.waiting",
        "run.resumed",
        "child.completed",
        "run.completed",
    ]
    assert not [m for m in told(at)["messages"] if m["silent"]]


def test_a_parent_that_waits_for_a_child_that_fails_goes_on(world: Worlds) -> None:
    at = world("blocking, failing")
    at.create({"script": [spawning(kid(FAILS), tool="helper"), *HEARD]}, agent="boss")
    settled(at)
    assert results(at)["k1"][0] == "error"
    assert results(at)["k1"][1]["outcome"] == "failed"
    assert told(at)["status"]["reason"] == "stop_on_response"


def test_cancelling_a_parent_that_waits_ends_the_child_that_it_waited_for(world: Worlds) -> None:
    at = world("cancelled while it waits for a child")
    at.create(WITH_HELPER, agent="boss")
    at.deliver()
    assert at.head.waiting == "awaiting_children"
    answer = at.cancel()
    assert answer.status == 200
    (child,) = at.children()
    at.sweep()
    settled(at)
    assert ends(at) == {"sub-1-1-1": "cancelled"}
    assert results(at)["k1"][0] == "aborted"
    assert at.at(child).head.terminated_at


def test_no_child_stays_behind_where_a_parent_dies_making_it_and_is_cancelled(world: Worlds) -> None:
    """Whichever call is the last of the parent's runner: what it had registered is ended, or works and is told."""
    clean = world("makes two")
    clean.create(FAMILY)
    first = len(clean.tap.calls) + 1
    clean.deliver()
    for point in range(first, len(clean.tap.calls) + 1):
        at = world(f"dies after {point}, and is cancelled")
        at.create(FAMILY)
        at.tap.at(point, Moment.AFTER, at.tap.die)
        at.deliver()
        at.cancel()
        at.sweep()
        at.rest()
        assert audit(at) == [], point
        assert {name: row.status for name, row in rows(at).items()} == ends(at), point


def test_a_report_that_comes_twice_is_told_once(world: Worlds) -> None:
    at = world("a report twice")
    at.create(FAMILY)
    settled(at)
    before = at.events()
    with at.tap.outside():
        again = Report(key="sub-1-1-1.1", reference="sub-1-1-1", outcome="completed", at=1)
        assert not at.house.store.report(at.thread, again)
        at.house.queue.wake(at.thread, epoch=at.head.epoch, number=77)
    at.drain()
    assert at.events() == before


def test_a_message_opens_a_child_that_had_ended_and_its_next_outcome_is_told_too(world: Worlds) -> None:
    at = world("spoken to again")
    again = call("m", "subagent_message", '{"reference_id": "sub-1-1-1", "content": "once more"}')
    script = [spawning(KIDS[0]), step(text("I wait.")), step(*again, stop="tool_calls"), *HEARD]
    at.create({"script": script})
    at.settle()
    assert results(at)["m"] == ("ok", {"queued": True})
    (child,) = at.children()
    said = [m["content"][0]["text"] for m in told(at.at(child))["messages"] if m["role"] == "user"]
    assert said[-1] == "once more"
    told_of = [event["data"] for event in at.events() if event["type"] == "child.completed"]
    assert [data["outcome"] for data in told_of] == ["completed", "completed"]


@pytest.mark.parametrize("reference", ["sub-1-1-9", "nothing", "", "ses-1-1-1", "sub-0-0-0"])
def test_a_message_to_nobody_is_that_calls_error(world: Worlds, reference: str) -> None:
    at = world(f"nobody {reference}")
    ask = json.dumps({"reference_id": reference, "content": "hello"})
    at.create({"script": [step(*call("m", "subagent_message", ask), stop="tool_calls"), *HEARD]})
    settled(at)
    assert results(at)["m"][0] == "error"


def test_an_agent_that_starts_itself_ends_at_the_fifth_level(world: Worlds) -> None:
    at = world("itself")
    arguments: dict[str, Any] = {}
    for _ in range(7):
        arguments = {"script": [spawning(arguments), *HEARD[:3]]}
    at.create(arguments)
    settled(at)
    depth, level = 0, at
    while below := level.children():
        level = level.at(below[0])
        depth += 1
    assert depth == 5
    assert results(level)["k1"][0] == "error"
    assert "levels below its root" in results(level)["k1"][1]


def test_a_thread_has_at_most_fifty_children_at_work(world: Worlds) -> None:
    at = world("fifty")
    at.create({"script": [spawning(KIDS[0], KIDS[1]), *HEARD]}, text=None)
    with at.tap.outside():
        for number in range(LIVE - 1):
            at.house.store.commit(
                at.registering(
                    Child(
                        reference=f"sub-9-9-{number + 1}",
                        kind=ChildKind.THREAD,
                        token="a" * 20,
                        call_id="x",
                        name="n",
                        created_at=1,
                    )
                )
            )
    at.post("go")
    at.deliver()
    outcomes = {name: outcome for name, (outcome, _) in results(at).items()}
    assert outcomes == {"k1": "ok", "k2": "error"}
    assert "50 subagents" in results(at)["k2"][1]


def test_terminating_a_child_alone_tells_the_parent_once_and_it_goes_on(world: Worlds) -> None:
    at = world("one of two")
    at.create(FAMILY)
    at.deliver()
    at.at(at.children()[0]).terminate(key="of the child")
    settled(at)
    assert ends(at) == {"sub-1-1-1": "terminated", "sub-1-1-2": "completed"}
    assert told(at)["status"] == {"state": "idle", "reason": "stop_on_response"}


def test_terminating_a_tree_reaches_every_level_and_nothing_runs_after_it(world: Worlds) -> None:
    at = world("three levels")
    at.create({"script": [spawning({"script": [spawning(KIDS[0]), *HEARD[:3]]}), *HEARD]})
    at.deliver()  # the root has made its child, which has not begun
    at.deliver()
    at.terminate()
    for _ in range(3):
        at.sweep()
        at.drain()
    asked = len(at.guests.requests)
    at.post_refused("after the end")
    settled(at)
    level, statuses = at, []
    while below := level.children():
        level = level.at(below[0])
        statuses.append(bool(level.head.terminated_at))
    assert statuses == [True, True]
    assert len(at.guests.requests) == asked
    assert {row.status for row in rows(at).values()} == {"terminated"}


@pytest.mark.parametrize("every", EVERY)
def test_a_child_that_ends_while_its_parent_is_terminated_wakes_nobody(world: Worlds, every: int) -> None:
    clean = world("the end of a child")
    clean.create(FAMILY)
    clean.deliver()
    first = len(clean.tap.calls) + 1
    clean.deliver()
    for point in range(first, len(clean.tap.calls) + 1, every):
        at = world(f"terminated at {point} of its child")
        at.tap.at(point, Moment.BEFORE, lambda at=at: at.meanwhile(at.terminate))  # type: ignore[misc]
        at.create(FAMILY)
        at.drain()
        settled(at)
        assert told(at)["status"]["reason"] == "terminated", point
        runs = [run["status"] for run in told(at)["runs"].values()]
        assert runs == ["completed"] or runs == ["completed", "cancelled"], point


def test_the_cost_of_a_tree_is_the_sum_of_its_threads_after_redeliveries(world: Worlds) -> None:
    at = world("1 + 20")
    at.create({"script": [spawning(*[kid(step(text(f"kid {n}"))) for n in range(20)]), *HEARD]})
    at.settle()
    at.redeliver_all()
    with at.tap.outside():
        for ref in (at.thread, *at.children()):
            at.house.queue.wake(ref, epoch=9, number=99)
    at.drain()
    with at.tap.outside():
        whole = at.house.cost.thread_cost(at.principal, at.thread.id)
        parts = [at.house.cost.thread_cost(at.principal, ref.id) for ref in at.children()]
    assert len(whole["threads"]) == 21
    assert whole["request_count"] == at.head.model_calls + 20
    own = {name: sum(line[name] for line in whole["models"]) for name in ("requests", "input_tokens", "output_tokens")}
    below = {name: sum(line[name] for part in parts for line in part["models"]) for name in own}
    assert {name: own[name] - below[name] for name in own} == {
        "requests": at.head.model_calls,
        "input_tokens": 3 * at.head.model_calls,
        "output_tokens": 2 * at.head.model_calls,
    }


# ---------------------------------------------------------------- sessions


def test_a_gather_parks_the_run_until_its_sessions_have_ended(world: Worlds) -> None:
    at = world("gather")
    at.create(SESSIONS)
    settled(at)
    starts = [event["run_id"] for event in at.events() if event["type"] in ("run.started", "run.resumed")]
    assert starts == [at.thread.run(number) for number in (1, 2, 3, 1)]
    outcome, result = results(at)["g"]
    assert outcome == "ok"
    assert [one["status"] for one in result["sessions"]] == ["completed", "completed"]
    assert result["sessions"][0]["result"] == "That is it."


def test_a_join_while_sessions_are_gathered_waits_for_the_run_that_gathers(world: Worlds) -> None:
    at = world("join while parked")
    at.create(SESSIONS)
    parked: list[int] = []

    def look(*_: object) -> None:
        if at.head.parked and not parked:
            parked.append(at.head.parked)
            at.meanwhile(lambda: at.post("one more"))

    at.guests.while_asked = look
    settled(at)
    (joined,) = [m for m in told(at)["messages"] if m["content"][0].get("text") == "one more"]
    assert parked == [1]
    assert joined["run_id"] == "run_THREAD_1"


def test_cancelling_the_run_that_gathers_lets_its_sessions_go_on(world: Worlds) -> None:
    at = world("parked and cancelled")
    at.create(SESSIONS)
    parked: list[int] = []

    def look(*_: object) -> None:
        if at.head.parked and not parked:
            parked.append(at.head.parked)
            at.meanwhile(lambda: at.cancel(1))

    at.guests.while_asked = look
    settled(at)
    assert parked == [1]
    runs = {number.rpartition("_")[2]: run["status"] for number, run in told(at)["runs"].items()}
    assert runs == {"1": "cancelled", "2": "completed", "3": "completed"}
    assert results(at)["g"][0] == "aborted"


def test_terminating_a_thread_ends_the_run_that_gathers_and_its_sessions(world: Worlds) -> None:
    at = world("parked and terminated")
    at.create(SESSIONS)
    done: list[int] = []

    def look(*_: object) -> None:
        if at.head.parked and not done:
            done.append(1)
            at.meanwhile(at.terminate)

    at.guests.while_asked = look
    settled(at)
    assert {run["status"] for run in told(at)["runs"].values()} == {"cancelled"}
    assert told(at)["status"] == {"state": "idle", "reason": "terminated"}


def test_the_same_key_makes_one_session(world: Worlds) -> None:
    at = world("one key")
    place = '{"idempotency_key": "a", "prompt": "do a"}'
    both = (*call("s1", "child_session_create", place), *call("s2", "child_session_create", place))
    looks = (*call("l", "child_session_list"), *call("e", "child_session_events", '{"reference_id": "ses-1-1-1"}'))
    at.create({"script": [step(*both, stop="tool_calls"), step(*looks, stop="tool_calls"), *HEARD]})
    settled(at)
    assert results(at)["s1"] == results(at)["s2"]
    assert [one["reference_id"] for one in results(at)["l"][1]["sessions"]] == ["ses-1-1-1"]
    shown = results(at)["e"][1]["events"]
    assert [event["type"] for event in shown] == ["message.completed", "run.queued"]


# ---------------------------------------------------------------- attachments


def files(world: World) -> dict[str, str]:
    """Path -> text of the files in the folder of attachments."""
    with world.tap.outside():
        house, p, thread = world.house, world.principal, world.thread.id
        page = house.files.list_files(p, thread, "/attachments", limit=50, position=None)
        found = [house.files.get_file(p, thread, entry["path"]) for entry in page.items]
    return {one.file.path: (one.data or b"").decode() for one in found}


def test_attachments_go_with_the_words_that_mention_them_both_ways(world: Worlds) -> None:
    at = world("attachments both ways")
    answer = kid(*[step(text("Here: /attachments/plan.txt (and /attachments/none.txt)."))] * AGAIN)
    arguments = json.dumps({"name": "kid", "message": "Read /attachments/plan.txt, please.", "arguments": answer})
    at.create({"script": [step(*call("k1", "subagent_create", arguments), stop="tool_calls"), *HEARD]}, text=None)
    with at.tap.outside():
        at.house.files.put_file(at.principal, at.thread.id, "/attachments/plan.txt", b"one", "text/plain")
    at.post("go")
    settled(at)
    (child,) = at.children()
    assert files(at.at(child)) == {"/attachments/plan.txt": "one"}
    assert files(at) == {"/attachments/plan.txt": "one", "/attachments/plan-2.txt": "one"}
    (heard,) = [m["content"][0]["text"] for m in told(at)["messages"] if m["silent"]]
    assert "Here: /attachments/plan-2.txt (and /attachments/none.txt)." in heard


def test_data_that_comes_with_a_message_becomes_a_file_that_takes_nobodys_place(world: Worlds) -> None:
    at = world("attachments of messages")
    at.create({"script": HEARD}, text=None)
    for words in (b"one", b"two"):
        data = {"type": "data", "name": "a.txt", "content_type": "text/plain", "base64": b64encode(words).decode()}
        ask = Say(content=({"type": "text", "text": words.decode()},), attachments=(data,), metadata={})
        for _ in range(2):
            key = Idempotency(key=words.decode(), fingerprint="f" * 64)
            with at.tap.outside():
                answer = at.house.accept.post_message(at.principal, at.thread.id, ask, key)
        assert answer.replayed
    at.drain()
    assert files(at) == {"/attachments/a.txt": "one", "/attachments/a-2.txt": "two"}
    shown = [m["content"][1] for m in told(at)["messages"] if m["role"] == "user"]
    assert shown == [{"type": "file", "path": "/attachments/a.txt"}, {"type": "file", "path": "/attachments/a-2.txt"}]
