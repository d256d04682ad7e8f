"""The `turnlog` command: talk to a thread from a terminal, and watch it.

It speaks to the server through the client alone and must know nothing else of the house. It guarantees: data on
stdout, talk on stderr; no colour unless a terminal wants it; no secret on the command line (the key comes from
TURNLOG_KEY); and one of these exit codes.

    0 ok   1 failed   2 usage   3 not found   4 denied   5 conflict   6 the run did not complete   130 interrupted
"""

import io
import json
import mimetypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import click

from chalicelib.client import (
    Accepted,
    Conflict,
    ConnectionFailed,
    Event,
    EventStream,
    Forbidden,
    InvalidRequest,
    Misused,
    NotFound,
    ProblemError,
    Run,
    ThreadTerminated,
    Turnlog,
    TurnlogError,
    Unauthorized,
)
from chalicelib.terminal import Answer, Reply, Screen, event_line, file_line, run_line

FAILED, USAGE, NOT_FOUND, DENIED, CONFLICT, RUN_FAILED, INTERRUPTED = 1, 2, 3, 4, 5, 6, 130
EXIT_CODES: tuple[tuple[type[TurnlogError], int], ...] = (
    (Misused, USAGE),
    (InvalidRequest, USAGE),
    (NotFound, NOT_FOUND),
    (Unauthorized, DENIED),
    (Forbidden, DENIED),
    (Conflict, CONFLICT),
    (ThreadTerminated, CONFLICT),
)
REMEDIES: tuple[tuple[type[TurnlogError], str], ...] = (
    (ConnectionFailed, "`make run` starts a server on http://127.0.0.1:8000; TURNLOG_URL names another one"),
    (Unauthorized, "set TURNLOG_KEY to an API key; `make run` prints one"),
    (ThreadTerminated, "start another thread: turnlog new"),
)
END = 2**31 - 1  # an `after` that no thread reaches: the server takes it as the end of the log
PAGE = 100  # the most that a list answers at once
Command = Callable[..., Any]


class Doors(click.Group):
    """The commands, behind one place that turns an error into a sentence and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; every error of the client ends here."""
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal that lacks a character shows `?`
        try:
            return super().invoke(ctx)
        except TurnlogError as error:
            ctx.exit(_report(error))
        except KeyboardInterrupt:
            Screen().talk("interrupted")
            ctx.exit(INTERRUPTED)


def _report(error: TurnlogError) -> int:
    """Say what is wrong, where, and what helps; the exit code."""
    screen = Screen()
    screen.talk(f"error: {error}", fg="red")
    if isinstance(error, ProblemError):
        for fault in error.errors:
            where = f"{fault.get('path')}: {fault.get('message')}" if isinstance(fault, dict) else str(fault)
            if where not in error.detail:
                screen.talk(f"  {where}")
        if error.request_id:
            screen.talk(f"  request id {error.request_id}", dim=True)
    for kind, remedy in REMEDIES:
        if isinstance(error, kind):
            screen.talk(f"  {remedy}")
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


def _shared(command: Command) -> Command:
    """The options that every command has."""
    as_json = click.option("--json", "as_json", is_flag=True, help="JSON lines on stdout.")
    return as_json(click.option("--url", metavar="URL", help="The server; else TURNLOG_URL, else loopback.")(command))


def _watching(command: Command) -> Command:
    """The options of commands that show an answer."""
    reasoning = click.option("--reasoning", is_flag=True, help="Show the model's reasoning, on stderr.")
    return reasoning(click.option("--wait/--no-wait", default=True, help="Show the answer live, or return.")(command))


def _text(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return sys.stdin.read() if value == "-" else value


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if not value.partition("=")[0] or "=" not in value:
            raise click.BadParameter(f"{value!r} is not of the form NAME=VALUE", ctx=ctx, param=param)
    return dict(cast(tuple[str, str], value.split("=", 1)) for value in values)


def _object(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Any]:
    try:
        parsed = json.loads(value or "{}")
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"no JSON: {error}", ctx=ctx, param=param) from error
    if not isinstance(parsed, dict):
        raise click.BadParameter("not a JSON object", ctx=ctx, param=param)
    return parsed


@click.group(
    cls=Doors,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 denied, 5 conflict, 6 the run did not complete, "
    "130 interrupted. The key comes from TURNLOG_KEY, the server from TURNLOG_URL.",
)
@click.version_option(package_name="turnlog")
def main() -> None:
    """Talk to durable agent threads, and watch them live."""


@main.command()
@click.argument("message", required=False, callback=_text)
@click.option("--agent", default="assistant", show_default=True, help="Which agent answers.")
@click.option("--title", help="A title for lists.")
@click.option("--argument", "pairs", metavar="NAME=VALUE", multiple=True, callback=_pairs, help="A text argument.")
@click.option("--arguments", metavar="JSON", callback=_object, help="Arguments as a JSON object.")
@_watching
@_shared
@click.pass_context
def new(
    ctx: click.Context,
    message: str | None,
    agent: str,
    title: str | None,
    pairs: Mapping[str, str],
    arguments: Mapping[str, Any],
    wait: bool,
    reasoning: bool,
    as_json: bool,
    url: str | None,
) -> None:
    """Create a thread and print its id; with a MESSAGE (`-`: from stdin), show the answer."""
    screen = Screen(as_json=as_json)
    with Turnlog(url) as turnlog:
        created = turnlog.create_thread(agent, message=message, title=title, arguments={**arguments, **pairs} or None)
        thread_id = created["thread"]["id"]
        screen.row(created) if as_json else screen.line((thread_id, {"bold": True}))
        if message is None or not wait:
            screen.hint(f"turnlog say {thread_id} 'Hello'", f"turnlog tail {thread_id}")
            return
        with turnlog.stream(thread_id, on_state=_states(screen)) as stream:
            ctx.exit(_watch(screen, stream, created, turnlog.whole, reasoning))


@main.command()
@click.argument("thread")
@click.argument("text", callback=_text)
@click.option(
    "--delivery",
    type=click.Choice(["join", "enqueue", "reject"]),
    help="Into the run in flight, a run of its own, or only if idle.",
)
@_watching
@_shared
@click.pass_context
def say(
    ctx: click.Context,
    thread: str,
    text: str,
    delivery: Any,
    wait: bool,
    reasoning: bool,
    as_json: bool,
    url: str | None,
) -> None:
    """Say TEXT (`-`: from stdin) to THREAD and show the answer until its run ends."""
    screen = Screen(as_json=as_json)
    with Turnlog(url) as turnlog:
        if not wait:
            _print_accepted(screen, turnlog.say(thread, text, delivery=delivery))
            screen.hint(f"turnlog tail {thread}")
            return
        # Watch first, then speak: whatever the message causes comes after the number where the stream stands.
        with turnlog.stream(thread, END, on_state=_states(screen)) as stream:
            stream.wait_live()
            accepted = turnlog.say(thread, text, delivery=delivery)
            if as_json:
                screen.row(accepted)
            ctx.exit(_watch(screen, stream, accepted, turnlog.whole, reasoning))


@main.command()
@click.argument("thread")
@click.option("--after", metavar="N", type=click.IntRange(min=0), default=0, help="Only events after this number.")
@click.option("--follow/--no-follow", default=True, help="Go on with what comes (default), or end at the end.")
@_shared
@click.pass_context
def tail(ctx: click.Context, thread: str, after: int, follow: bool, as_json: bool, url: str | None) -> None:
    """Print every event of THREAD, one line each."""
    screen, seen = Screen(as_json=as_json), after
    with Turnlog(url) as turnlog:
        try:
            for event in (
                turnlog.stream(thread, after, on_state=_states(screen)) if follow else _log(turnlog, thread, after)
            ):
                screen.row(event.envelope) if as_json else screen.line(*event_line(event, screen.width))
                seen = event.delivery_seq
        except KeyboardInterrupt:
            screen.hint(f"turnlog tail {thread} --after {seen}")
            ctx.exit(INTERRUPTED)
    screen.hint(f"turnlog tail {thread} --after {seen}", f"turnlog say {thread} 'Hello'")


@main.command()
@click.argument("thread")
@_shared
def runs(thread: str, as_json: bool, url: str | None) -> None:
    """List the runs of THREAD."""
    screen, cancels = Screen(as_json=as_json), []
    with Turnlog(url) as turnlog:
        for run in turnlog.runs(thread):
            screen.row(run) if as_json else screen.line(*run_line(run))
            cancels += [f"turnlog cancel {run['id']}"] if run["status"] in ("queued", "running", "waiting") else []
    screen.hint(*cancels[:1], f"turnlog tail {thread}", f"turnlog say {thread} 'Hello'")


@main.command()
@click.argument("thread")
@click.argument("action", type=click.Choice(["ls", "get", "put", "rm"]), default="ls")
@click.argument("what", required=False)
@click.argument("target", required=False)
@_shared
def files(thread: str, action: str, what: str | None, target: str | None, as_json: bool, url: str | None) -> None:
    """List, read, write and remove the files of THREAD.

    \b
    ls [FOLDER]               what is directly in a folder (default /)
    get PATH [LOCAL]          to a local file, or to stdout
    put LOCAL [PATH]          a local file (`-`: stdin), by default under its own name
    rm PATH
    """
    screen = Screen(as_json=as_json)
    with Turnlog(url) as turnlog:
        if action == "ls":
            for entry in turnlog.list_files(thread, what or "/"):
                screen.row(entry) if as_json else screen.line(*file_line(entry))
            return
        if what is None:
            raise click.UsageError(f"{action} needs a path")
        if action == "get":
            data = turnlog.get_file(thread, what)
            Path(target).write_bytes(data) if target else sys.stdout.buffer.write(data)
        elif action == "put":
            _put(screen, turnlog, thread, what, target)
        else:
            turnlog.delete_file(thread, what)


@main.command()
@click.argument("run")
@_shared
def cancel(run: str, as_json: bool, url: str | None) -> None:
    """Cancel RUN; what it did so far is kept."""
    screen = Screen(as_json=as_json)
    with Turnlog(url) as turnlog:
        answer = turnlog.cancel(run)
    if as_json:
        screen.row(answer)
        return
    now = cast(Run, answer["run"])
    screen.line((now["id"], {}), (now["status"], {}))
    if now["status"] == "running":
        screen.talk("it ends within seconds", dim=True)
    screen.hint(f"turnlog tail {now['thread_id']}")


def _put(screen: Screen, turnlog: Turnlog, thread: str, local: str, path: str | None) -> None:
    if local == "-" and path is None:
        raise click.UsageError("what comes from stdin needs a path")
    try:
        data = sys.stdin.buffer.read() if local == "-" else Path(local).read_bytes()
    except OSError as error:
        raise click.UsageError(f"{local}: {error.strerror}") from error
    wanted = path or f"/{Path(local).name}"
    entry = turnlog.put_file(thread, wanted, data, content_type=mimetypes.guess_type(wanted)[0])
    screen.row(entry) if screen.as_json else screen.line(*file_line(entry))


def _log(turnlog: Turnlog, thread: str, after: int) -> Iterator[Event]:
    """The stored events after a number, page by page."""
    while (page := turnlog.events(thread, after, limit=PAGE)).items:
        yield from page.items
        after = page.items[-1].delivery_seq


def _watch(
    screen: Screen,
    stream: EventStream,
    accepted: Accepted,
    whole: Callable[[Event], Event],
    reasoning: bool,
) -> int:
    """Show the answer until its run ends; the exit code."""
    reply, answer = Reply(accepted, stream.cursor), Answer(screen, whole, reasoning=reasoning)
    if reply.run_id is None:
        screen.talk("stored; the run in flight takes it before its next step", dim=True)
    with _interruptible(screen, stream, reply):
        for event in reply.of(stream):
            screen.row(event.envelope) if screen.as_json else answer.show(event)
        if reply.end is None:
            screen.talk("withdrawn before a run took it", fg="yellow")
            return FAILED
        screen.hint(f"turnlog say {stream.thread_id} '…'", f"turnlog tail {stream.thread_id}")
        return 0 if reply.end.type == "run.completed" else RUN_FAILED


@main.group()
def agents() -> None:
    """Agents as they are defined in code."""


@agents.command("check")
@click.argument("module", default="chalicelib.agents")
@click.option("--json", "as_json", is_flag=True, help="JSON lines on stdout.")
@click.pass_context
def check_agents(ctx: click.Context, module: str, as_json: bool) -> None:
    """Import a module with AGENTS and say what is wrong with its definitions. Needs no server."""
    sys.path.insert(0, os.getcwd())
    found = import_module("chalicelib.engine.checking").check(module)  # the one command that looks at code, not at HTTP
    screen = Screen(as_json=as_json)
    for name, kind, tools in found.agents:
        if as_json:
            screen.row({"agent": name, "kind": kind, "tools": tools})
        else:
            screen.line((name, {"bold": True}), (kind, {}), (f"{tools} tools", {"dim": True}))
    for fault in found.faults:
        if as_json:
            screen.row({"fault": fault})
        screen.talk(f"error: {fault}", fg="red")
    if found.faults:
        ctx.exit(FAILED)


@contextmanager
def _interruptible(screen: Screen, stream: EventStream, reply: Reply) -> Iterator[None]:
    """Ctrl-C ends the watching and never the run; both ways on are named."""
    try:
        yield
    except KeyboardInterrupt:
        screen.end_text()
        screen.talk("stopped watching; the run goes on", fg="yellow")
        if reply.run_id:
            screen.talk(f"  cancel it:       turnlog cancel {reply.run_id}")
        screen.talk(f"  go on watching:  turnlog tail {stream.thread_id} --after {reply.seen}")
        click.get_current_context().exit(INTERRUPTED)


def _print_accepted(screen: Screen, accepted: Accepted) -> None:
    run, message = accepted.get("run"), accepted.get("message")
    if screen.as_json:
        screen.row(accepted)
    elif run:
        screen.line((run["id"], {}), (run["status"], {}))
    elif message:
        screen.line((message["id"], {}), ("queued", {}))


def _states(screen: Screen) -> Callable[[str], None]:
    """Tell of what happens to the connection, and of nothing else."""
    lost = False

    def tell(state: str) -> None:
        nonlocal lost
        if state == "connecting":
            screen.passing("connecting …")
        elif state == "reconnecting":
            screen.talk("connection lost, reconnecting …", fg="yellow")
            lost = True
        elif state == "live" and lost:
            screen.talk("connected again, nothing was missed", dim=True)
            lost = False
        elif state == "gap":
            screen.talk("older events are past their retention and no longer there", fg="yellow")

    return tell


if __name__ == "__main__":
    main()
