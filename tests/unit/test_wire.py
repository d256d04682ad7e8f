"""JSON bodies of the records: their fields, the order of their keys, and the states that the head knows better."""

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain import wire
from chalicelib.domain.events import Event
from chalicelib.domain.ids import ThreadRef
from chalicelib.domain.model import About, Command, CommandState, Head, Message, Role, RunStatus, State, Tokens
from chalicelib.domain.values import dumps, loads

TOKEN = "a" * 20
REF = ThreadRef("org_1", TOKEN)
TEXT = {"type": "text", "text": "hello"}
HEAD = Head(rev=1, agent="assistant", created_at=100, active_at=300, since=200)
IDLE = {"state": "idle", "since": 200, "reason": None}
ZERO = {"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0}


def head(**changes: Any) -> Head:
    """The head of a thread, changed."""
    return replace(HEAD, **changes)


def command(**changes: Any) -> Command:
    """A command that started a run of its own, changed."""
    made = Command(number=3, created_at=150, nonce="n", run=3, agent="assistant", content=(TEXT,), metadata={"k": 1})
    return replace(made, **changes)


def cancel(**changes: Any) -> Command:
    """A run.cancel of run 3, changed."""
    return replace(Command(number=5, kind="run.cancel", created_at=160, nonce="n", run=3), **changes)


def text_of(body: Any) -> str:
    """JSON text; it must read back as the body itself, so that bodies hold plain JSON only."""
    assert loads(dumps(body)) == body
    return dumps(body)


# ---------------------------------------------------------------- events


def test_an_envelope_has_its_fields_in_the_order_of_the_contract() -> None:
    event = Event(seq=7, type="message.delta", data={"message_id": "m", "text": "é"}, at=123, run=3, attempt=2)
    assert text_of(wire.event_body(REF, event)) == (
        f'{{"schema_version":1,"delivery_seq":7,"event_id":"evt_{TOKEN}_7","type":"message.delta",'
        f'"thread_id":"thr_{TOKEN}","run_id":"run_{TOKEN}_3","attempt":2,"ts":123,'
        '"data":{"message_id":"m","text":"é"}}'
    )


def test_an_event_of_the_thread_names_no_run_and_no_attempt() -> None:
    body = wire.event_body(REF, Event(seq=1, type="thread.created", data={}, at=1))
    assert "run_id" not in body
    assert "attempt" not in body


# ---------------------------------------------------------------- messages


def test_a_message_has_only_the_optional_fields_that_are_set() -> None:
    message = Message(place=1, id="msg_1", run=0, role=Role.USER, content=(TEXT,), metadata={}, created_at=5)
    assert text_of(wire.message_body(REF, message)) == (
        f'{{"id":"msg_1","thread_id":"thr_{TOKEN}","role":"user","content":[{{"type":"text","text":"hello"}}],'
        '"silent":false,"metadata":{},"created_at":5}'
    )


def test_a_message_with_everything_shows_it_in_order() -> None:
    message = Message(
        place=2,
        id="msg_1",
        run=3,
        role=Role.ASSISTANT,
        content=(),
        metadata={"a": 1},
        created_at=5,
        updated_at=6,
        silent=True,
        incomplete=True,
        superseded=True,
    )
    body = wire.message_body(REF, message)
    assert list(body) == [
        *("id", "thread_id", "run_id", "role", "content", "silent", "metadata"),
        *("created_at", "updated_at", "superseded", "incomplete"),
    ]
    assert (body["run_id"], body["silent"], body["superseded"], body["incomplete"]) == (REF.run(3), True, True, True)


def test_a_pending_join_is_marked_queued_and_has_no_run() -> None:
    join = command(run=0)
    body = wire.pending_body(REF, join)
    assert body["metadata"] == {"k": 1, "queued": True}
    assert "run_id" not in body
    assert join.metadata == {"k": 1}


def test_a_message_that_waits_for_its_own_run_is_not_marked_queued() -> None:
    body = wire.pending_body(REF, command())
    assert body["metadata"] == {"k": 1}
    assert body["run_id"] == REF.run(3)


def test_the_body_of_a_waiting_message_is_the_body_that_it_has_in_its_place() -> None:
    placed = wire.user_message(REF, command(), place=9, run=3)
    assert (placed.place, placed.run, placed.role) == (9, 3, Role.USER)
    assert text_of(wire.message_body(REF, placed)) == text_of(wire.pending_body(REF, command()))


# ---------------------------------------------------------------- commands


def test_a_command_has_its_fields_in_the_order_of_the_contract() -> None:
    assert text_of(wire.command_body(REF, command(key="k1"), HEAD)) == (
        f'{{"id":"cmd_{TOKEN}_3","kind":"run.create","state":"queued","thread_id":"thr_{TOKEN}",'
        f'"run_id":"run_{TOKEN}_3","idempotency_key":"k1","created_at":150}}'
    )
    assert not {"run_id", "idempotency_key"} & set(wire.command_body(REF, command(run=0), HEAD))


@pytest.mark.parametrize(
    ("row", "at", "state"),
    [
        (command(), HEAD, "queued"),
        (command(), head(run=3), "queued"),
        (command(), head(run=3, run_started_at=9), "started"),
        (command(), head(run=2, run_started_at=9), "queued"),
        (command(status=RunStatus.COMPLETED), HEAD, "done"),
        (command(status=RunStatus.FAILED, state=CommandState.DONE), head(run=4, run_started_at=9), "done"),
        (command(status=RunStatus.CANCELLED, state=CommandState.WITHDRAWN), HEAD, "withdrawn"),
        (command(run=0), head(run=2, run_started_at=9), "queued"),
        (command(run=0, state=CommandState.WITHDRAWN), HEAD, "withdrawn"),
        (command(run=2, state=CommandState.JOINED), head(run=2, run_started_at=9), "joined"),
        (cancel(), head(run=3, run_started_at=9), "started"),
        (cancel(state=CommandState.DONE), head(run=3, run_started_at=9), "done"),
        (cancel(), head(run=4, run_started_at=9), "done"),
        (cancel(), HEAD, "done"),
    ],
)
def test_the_state_of_a_command_follows_from_its_row_and_the_head(row: Command, at: Head, state: str) -> None:
    assert wire.command_body(REF, row, at)["state"] == state


# ---------------------------------------------------------------- runs


def test_a_queued_run_has_the_required_fields_and_no_others() -> None:
    assert text_of(wire.run_body(REF, command(), HEAD)) == (
        f'{{"id":"run_{TOKEN}_3","thread_id":"thr_{TOKEN}","command_id":"cmd_{TOKEN}_3","status":"queued",'
        '"agent":"assistant","version":null,"attempts":0,"steps":0,'
        '"usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0},"cost_usd":0.0,"created_at":150}'
    )


def test_a_run_in_flight_takes_its_numbers_from_the_head() -> None:
    usage = Tokens(input=5, output=6, cache_read=1, cost_micro_usd=2_500_000)
    live = head(run=3, run_started_at=170, run_attempt=2, run_steps=4, run_usage=usage)
    body = wire.run_body(REF, command(), live)
    assert (body["status"], body["attempts"], body["steps"], body["started_at"]) == ("running", 2, 4, 170)
    assert body["usage"] == {"input_tokens": 5, "output_tokens": 6, "cache_read_tokens": 1}
    assert body["cost_usd"] == 2.5
    assert wire.run_body(REF, command(), head(run=3, run_attempt=1))["status"] == "queued"


def test_a_run_that_ended_keeps_its_own_numbers_whatever_the_head_says() -> None:
    ended = command(
        status=RunStatus.FAILED,
        reason="model_error",
        error={"type": "model_error", "detail": "no", "retryable": False},
        model="offline:echo",
        version="7",
        parent=2,
        attempts=1,
        steps=2,
        usage=Tokens(input=1, cost_micro_usd=None),
        started_at=160,
        ended_at=170,
    )
    body = wire.run_body(REF, ended, head(run=3, run_started_at=165, run_attempt=9, run_steps=9))
    assert list(body) == [
        *("id", "thread_id", "parent_run_id", "command_id", "status", "reason", "agent", "model", "version"),
        *("attempts", "steps", "usage", "cost_usd", "created_at", "started_at", "ended_at", "error"),
    ]
    assert (body["status"], body["attempts"], body["steps"], body["started_at"]) == ("failed", 1, 2, 160)
    assert (body["cost_usd"], body["parent_run_id"], body["error"]["detail"]) == (None, REF.run(2), "no")


def test_a_waiting_run_is_waiting_while_the_head_names_it() -> None:
    body = wire.run_body(REF, command(), head(run=3, run_started_at=9, waiting="awaiting_human"))
    assert (body["status"], body["reason"]) == ("waiting", "awaiting_human")


# ---------------------------------------------------------------- threads


def test_a_thread_has_its_fields_in_the_order_of_the_contract() -> None:
    about = About(title=None, tags=("a",), arguments={"x": [1]}, user=None)
    assert text_of(wire.thread_body(REF, HEAD, about)) == (
        f'{{"id":"thr_{TOKEN}","agent":"assistant","title":null,"tags":["a"],"arguments":{{"x":[1]}},'
        '"status":{"state":"idle","since":200,"reason":null},"queue":{"pending":0,"runs":0},"children":[],'
        '"created_at":100,"last_activity_at":300}'
    )


def test_a_thread_shows_its_user_its_children_and_its_end() -> None:
    about = About(title="t", tags=(), arguments={}, user="u1")
    body = wire.thread_body(REF, head(terminated_at=400), about, children=[{"reference_id": "r"}])
    assert (body["title"], body["user"], body["terminated_at"]) == ("t", "u1", 400)
    assert body["children"] == [{"reference_id": "r"}]


def test_a_thread_that_was_handed_over_shows_who_plays_it() -> None:
    about = About(title=None, tags=(), arguments={}, user=None)
    body = wire.thread_body(REF, head(played_by="desk", played_from=4), about)
    assert (body["agent"], body["played_by"]) == ("assistant", "desk")


@pytest.mark.parametrize(
    ("at", "queue"),
    [
        (head(queued=2, pending=3), {"pending": 3, "runs": 2}),
        (head(run=3, queued=2), {"pending": 0, "runs": 3}),
        (head(run=3, run_started_at=9, queued=2), {"pending": 0, "runs": 2}),
    ],
)
def test_the_queue_counts_the_run_in_flight_until_it_has_started(at: Head, queue: dict[str, int]) -> None:
    assert wire.thread_body(REF, at, About(title=None, tags=(), arguments={}, user=None))["queue"] == queue


def test_status_and_money_have_one_form() -> None:
    assert wire.status_body(HEAD) == IDLE
    assert wire.status_body(head(state=State.FAILED, reason="model_error"))["state"] == "failed"
    assert wire.usage_body(Tokens()) == ZERO
    assert wire.cost_usd(Tokens(cost_micro_usd=1)) == 0.000001
    assert wire.cost_usd(Tokens(cost_micro_usd=None)) is None


# ---------------------------------------------------------------- steps


def test_a_completed_run_has_a_done_step_and_no_other_run_has() -> None:
    done = command(status=RunStatus.COMPLETED, label="x" * 300, ended_at=190)
    assert wire.done_step(done) == {"n": 1, "kind": "done", "label": "x" * 200, "at": 190}
    assert wire.done_step(command(status=RunStatus.CANCELLED, ended_at=190)) is None
    assert wire.done_step(command()) is None
