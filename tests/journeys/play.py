"""Plays a case of tests/cases over the running product and checks what it expects: one runner, one checker.

A case is JSON in the words of the contract: `script` and `tools` as the scripted agent takes them, `steps` that are
done one after another, and `expect`. It is played on a thread of its own and ends at rest.

    {"send": text}                     post a message
    {"run": text}                      post a run of its own
    {"when": "type [call id]"}         wait for an event
    {"await": n}                       wait for the end of the n-th run, counted from 1
    {"do": "cancel" | "stop" | "stop all" | "continue"}, with {"run": n} for a run other than the newest

What may be expected, each by name: `runs` and `thread` ("status reason"), `outcomes` and `results` (call id -> a value,
or {"contains": text}), `answers` (texts of the assistant's messages), `incomplete` (of them, by place), `never_started`
(call ids), `model_calls`, `usage` (of the last run), `users` (texts in conversation order).
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.journeys.audit import assert_sound
from tests.journeys.product import Body, Talk, run_of, text_of

FOLDER = Path(__file__).parents[1] / "cases"


def load(name: str) -> Body:
    """A case by the name of its file."""
    case: Body = json.loads((FOLDER / f"{name}.json").read_text())
    return case


def variants(name: str) -> list[Body]:
    """The variants of a case, each a case of its own."""
    case = load(name)
    common = {key: value for key, value in case.items() if key != "variants"}
    return [{**common, **variant} for variant in case.get("variants", [{}])]


def play(case: Mapping[str, Any], begin: Callable[..., Talk]) -> Talk:
    """Play a case to its end and check it."""
    talk = begin(case["script"], case.get("tools", {}))
    for one in case["steps"]:
        _do(talk, one)
    thread = assert_sound(talk)
    for name, wanted in case["expect"].items():
        got = _SEEN[name](talk)
        assert _fits(got, wanted), f"{name}: {got!r}, expected {wanted!r}"
    if "thread" in case["expect"]:
        assert thread["status"]["state"] == case["expect"]["thread"].split()[0]
    return talk


def _do(talk: Talk, one: Mapping[str, Any]) -> None:
    if "send" in one:
        talk.say(one["send"])
    if "await" in one:
        talk.end(run_of(talk.sent[one["await"] - 1]))
    if "when" in one:
        kind, _, call_id = one["when"].partition(" ")
        talk.event(kind, call_id or None)
    match one.get("do"):
        case "cancel":
            talk.turnlog.cancel(run_of(talk.sent[one.get("run", len(talk.sent)) - 1]))
        case "stop":
            talk.turnlog.stop(talk.id)
        case "stop all":
            talk.turnlog.stop(talk.id, all=True)
        case "continue":
            talk.sent.append(talk.turnlog.continue_(talk.id))
        case None if isinstance(one.get("run"), str):
            talk.sent.append(talk.turnlog.create_run(talk.id, one["run"]))
        case None:
            pass
        case other:
            raise AssertionError(f"nobody knows how to do {other!r}")


def _fits(got: Any, wanted: Any) -> bool:
    """Equal, or as the one expectation says; a mapping expects only what it names."""
    if isinstance(wanted, dict) and set(wanted) == {"contains"}:
        return wanted["contains"] in json.dumps(got, ensure_ascii=False)
    if isinstance(wanted, dict) and wanted and isinstance(got, dict):
        return all(name in got and _fits(got[name], one) for name, one in wanted.items())
    return bool(got == wanted)


def _answers(talk: Talk) -> list[Body]:
    return [message for message in talk.messages() if message["role"] == "assistant"]


def _calls(talk: Talk, kind: str) -> list[str]:
    return [event["data"]["call_id"] for event in talk.of(kind)]


_SEEN: Mapping[str, Callable[[Talk], Any]] = {
    "runs": lambda talk: [f"{run['status']} {run['reason']}" for run in talk.runs()],
    "thread": lambda talk: " ".join(str(talk.turnlog.thread(talk.id)["status"][name]) for name in ("state", "reason")),
    "outcomes": lambda talk: {call: part["outcome"] for call, part in talk.results().items()},
    "results": lambda talk: {call: part["content"] for call, part in talk.results().items()},
    "answers": lambda talk: [text_of(message) for message in _answers(talk)],
    "incomplete": lambda talk: [n for n, message in enumerate(_answers(talk)) if message.get("incomplete")],
    "never_started": lambda talk: sorted(set(_calls(talk, "tool.completed")) - set(_calls(talk, "tool.started"))),
    "model_calls": lambda talk: len(talk.asked()),
    "usage": lambda talk: talk.runs()[-1]["usage"],
    "users": lambda talk: [text_of(message) for message in talk.messages() if message["role"] == "user"],
}
