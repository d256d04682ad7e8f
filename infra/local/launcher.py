"""Starts, watches and ends the processes of the local cloud: emulator, model server, app process.

It never listens on the port itself. An app process that dies is started again at once over the same data; an emulator
that dies ends everything, since its unsaved state is gone. Children learn of the launcher's end from their standard
input, so that none is left even when the launcher is killed.
"""

import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from types import FrameType

from infra.local import app_process, banner, emulator, endpoint, real_model, resources
from infra.local.emulator import Emulator
from infra.local.options import REAL_MODEL, ROOT, Options, Refusal
from infra.local.resources import CREDENTIALS, REGION, Resources
from infra.local.state import StateFolder, open_folder

STOP_SECONDS = 10.0
STEADY_SECONDS = 2.0  # an app process that lived for less than this is not started again at once
FOREIGN = ("AWS_", "LOCALSTACK_", "TURNLOG_TABLE", "TURNLOG_QUEUE", "TURNLOG_BUCKET", "TURNLOG_SOCKET")


class Stopped(Exception):
    """The user asked to stop before everything had started."""


class Launcher:
    """One run of the command."""

    def __init__(self, options: Options, environ: Mapping[str, str]) -> None:
        self._options, self._environ = options, environ
        self._news: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._starting = True
        self._emulator: Emulator | None = None
        self._model: real_model.RealModel | None = None
        self._app: subprocess.Popen[bytes] | None = None
        self._app_began = 0.0

    def run(self) -> int:
        """Start, serve until a signal, stop; answers the exit code. Raises Refusal with everything stopped."""
        given = endpoint.given(self._environ)
        folder = open_folder(self._options.state, self._options.url)
        _port_is_free(self._options)
        self._catch_signals()
        try:
            self._start(folder, given)
            self._starting = False
            return self._watch()
        except Stopped:
            return 0
        finally:
            self._starting = False
            self._stop()

    def _start(self, folder: StateFolder, given: str | None) -> None:
        address = given or self._start_emulator(folder)
        if self._options.model == REAL_MODEL:
            print("Starting the small model; the first time installs it ...", flush=True)
            self._model = _real_model()
        self._plan(folder, resources.create(address))
        self._start_app()
        print(banner.text(self._options, folder, own_emulator=given is None), flush=True)

    def _start_emulator(self, folder: StateFolder) -> str:
        self._emulator = emulator.start(folder.path, lock=folder.lock)
        emulator.wait_healthy(self._emulator, folder.path)
        return self._emulator.endpoint

    def _plan(self, folder: StateFolder, created: Resources) -> None:
        self._folder = folder
        self._settings = _app_environment(self._environ, self._options, created, folder.secret(), self._model)
        self._arguments = {
            "app": self._options.app,
            "port": self._options.port,
            "folder": str(folder.path),
            "resources": dataclasses.asdict(created),
        }

    def _start_app(self) -> None:
        """Start the app process and wait until it serves. Raises Refusal when it ends instead."""
        read, write = os.pipe()
        self._app = subprocess.Popen(
            [sys.executable, "-m", "infra.local.app_process", json.dumps({**self._arguments, "ready": write})],
            cwd=ROOT,
            env=self._settings,
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(write, self._folder.lock),
        )
        self._app_began = time.monotonic()
        os.close(write)
        with os.fdopen(read, "rb") as ready:
            said = ready.readline()  # ends when the app process says so, or when it ends
        if not said:
            raise Refusal(_why_not(self._app.wait(), self._options))

    def _watch(self) -> int:
        """Wait for signals and for the ends of children."""
        while True:
            news = self._news.get()
            if news == "stop":
                return 0
            if self._emulator and self._emulator.keeper.poll() is not None:
                raise Refusal("The emulator has ended; what it had not saved is lost. Start again with make run.")
            if self._app and self._app.poll() is not None:
                self._restart_app(self._app.returncode)

    def _restart_app(self, code: int) -> None:
        if time.monotonic() - self._app_began < STEADY_SECONDS:
            try:
                if self._news.get(timeout=1) == "stop":
                    return self._news.put("stop")
            except queue.Empty:
                pass
        self._starting = True
        self._start_app()
        self._starting = False
        process = self._app.pid if self._app else 0
        print(
            f"The app process ended ({_how(code)}); started again over the same data as process {process}.", flush=True
        )

    def _stop(self) -> None:
        """App first, then the data plane: handlers may still write while they end. A second call changes nothing."""
        if self._app:
            _end(self._app)
        if self._model:
            self._model.stop()
        if self._emulator:
            self._emulator.stop()

    def _catch_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._asked_to_stop)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: self._news.put("child"))

    def _asked_to_stop(self, _number: int, _frame: FrameType | None) -> None:
        if self._starting:
            self._starting = False
            raise Stopped
        self._news.put("stop")


def _app_environment(
    environ: Mapping[str, str], options: Options, created: Resources, secret: str, model: real_model.RealModel | None
) -> dict[str, str]:
    """The settings of the app process; nothing of the user's AWS configuration reaches it."""
    kept = {name: value for name, value in environ.items() if not name.startswith(FOREIGN)}
    direct = ",".join(filter(None, [kept.get("NO_PROXY") or kept.get("no_proxy"), "127.0.0.1,localhost,::1"]))
    return {
        **kept,
        **CREDENTIALS,
        "NO_PROXY": direct,
        "no_proxy": direct,
        "AWS_ENDPOINT_URL": created.endpoint,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "TURNLOG_STAGE": "local",
        "TURNLOG_TABLE": created.table,
        "TURNLOG_QUEUE_URL": created.queue_url,
        "TURNLOG_BUCKET": created.bucket,
        "TURNLOG_SOCKET_ENDPOINT": f"{options.url}/_sockets",
        "TURNLOG_SOCKET_URL": f"{options.url.replace('http', 'ws', 1)}/ws",
        "TURNLOG_SECRET": secret,
        "TURNLOG_MODEL": options.model,
        "POWERTOOLS_LOG_LEVEL": kept.get("POWERTOOLS_LOG_LEVEL", "WARNING"),  # the console is for what went wrong
        **(model.environment if model else {}),
    }


def _port_is_free(options: Options) -> None:
    try:
        app_process.listen(options.port).close()
    except OSError as error:
        raise Refusal(_taken(options, error)) from None


def _taken(options: Options, error: OSError | None = None) -> str:
    if isinstance(error, PermissionError):
        return f"Port {options.port} needs more rights than this user has; choose another with PORT=8001 make run."
    other = options.port + 1 if options.port < 65535 else 8000
    return f"Port {options.port} is in use; stop what listens there, or choose another with PORT={other} make run."


def _why_not(code: int, options: Options) -> str:
    if code == app_process.PORT_TAKEN:
        return _taken(options)
    return f"The app did not start ({_how(code)}); what it said stands above."


def _how(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _real_model() -> real_model.RealModel:
    try:
        return real_model.start(ROOT)
    except real_model.RealModelError as error:
        raise Refusal(f"MODEL={REAL_MODEL} cannot be had: {error}.") from None


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin and not process.stdin.closed:
        process.stdin.close()
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
