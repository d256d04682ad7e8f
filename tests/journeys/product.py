"""The real product as journeys use it: started by its launcher like a user's, reached through its client only.

It knows the command, the banner and the public contract, nothing of the house. A `Product` is one
`python -m infra.local` over a state folder of its own; a `Talk` is one thread of it with its log as far as it was read,
contiguous or the test fails. Every wait is the server's own long poll, with a deadline.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx

from chalicelib.client import Accepted, Event, Thread, Turnlog
from infra.local.emulator import free_port
from infra.local.options import ROOT

Body = dict[str, Any]
T = TypeVar("T")

#: How long anything may take before a test gives up on it: generous, since the machine may be busy.
DEADLINE_SECONDS = 40.0
TERMINAL = ("run.completed", "run.failed", "run.cancelled")
_FOREIGN = ("AWS_", "LOCALSTACK_", "TURNLOG_", "OPENAI_", "MODEL", "PORT")


def until(condition: Callable[[], T | None], what: str, seconds: float = DEADLINE_SECONDS) -> T:
    """What the condition answers as soon as that is something; fails when it stays nothing for too long."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        pause.wait(0.02)
    return found


def together(*jobs: Callable[[], T]) -> list[T]:
    """Run all jobs at once; answers their results in order."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]


class Product:
    """One running product. `key` and `other_key` belong to two orgs."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.output = folder.with_suffix(".log")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        given = {"PORT": str(self.port), "TURNLOG_STATE_DIR": str(folder), "PYTHONUNBUFFERED": "1", **environ}
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "infra.local", "--app", "tests.journeys.guest_app"],
                cwd=ROOT,
                env={**clean, **given},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def up(self) -> "Product":
        """Wait for the banner and take the keys from it."""
        until(lambda: "TURNLOG_KEY_B=" in self.said() or self.process.poll() is not None, "the banner")
        assert self.process.poll() is None, self.said()
        keys = dict(re.findall(r"(TURNLOG_KEY\w*)=(\S+)", self.said()))
        self.key, self.other_key = keys["TURNLOG_KEY"], keys["TURNLOG_KEY_B"]
        return self

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(DEADLINE_SECONDS)

    def said(self) -> str:
        """Everything that it wrote to the terminal."""
        return self.output.read_text()

    def client(self, key: str | None = None) -> Turnlog:
        """A client of the first org, or with the given key; close it."""
        return Turnlog(self.url, key or self.key)

    def http(self, key: str | None = None) -> httpx.Client:
        """HTTP without the client's retries and conveniences; paths are below /api. Close it."""
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx.Client(base_url=f"{self.url}/api", headers=headers, trust_env=False, timeout=60)

    def app_process(self) -> int:
        """The process that listens on the port, found by its argument."""
        mark = str(self.folder).encode()
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                line = Path(f"/proc/{process}/cmdline").read_bytes()
            except OSError:
                continue
            if b"infra.local.app_process" in line and mark in line:
                return int(process)
        raise AssertionError("there is no app process")


class Talk:
    """One thread and its log. `sent` are the answers of what was posted through it, in order."""

    def __init__(self, turnlog: Turnlog, thread_id: str, watch: Path | None = None) -> None:
        self.turnlog, self.id, self.watch = turnlog, thread_id, watch
        self.log: list[Body] = []
        self.sent: list[Accepted] = []
        self.state = ""

    @classmethod
    def begin(
        cls,
        turnlog: Turnlog,
        script: Sequence[Body] = (),
        tools: Mapping[str, Body] | None = None,
        message: str | None = None,
        *,
        watch: Path | None = None,
    ) -> "Talk":
        """A new thread of the guest agent; its model writes what it is asked to the file `watch`."""
        arguments = {"script": list(script), "tools": dict(tools or {}), **({"watch": str(watch)} if watch else {})}
        accepted = turnlog.create_thread("guest", arguments=arguments, message=message)
        talk = cls(turnlog, accepted["thread"]["id"], watch)
        if message is not None:
            talk.sent.append(accepted)
        return talk

    def say(self, content: Any, **more: Any) -> Accepted:
        """Post a message."""
        self.sent.append(self.turnlog.say(self.id, content, **more))
        return self.sent[-1]

    def turn(self, content: Any) -> str:
        """Post a message and wait for the end of its run; answers the run's id."""
        run = run_of(self.say(content))
        self.end(run)
        return run

    # -- waiting

    def read(self, wait: float = 0) -> bool:
        """Take in the next page; False if there was none."""
        page = self.turnlog.events(self.id, len(self.log), wait=wait)
        for event in page.items:
            assert event.delivery_seq == len(self.log) + 1
            self.log.append(dict(event.envelope))
        self.state = page.status["state"]
        return bool(page.items)

    def until(self, found: Callable[["Talk"], T | None], what: str, seconds: float = DEADLINE_SECONDS) -> T:
        """What `found` answers of the log as soon as that is something."""
        deadline = time.monotonic() + seconds
        while not (answer := found(self)):
            assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}; the log: {self.types()}"
            self.read(wait=5)
        return answer

    def event(self, kind: str, call_id: str | None = None, count: int = 1) -> Body:
        """The count-th event of a type, of a call if that is named."""

        def found(talk: "Talk") -> Body | None:
            matching = [e for e in talk.of(kind) if call_id is None or e["data"].get("call_id") == call_id]
            return matching[count - 1] if len(matching) >= count else None

        return self.until(found, f"{kind} {call_id or ''} {count}")

    def end(self, run: str, seconds: float = DEADLINE_SECONDS) -> Body:
        """The terminal event of a run."""
        return self.until(
            lambda talk: next((e for e in talk.of(*TERMINAL) if e["run_id"] == run), None), f"the end of {run}", seconds
        )

    def settled(self, seconds: float = DEADLINE_SECONDS) -> Thread:
        """The thread once nothing of it is queued or running; the log is read to its end."""
        deadline, more = time.monotonic() + seconds, True
        while more or self.state == "running":
            assert time.monotonic() < deadline, f"not settled in {seconds:g} s; the log: {self.types()}"
            more = self.read(wait=0 if self.state and self.state != "running" else 5)
        return self.turnlog.thread(self.id)

    # -- looking

    def of(self, *kinds: str) -> list[Body]:
        """The events of these types so far."""
        return [event for event in self.log if event["type"] in kinds]

    def types(self) -> list[str]:
        """The types of the log so far, repeated deltas as one."""
        kinds = [event["type"] for event in self.log]
        return [kind for n, kind in enumerate(kinds) if not (kind == "message.delta" and kinds[n - 1 : n] == [kind])]

    def whole(self) -> list[Body]:
        """The log with large fields put back in their place."""
        return [{**event, "data": self.turnlog.whole(Event.parse(event)).data} for event in self.log]

    def messages(self) -> list[Body]:
        """All messages as GET answers them."""
        return [dict(message) for message in self.turnlog.messages(self.id)]

    def runs(self) -> list[Body]:
        """All runs as GET answers them."""
        return [dict(run) for run in self.turnlog.runs(self.id)]

    def asked(self) -> list[list[Body]]:
        """The messages of each request that the model got, one list a model call."""
        assert self.watch is not None
        return [json.loads(line) for line in self.watch.read_text().splitlines()] if self.watch.exists() else []

    def results(self) -> dict[str, Body]:
        """Call id -> the tool_result part of the stored conversation."""
        parts = [part for message in self.messages() for part in message["content"] if part["type"] == "tool_result"]
        assert len({part["call_id"] for part in parts}) == len(parts), "two results of one call"
        return {part["call_id"]: part for part in parts}


def run_of(accepted: Accepted) -> str:
    """The run that an accepted message started."""
    run = accepted.get("run")
    assert run is not None, accepted
    return run["id"]


def command_of(accepted: Accepted) -> str:
    """The id of the command that came of a request."""
    command = accepted.get("command")
    assert command is not None, accepted
    return command["id"]


def message_of(accepted: Accepted) -> str:
    """The id of an accepted message."""
    return accepted["message"]["id"]


def text_of(message: Body) -> str:
    """The text of a message."""
    return "".join(part["text"] for part in message["content"] if part["type"] == "text")


# -- scripts of the scripted agent


def text(words: str) -> Body:
    """The model says something."""
    return {"type": "text", "text": words}


def pause(milliseconds: int) -> Body:
    """The model is silent for a while."""
    return {"type": "pause", "ms": milliseconds}


def call(call_id: str, name: str, arguments: str = "{}") -> list[Body]:
    """The model asks for a tool."""
    return [
        {"type": "call_start", "id": call_id, "name": name},
        {"type": "call_args", "id": call_id, "part": arguments},
    ]


def step(*events: Body | list[Body], stop: str | None = "end") -> Body:
    """One model step; `stop` None is a truncation."""
    flat = [event for one in events for event in (one if isinstance(one, list) else [one])]
    return {"events": [*flat, *([{"type": "stop", "reason": stop}] if stop else [])]}


def asking(*calls: list[Body]) -> Body:
    """A model step that only asks for tools."""
    return step(*calls, stop="tool_calls")
