"""What the `turnlog` command shows: events as lines, an answer as it is being written, all of it safe for a terminal.

It must not call the server; it is handed bodies and events. It guarantees that no control or bidi character of what a
model, a tool or a user wrote reaches the terminal (it could redraw the screen or turn text around), that data goes to
stdout and talk to stderr, and that each text of an answer is shown once, whether it came in pieces or whole.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from chalicelib.client import Accepted, Event, FileEntry, Run

# C0 but tab and newline, DEL, C1, the bidi controls of Unicode 15 section 23.2, line separators, halves of characters.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
PIPED_WIDTH = 200  # characters of an event line where no terminal says how wide it is
VALUE_WIDTH = 80  # characters of a tool's arguments or result
Piece = tuple[str, Mapping[str, Any]]  # a text and its click style
DIM: Mapping[str, Any] = {"dim": True}
PLAIN: Mapping[str, Any] = {}
COLOURS: Mapping[str, Mapping[str, Any]] = {
    "run.completed": {"fg": "green"},
    "run.failed": {"fg": "red"},
    "run.cancelled": {"fg": "yellow"},
    "completed": {"fg": "green"},
    "failed": {"fg": "red"},
    "cancelled": {"fg": "yellow"},
    "run": {"bold": True},
    "message": {"fg": "cyan"},
    "tool": {"fg": "magenta"},
    "thread": {"fg": "blue"},
}


def clean(text: str) -> str:
    """The text without what a terminal would obey instead of show."""
    return UNSAFE.sub("", text)


def one_line(text: str, width: int) -> str:
    """The text on one line of at most `width` characters."""
    flat = clean(text).replace("\n", "\\n").replace("\t", " ")
    return flat if len(flat) <= width else flat[: max(width - 1, 0)] + "…"


def compact(value: Any, width: int = VALUE_WIDTH) -> str:
    """A JSON value on one line."""
    return one_line(json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str), width)


def plain_text(message: Mapping[str, Any]) -> str:
    """The text parts of a message."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict) and part.get("type") == "text")


def money(usd: float | None) -> str:
    """Dollars down to the micro-dollar that is stored."""
    return "cost unknown" if usd is None else f"${usd:.6f}".rstrip("0").rstrip(".")


def tokens(usage: Mapping[str, Any] | None) -> str:
    """Both counts of a usage."""
    return f"{(usage or {}).get('input_tokens', 0)} in, {(usage or {}).get('output_tokens', 0)} out"


def local_time(microseconds: object) -> str:
    """Time of day on this machine, to the millisecond."""
    try:
        moment = datetime.fromtimestamp(float(str(microseconds)) / 1e6, tz=UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return "?"
    return moment.strftime("%H:%M:%S.%f")[:-3]


class Screen:
    """Two channels: stdout carries data (text, lines, JSON rows), stderr carries talk."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._mid_line = False  # a text on stdout has not ended its line
        self._passing = False  # a line on stderr that the next output wipes out
        self._shared = sys.stdout.isatty() and sys.stderr.isatty()

    def row(self, value: Any) -> None:
        """One JSON line, in ASCII, so that nothing in it can act on a terminal."""
        click.echo(json.dumps(value))

    def text(self, piece: str) -> None:
        """Text as it comes, without a newline of ours."""
        piece = clean(piece)
        if piece:
            self._wipe()
            click.echo(piece, nl=False)
            self._mid_line = not piece.endswith("\n")

    def end_text(self) -> None:
        """Finish the line, if a text has left one open."""
        if self._mid_line:
            click.echo()
            self._mid_line = False

    def line(self, *pieces: Piece) -> None:
        """One line of data."""
        self._wipe()
        self.end_text()
        click.echo(" ".join(click.style(clean(text), **style) for text, style in pieces))

    def talk(self, text: str, **style: Any) -> None:
        """One line to the person, on stderr."""
        self._wipe()
        if self._shared:
            self.end_text()
        click.secho(clean(text), err=True, **style)

    def passing(self, text: str) -> None:
        """What goes on right now, on a terminal only; the next output takes its place."""
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not self._mid_line and not self.as_json:
            self._wipe()
            click.secho(one_line(text, shutil.get_terminal_size().columns - 1), err=True, nl=False, dim=True)
            self._passing = True

    def hint(self, *commands: str) -> None:
        """What to do next; programs that read JSON are spared."""
        if not self.as_json:
            for place, command in enumerate(commands):
                self.talk(("      " if place else "next: ") + command, dim=True)

    def _wipe(self) -> None:
        if self._passing:
            click.echo("\r\x1b[K", err=True, nl=False, color=True)
            self._passing = False

    @property
    def width(self) -> int:
        """Characters of a line."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_WIDTH


class Reply:
    """Which events answer a message: those of its own run or, if it joined, of the run that takes it, from then on."""

    def __init__(self, accepted: Accepted, after: int) -> None:
        run, message, command = accepted.get("run"), accepted.get("message"), accepted.get("command")
        self.run_id: str | None = run["id"] if run else None
        self.end: Event | None = None
        self.withdrawn = False
        self.seen = after  # the last number that was dealt with: where watching can go on
        self._message_id = message["id"] if message else None
        self._command_id = command["id"] if command else None

    def of(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events of the answer, up to the terminal one; ends also if the message is withdrawn."""
        for event in events:
            self.run_id = self.run_id or self._taken_by(event)
            if self.run_id is None:
                self.withdrawn = self._is_withdrawn_by(event)
            elif event.run_id == self.run_id:
                self.end = event if event.ends_run else None
                yield event
            self.seen = event.delivery_seq
            if self.end or self.withdrawn:
                return

    def _taken_by(self, event: Event) -> str | None:
        message = event.data.get("message")
        if event.type == "message.completed" and isinstance(message, dict) and message.get("id") == self._message_id:
            return event.run_id or message.get("run_id")
        if event.type == "run.queued" and event.data.get("command_id") == self._command_id:
            return event.run_id
        return None

    def _is_withdrawn_by(self, event: Event) -> bool:
        mine = event.type == "message.deleted" and event.data.get("message_id") == self._message_id
        return mine or event.type == "thread.terminated"


class Answer:
    """Shows the events of one answer: text on stdout as it comes, tools and notices on stderr."""

    def __init__(self, screen: Screen, whole: Callable[[Event], Event], *, reasoning: bool = False) -> None:
        self._screen = screen
        self._whole = whole
        self._reasoning = reasoning
        self._shown: dict[str, str] = {}  # message id -> what was shown of it
        self._calls: dict[str, Mapping[str, Any]] = {}
        self._began_at: int | None = None  # the earliest instant of the run's work
        self._input = self._output = 0

    def show(self, event: Event) -> None:
        """One event; types that have nothing to show here are passed over."""
        shows = {
            "message.delta": self._delta,
            "message.reset": self._reset,
            "message.completed": self._completed,
            "reasoning.completed": self._thought,
            "tool.started": self._tool_started,
            "tool.completed": self._tool_completed,
            "usage.updated": self._count,
            "run.started": self._started,
            "run.reconciling": self._reconciling,
            "run.waiting": self._waiting,
            "question.requested": self._asks,
            "approval.requested": self._asks,
        }
        if event.type != "run.queued":
            self._began_at = min(event.ts, self._began_at or event.ts)
        if event.type in shows:
            shows[event.type](event)
        elif event.ends_run:
            self._ended(event)

    def _delta(self, event: Event) -> None:
        message_id, piece = str(event.data.get("message_id")), str(event.data.get("text", ""))
        self._shown[message_id] = self._shown.get(message_id, "") + piece
        self._screen.text(piece)

    def _reset(self, event: Event) -> None:
        if self._shown.pop(str(event.data.get("message_id")), ""):
            self._screen.end_text()
        self._screen.talk(f"the answer starts anew ({event.data.get('reason')})", fg="yellow")

    def _completed(self, event: Event) -> None:
        message = self._whole(event).data.get("message")
        if not isinstance(message, dict) or message.get("role") != "assistant":
            return
        text, shown = plain_text(message), self._shown.pop(str(message.get("id")), "")
        if not text.startswith(shown):
            self._screen.end_text()
            shown = ""
        self._screen.text(text[len(shown) :])
        self._screen.end_text()

    def _thought(self, event: Event) -> None:
        if self._reasoning:
            self._screen.talk(str(event.data.get("text", "")), dim=True)

    def _tool_started(self, event: Event) -> None:
        self._calls[str(event.data.get("call_id"))] = event.data
        self._screen.passing(f"{event.data.get('name')} {compact(event.data.get('arguments'))} …")

    def _tool_completed(self, event: Event) -> None:
        data = self._whole(event).data
        arguments = self._calls.pop(str(data.get("call_id")), {}).get("arguments", {})
        outcome = data.get("outcome")
        took = f"{outcome} in {data.get('duration_ms')} ms"
        style = {"fg": "magenta"} if outcome == "ok" else {"fg": "yellow"}
        self._screen.talk(f"{data.get('name')} {compact(arguments)} → {took}: {compact(data.get('result'))}", **style)

    def _count(self, event: Event) -> None:
        self._input += int(event.data.get("input_tokens") or 0)
        self._output += int(event.data.get("output_tokens") or 0)

    def _started(self, event: Event) -> None:
        self._screen.passing(f"{event.data.get('agent')} is working …")

    def _reconciling(self, event: Event) -> None:
        self._screen.talk(
            f"the worker was lost; the run goes on from {event.data.get('adopted')} stored facts", fg="yellow"
        )

    def _waiting(self, event: Event) -> None:
        self._screen.talk(f"the run waits ({event.data.get('reason')})", fg="yellow")

    def _asks(self, event: Event) -> None:
        data = event.data
        asked = data.get("question") or f"may {data.get('tool')} run with {compact(data.get('arguments'))}?"
        self._screen.talk(f"{data.get('question_id') or data.get('approval_id')} asks: {asked}", bold=True)

    def _ended(self, event: Event) -> None:
        self._screen.end_text()
        data, status = event.data, event.type.removeprefix("run.")
        usage = data.get("usage") or {"input_tokens": self._input, "output_tokens": self._output}
        parts = [f"{status} ({data.get('reason')})", f"{tokens(usage)} tokens"]
        parts += [money(data.get("cost_usd"))] if "cost_usd" in data else []
        parts += [f"{(event.ts - (self._began_at or event.ts)) / 1e6:.1f} s"]
        self._screen.talk(" · ".join(parts), **COLOURS[status])
        error = data.get("error")
        if isinstance(error, dict):
            self._screen.talk(f"{error.get('type')}: {error.get('detail')}", fg="red")


def event_line(event: Event, width: int) -> tuple[Piece, ...]:
    """Number, time, type and the gist of one event."""
    number, moment = f"{event.delivery_seq:>5}", local_time(event.ts)
    colour = COLOURS.get(event.type) or COLOURS.get(event.type.partition(".")[0], PLAIN)
    kind = one_line(event.type, 40)
    left = width - len(number) - len(moment) - max(len(kind), 18) - 3
    return (number, DIM), (moment, DIM), (f"{kind:<18}", colour), (one_line(gist(event), max(left, 20)), PLAIN)


def gist(event: Event) -> str:
    """What one event says, in a few words; of an unknown type, its data."""
    data = event.data
    match event.type.split("."):
        case ["message" | "reasoning", "delta" | "completed"] if "text" in data:
            return json.dumps(data["text"], ensure_ascii=False)
        case ["message", _] if isinstance(data.get("message"), dict):
            return _message_gist(data["message"])
        case ["tool", "started"]:
            return f"{data.get('name')} {compact(data.get('arguments'))}"
        case ["tool", "completed"]:
            return f"{data.get('name')} {data.get('outcome')} {compact(data.get('result'))}"
        case ["thread", "status"]:
            return f"{data.get('state')} ({data.get('reason')})"
        case ["run", "completed" | "failed" | "cancelled"]:
            return f"{event.run_id} {data.get('reason')} {compact({k: data[k] for k in data if k != 'reason'})}"
        case ["run", _]:
            return f"{event.run_id} {compact(data)}"
    return compact(data, PIPED_WIDTH)


def _message_gist(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    text = plain_text(message)
    calls = [f"{part.get('name')}()" for part in parts if part.get("type") == "tool_call"]
    results = [str(part.get("outcome")) for part in parts if part.get("type") == "tool_result"]
    said = [json.dumps(text, ensure_ascii=False)] if text else []
    return " ".join([str(message.get("role")), *said, *calls, *results])


def run_line(run: Run) -> tuple[Piece, ...]:
    """One run in a row of a table."""
    return (
        (run["id"], PLAIN),
        (f"{run['status']:<9}", COLOURS.get(run["status"], PLAIN)),
        (f"{run.get('reason') or '-':<16}", PLAIN),
        (f"{run.get('steps')} steps, {tokens(run.get('usage'))}, {money(run.get('cost_usd'))}", PLAIN),
        (local_time(run.get("created_at")), DIM),
    )


def file_line(entry: FileEntry) -> tuple[Piece, ...]:
    """One file or directory in a row of a table."""
    if entry["kind"] == "directory":
        return (f"{'-':>11}", DIM), (f"{'-':<12}", DIM), (f"{entry['path']}/", {"bold": True})
    return (f"{entry['bytes']:>11}", PLAIN), (local_time(entry["updated_at"]), DIM), (entry["path"], PLAIN)
