"""The shipped assistant: a plain agent with two small tools, to talk to at once and to copy from."""

import ast
import operator
from collections.abc import Callable
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from chalicelib.engine.agent import Agent, ToolFailure, tool

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


@tool(timeout_seconds=5)
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


@tool(timeout_seconds=5)
def current_time(time_zone: str = "UTC") -> str:
    """The date and time now, in a time zone such as Europe/Lisbon."""
    try:
        return datetime.now(ZoneInfo(time_zone)).strftime("%A, %d %B %Y, %H:%M (%Z)")
    except (ZoneInfoNotFoundError, ValueError):
        raise ToolFailure(f"There is no time zone {time_zone!r}.") from None


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
    description="A helpful assistant that can calculate and tell the time.",
    prompt="You are a helpful assistant. Answer briefly and plainly. Use a tool when it gives a better answer.",
    tools=[calculate, current_time],
)
