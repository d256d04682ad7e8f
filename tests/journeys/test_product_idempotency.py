"""One intent, many deliveries (P06, P08, P12): a key makes a request happen once, and only inside its org."""

import json
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from chalicelib.client import Turnlog
from tests.journeys.audit import assert_sound
from tests.journeys.product import (
    DEADLINE_SECONDS,
    Product,
    Talk,
    command_of,
    pause,
    run_of,
    step,
    text,
    together,
    until,
)

SAID = [step(text(f"answer {n}")) for n in range(60)]


@pytest.fixture
def http(product: Product) -> Iterator[httpx.Client]:
    with product.http() as client:
        yield client


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


def test_of_forty_parallel_posts_with_one_key_one_is_accepted_and_all_answer_its_run(
    begin: Callable[..., Talk], http: httpx.Client, key: str
) -> None:
    talk = begin(SAID)

    def post() -> httpx.Response:
        return http.post(f"/threads/{talk.id}/messages", json={"content": "hi"}, headers={"Idempotency-Key": key})

    answers = together(*[post] * 40)
    assert sorted(answer.status_code for answer in answers) == [200] * 39 + [201]
    bodies = [answer.json() for answer in answers]
    assert len({(b["message"]["id"], b["command"]["id"], b["run"]["id"]) for b in bodies}) == 1
    replayed = [answer for answer in answers if answer.headers.get("Idempotency-Replayed") == "true"]
    assert {answer.status_code for answer in replayed} == {200}
    assert len(replayed) == 39
    assert_sound(talk)
    assert len(talk.runs()) == len(talk.asked()) == 1


def test_forty_parallel_creations_with_one_key_make_one_thread(http: httpx.Client, key: str, turnlog: Turnlog) -> None:
    tag = uuid.uuid4().hex
    body = {"agent": "scripted", "arguments": {"script": SAID}, "message": "hi", "tags": [tag]}
    answers = together(*[lambda: http.post("/threads", json=body, headers={"Idempotency-Key": key})] * 40)
    assert sorted(answer.status_code for answer in answers) == [200] * 39 + [201]
    (thread,) = {answer.json()["thread"]["id"] for answer in answers}
    until(lambda: [found["id"] for found in turnlog.threads(tag=tag)] == [thread], "the one thread in the list")
    assert len(list(turnlog.runs(thread))) == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_of_keys_repeats_and_bodies_is_one_run_a_key(
    begin: Callable[..., Talk], http: httpx.Client, seed: int
) -> None:
    talk, dice = begin(SAID), random.Random(seed)
    keys = [uuid.uuid4().hex for _ in range(5)]
    wishes = [(dice.choice(keys), dice.choice(["one", "other"])) for _ in range(30)]

    def post(key: str, words: str) -> Callable[[], httpx.Response]:
        path, body = f"/threads/{talk.id}/messages", {"content": words, "delivery": "enqueue"}
        return lambda: http.post(path, json=body, headers={"Idempotency-Key": key})

    answers = together(*[post(*wish) for wish in wishes])
    for key in keys:
        mine = [(answer, words) for answer, (k, words) in zip(answers, wishes, strict=True) if k == key]
        accepted = [words for answer, words in mine if answer.status_code == 201]
        assert len(accepted) == bool(mine)
        for answer, words in mine:
            assert answer.status_code in ((201, 200) if words in accepted else (409,))
    assert_sound(talk)
    assert len(talk.runs()) == len({key for key, _ in wishes})


def test_a_key_with_another_body_is_refused_and_nothing_is_stored(
    begin: Callable[..., Talk], http: httpx.Client, key: str
) -> None:
    talk = begin(SAID)
    headers = {"Idempotency-Key": key}
    first = http.post(f"/threads/{talk.id}/messages", json={"content": "hi"}, headers=headers)
    assert_sound(talk)
    events, messages = len(talk.log), talk.messages()
    others: list[tuple[str, str, Any]] = [
        ("POST", f"/threads/{talk.id}/messages", {"content": "bye"}),
        ("POST", f"/threads/{talk.id}/messages", {"content": "hi", "metadata": {"a": 1}}),
        ("POST", f"/threads/{talk.id}/messages", {"content": "hi", "delivery": "enqueue"}),
        ("POST", f"/threads/{talk.id}/runs", {"input": "hi"}),
        ("POST", f"/threads/{talk.id}/continue", {}),
        ("POST", f"/threads/{talk.id}/stop", {}),
        ("POST", f"/runs/{first.json()['run']['id']}/cancel", {}),
        ("POST", "/threads", {"agent": "scripted", "message": "hi"}),
    ]
    for method, path, body in others:
        answer = http.request(method, path, json=body, headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/idempotency-key-reused"), path
    assert not talk.read()
    assert (len(talk.log), talk.messages(), len(talk.runs())) == (events, messages, 1)


def test_a_body_is_the_same_however_it_is_written(begin: Callable[..., Talk], http: httpx.Client, key: str) -> None:
    talk = begin(SAID)
    same = [
        '{"content": "hé", "metadata": {"a": 1, "b": [1, 2]}}',
        '{ "metadata":{"b":[1,2],"a":1},\n"content":"h\\u00e9" }',
        '{"content": [{"type": "text", "text": "hé"}], "metadata": {"a": 1, "b": [1, 2]}, "delivery": "join"}',
    ]
    names = ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"]
    answers = [
        http.post(
            f"/threads/{talk.id}/messages",
            content=raw.encode(),
            headers={name: key, "Content-Type": "application/json"},
        )
        for raw, name in zip(same, names, strict=True)
    ]
    assert [answer.status_code for answer in answers] == [201, 200, 200]
    assert_sound(talk)
    assert len(talk.runs()) == 1


def test_a_replay_answers_the_present_state(begin: Callable[..., Talk], turnlog: Turnlog, key: str) -> None:
    talk = begin(SAID)
    first = talk.say("hi", idempotency_key=key)
    talk.end(run_of(first))
    again = turnlog.say(talk.id, "hi", idempotency_key=key)
    assert again["run"] is not None
    assert again["run"]["status"] == "completed"
    assert again["command"] == turnlog.command(command_of(first))


def test_a_key_means_nothing_in_another_org(turnlog: Turnlog, other: Turnlog, key: str) -> None:
    arguments = {"script": SAID}
    ours = turnlog.create_thread("scripted", arguments=arguments, message="hi", idempotency_key=key)
    theirs = other.create_thread("scripted", arguments=arguments, message="other", idempotency_key=key)
    assert ours["thread"]["id"] != theirs["thread"]["id"]
    for client, accepted in ((turnlog, ours), (other, theirs)):
        talk = Talk(client, accepted["thread"]["id"])
        assert_sound(talk)
        assert len(talk.runs()) == 1


def test_without_a_key_the_same_words_are_said_twice(begin: Callable[..., Talk], http: httpx.Client) -> None:
    talks = [begin(SAID), begin(SAID)]
    for talk in talks * 2:
        answer = http.post(f"/threads/{talk.id}/messages", json={"content": "yes"})
        assert answer.status_code == 201
        talk.end(answer.json()["run"]["id"])
    for talk in talks:
        assert_sound(talk)
        assert [len(talk.runs()), len(talk.asked())] == [2, 2]


def test_a_caller_that_gave_up_waiting_finds_its_work_by_the_key(
    begin: Callable[..., Talk], http: httpx.Client, turnlog: Turnlog, key: str
) -> None:
    talk = begin([step(text("a"), pause(300), text("b"))])
    path, headers = f"/threads/{talk.id}/messages", {"Idempotency-Key": key}
    with pytest.raises(httpx.TimeoutException):
        http.post(path, json={"content": "hi"}, headers=headers, timeout=httpx.Timeout(5, read=0.0001))

    def again() -> httpx.Response:
        return http.post(path, json={"content": "hi"}, headers=headers)

    answers = together(*[again] * 5)
    assert {answer.status_code for answer in answers} <= {200, 201}
    assert len({answer.json()["run"]["id"] for answer in answers}) == 1
    assert_sound(talk)
    assert len(talk.runs()) == 1
    found = http.get("/commands", params={"idempotency_key": key})
    assert found.json()["run_id"] == talk.runs()[0]["id"]


def test_a_refused_request_uses_no_key_up(begin: Callable[..., Talk], http: httpx.Client, key: str) -> None:
    talk = begin(SAID)
    path, headers = f"/threads/{talk.id}/messages", {"Idempotency-Key": key}
    assert http.post(path, json={"content": 1}, headers=headers).status_code == 400
    assert http.post(path, json={"content": "x" * 300_000}, headers=headers).status_code == 413
    assert http.post(path, content=json.dumps({"content": "hi"}), headers=headers).status_code == 415
    assert http.post(path, json={"content": "hi"}, headers=headers, timeout=DEADLINE_SECONDS).status_code == 201
    assert_sound(talk)
