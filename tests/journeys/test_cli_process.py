"""The `turnlog` command as a process: Ctrl-C, colour, and the lines that come and go on a terminal."""

import os
import pty
import re
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.loopback import (
    END,
    MESSAGES,
    PAST,
    RUN,
    STARTED,
    THREAD,
    House,
    Line,
    Loopback,
    Reply,
    accepted,
    completed,
    delta,
    event,
    log,
    run,
    saying,
    serving,
    thread,
)

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 20


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with serving() as one:
        yield one


@pytest.fixture
def server(house: House) -> Loopback:
    fresh = house.fresh()
    fresh.answer("POST /threads", Reply(body={"thread": thread()}, status=201))
    fresh.answer(MESSAGES, Reply(body=accepted(), status=201))
    return fresh


def environment(server: Loopback, **more: str) -> dict[str, str]:
    return {"TURNLOG_URL": server.url, "TURNLOG_KEY": "tl_test_key", **more}


def start(server: Loopback, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
    env = {**os.environ, **environment(server), **options.pop("env", {})}
    return subprocess.Popen([sys.executable, "-m", "chalicelib.cli", *arguments], cwd=ROOT, env=env, **options)


def read_until(file: int, wanted: bytes) -> bytes:
    """Read until the bytes have come; fails at the deadline or the end of the file."""
    got = b""
    with selectors.DefaultSelector() as ready:
        ready.register(file, selectors.EVENT_READ)
        while wanted not in got:
            assert ready.select(DEADLINE_SECONDS), f"{wanted!r} did not come, only {got!r}"
            piece = os.read(file, 65536)
            assert piece, f"the end came before {wanted!r}: {got!r}"
            got += piece
    return got


def test_ctrl_c_ends_the_watching_and_names_both_ways_on(server: Loopback) -> None:
    server.sessions = [saying(STARTED, delta("Once upon "))]
    process = start(server, "say", THREAD, "hi", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    read_until(process.stdout.fileno(), b"Once upon ")
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 130
    assert f"turnlog cancel {RUN}" in talk.decode()
    # The last event may be named as not yet dealt with, never one that was not shown.
    assert re.search(f"turnlog tail {THREAD} --after ({PAST + 1}|{PAST + 2})\n", talk.decode())
    assert server.seen(f"POST /runs/{RUN}/cancel") == []


def test_tail_follows_until_ctrl_c_and_says_where_it_stopped(server: Loopback) -> None:
    async def session(line: Line) -> None:
        await line.events(log(STARTED)[await line.subscribed() :])
        await line.caught_up(1)
        await line.events([event(2, "custom.live")])
        await line.stay()

    server.sessions = [session]
    process = start(server, "tail", THREAD, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    read_until(process.stdout.fileno(), b"custom.live")
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 130
    assert re.search(f"turnlog tail {THREAD} --after [12]\n", talk.decode())


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_is_for_terminals_that_do_not_refuse_it(
    server: Loopback, environ: dict[str, str], coloured: bool
) -> None:
    listed = [run("run_1", "completed", reason="stop_on_response")]
    server.answer(f"GET /threads/{THREAD}/runs", Reply(body={"items": listed, "next_cursor": None}))
    near, far = pty.openpty()
    env = {"NO_COLOR": "", "TERM": "xterm", **environ}
    process = start(server, "runs", THREAD, env=env, stdout=far, stderr=subprocess.DEVNULL)
    os.close(far)
    shown = read_until(near, b"\n")
    process.wait(DEADLINE_SECONDS)
    os.close(near)
    assert (b"\x1b[32m" in shown) is coloured
    assert b"run_1" in shown


def test_on_a_terminal_passing_lines_are_wiped_out_by_what_follows(server: Loopback) -> None:
    call = {"call_id": "c1", "name": "weather"}
    done = {"outcome": "ok", "result": "rain", "duration_ms": 12}
    server.sessions = [
        saying(
            STARTED,
            ("tool.started", call | {"arguments": {}}),
            ("tool.completed", call | done),
            delta("Ra"),
            completed("Rain"),
            END,
        )
    ]
    near, far = pty.openpty()
    process = start(server, "say", THREAD, "hi", env={"NO_COLOR": "1", "TERM": "xterm"}, stdout=far, stderr=far)
    os.close(far)
    shown = read_until(near, b"turnlog tail").decode()
    process.wait(DEADLINE_SECONDS)
    os.close(near)
    assert process.returncode == 0
    assert "weather {} …\r\x1b[K" in shown
    assert "Rain\r\n" in shown
