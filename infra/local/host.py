"""Puts gateway, pumps and handlers together in the app process, and takes them apart again.

Order matters. Start: keys of the development orgs, server, pumps, then the word that it is ready. Stop: no new
requests, contexts out of time, pumps, then whoever still waits for an answer is told to come back (503).
"""

import asyncio
import contextlib
import importlib
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from infra.local import stream_pump
from infra.local.gateway import Background, Gateway, background, build
from infra.local.lambdas import Activity, Function
from infra.local.queue_pump import QueuePump
from infra.local.resources import Resources, client, template
from infra.local.state import ORGS, read_keys, write_private
from infra.local.stream_pump import StreamPump
from infra.local.ticker import Ticker

GRACE_SECONDS = 2.0  # for handlers at work when the process is asked to stop
ANSWER_SECONDS = 0.3  # for short requests at work then; long polls are cut off after it
MESSAGE_LIMIT = 128 * 1024  # API Gateway's websocket message; our own limit of a frame is below


class Pumps:
    """The event sources, started and stopped together."""

    def __init__(self, called: Background, activity: Activity, resources: Resources, folder: Path) -> None:
        streams = client("dynamodbstreams", resources.endpoint)
        sqs = client("sqs", resources.endpoint)
        self._queue = QueuePump(sqs, resources.queue_url, resources.queue_arn, called.run_turn, activity)
        self._stream = StreamPump(
            streams,
            resources.stream_arn,
            called.fan_out,
            activity,
            settings=stream_pump.source(template()),
            checkpoint=folder / "stream.json",
        )
        self._ticker = Ticker(called.sweep)

    def start(self) -> None:
        """Begin to call handlers."""
        self._stream.start()
        self._queue.start()
        self._ticker.start()

    def stop(self) -> None:
        """Call no more; what runs has GRACE_SECONDS, and what it writes then is still fanned out."""
        self._queue.stop(GRACE_SECONDS)
        self._ticker.stop(0.5)
        self._stream.stop(0.5)


class Server(uvicorn.Server):
    """A server without signal handlers of its own: they would kill the process before its state is tidy."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `serve`."""
        yield


def serve(listening: socket.socket, plan: dict[str, Any]) -> None:
    """Host the handlers of `plan["app"]` on a listening socket until SIGTERM or the end of standard input."""
    doors: Any = importlib.import_module(plan["app"])
    activity, folder = Activity(), Path(plan["folder"])
    called = background(doors, activity)
    seed(called.provision, folder / "keys.json")
    pumps = Pumps(called, activity, Resources(**plan["resources"]), folder)
    asyncio.run(_run(listening, build(doors, activity), activity, pumps, plan["ready"]))


def seed(provision: Function, file: Path) -> dict[str, str]:
    """Have both development orgs with their stored keys, or make keys at the first start. Every start may call this."""
    keys = read_keys(file)
    for org in ORGS:
        wish = {"key": keys[org]} if org in keys else {"key_name": "make run"}
        keys[org] = provision({"org": org, **wish})["key"]
    write_private(file, json.dumps(keys))
    return keys


def configuration(gateway: Gateway) -> uvicorn.Config:
    """How the server listens: silent about requests, no compression and no pings (API Gateway has neither)."""
    # uvicorn takes a handshake that was refused with an HTTP answer for one that was forgotten, and says so loudly.
    logging.getLogger("uvicorn.error").addFilter(lambda record: "completing handshake" not in record.getMessage())
    return uvicorn.Config(
        gateway,
        lifespan="off",
        access_log=False,
        log_level="error",
        server_header=False,
        ws_max_size=MESSAGE_LIMIT,
        ws_per_message_deflate=False,
        ws_ping_interval=None,
        timeout_graceful_shutdown=3,
    )


async def _run(listening: socket.socket, gateway: Gateway, activity: Activity, pumps: Pumps, ready: int) -> None:
    server, stopped = Server(configuration(gateway)), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    threading.Thread(target=_watch, args=(loop, stopped), daemon=True).start()
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    pumps.start()
    os.write(ready, b"ready\n")
    os.close(ready)
    await asyncio.wait({serving, asyncio.create_task(stopped.wait())}, return_when=asyncio.FIRST_COMPLETED)
    activity.stopping.set()
    server.should_exit = True
    tidying = asyncio.create_task(asyncio.to_thread(pumps.stop))
    await asyncio.sleep(ANSWER_SECONDS)
    gateway.stop()
    await asyncio.gather(tidying, serving)


def _watch(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    """Stop when the launcher is gone: it holds the other end of standard input."""
    while os.read(0, 4096):
        continue
    loop.call_soon_threadsafe(stopped.set)
