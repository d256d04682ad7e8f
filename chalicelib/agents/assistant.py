"""The shipped assistant: a plain agent with small tools and notes in files, to talk to at once and to copy from."""

import ast
import operator
import re
from collections.abc import Callable
from datetime import datetime

from chalicelib.engine.agent import Agent, ToolFailure, tool
from chalicelib.engine.state import ThreadState

_OPERATORS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
#: Longest expression: no power operator and few digits keep every result small.
EXPRESSION_CHARACTERS = 200
NOTES = "/notes"
#: A name becomes the name of a file, and what people read in a list.
_NOTE_NAME = re.compile(r"[\w][\w -]{0,63}\Z")


@tool(timeout_seconds=5, on_retry="again")
def calculate(expression: str) -> float:
    """Work out an arithmetic expression of numbers, + - * / // % and parentheses."""
    if len(expression) > EXPRESSION_CHARACTERS:
        raise ToolFailure(f"The expression is longer than {EXPRESSION_CHARACTERS} characters.")
    try:
        return _value(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ValueError, OverflowError, RecursionError):
        raise ToolFailure(f"{expression!r} is not an arithmetic expression.") from None
    except ZeroDivisionError:
        raise ToolFailure("The expression divides by zero.") from None


@tool(timeout_seconds=5, on_retry="again")
def current_time(time_zone: str = "UTC") -> str:
    """The date and time now, in a time zone such as Europe/Lisbon."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # the front door reads definitions and calls no tool

    try:
        return datetime.now(ZoneInfo(time_zone)).strftime("%A, %d %B %Y, %H:%M (%Z)")
    except (ZoneInfoNotFoundError, ValueError):
        raise ToolFailure(f"There is no time zone {time_zone!r}.") from None


@tool(timeout_seconds=15, on_retry="again")
def save_note(state: ThreadState, name: str, text: str) -> dict[str, object]:
    """Keep a text as a note, in the place of one of that name."""
    entry = state.write_file(_path(name), text, "text/markdown")
    return {"path": entry.path, "bytes": entry.bytes}


@tool(timeout_seconds=15, on_retry="again")
def read_note(state: ThreadState, name: str) -> str:
    """Read a note that was kept."""
    try:
        return state.read_file(_path(name)).decode(errors="replace")
    except FileNotFoundError:
        raise ToolFailure(f"There is no note {name!r}.") from None


@tool(timeout_seconds=15, on_retry="again")
def list_notes(state: ThreadState) -> dict[str, object]:
    """The names of the notes that were kept."""
    found = state.find_files("*.md", NOTES)
    names = [path.removeprefix(f"{NOTES}/").removesuffix(".md") for path in found.paths]
    return {"notes": names, "truncated": found.truncated}


def _path(name: str) -> str:
    if not _NOTE_NAME.match(name):
        raise ToolFailure("A note has a name of 1 to 64 letters, digits, spaces, _ and -.")
    return f"{NOTES}/{name}.md"


def _value(node: ast.AST) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.operand))
    raise ValueError


assistant = Agent(
    name="assistant",
    title="Assistant",
    description="A helpful assistant that can calculate, tell the time and keep notes.",
    prompt=(
        "You are a helpful assistant. Answer briefly and plainly. Use a tool when it gives a better answer. "
        "Keep as a note what the user wants you to remember."
    ),
    tools=[calculate, current_time, save_note, read_note, list_notes],
)
