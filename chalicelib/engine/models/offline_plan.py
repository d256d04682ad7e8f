"""A plan for the offline models: which tools to call, step by step, in place of understanding.

    /save_note {"name": "tea", "text": "Green tea: 80 degrees."}
    /save_note {"name": "coffee", "text": "Filter: 94 degrees."}

    /list_notes

Calls on neighbouring lines are one step; any line between them, also an empty one, begins the next step. Each call is a
line: the name of a tool that is offered, and its arguments as a JSON object (none: `{}`). The plan stands in the newest
message of the user; without one there, in the agent's option `offline_plan`, of which other models know nothing.

`${2.path}` stands for a field of what the second call answered, `${user.said}` for the words of the user. This room
knows text and results, nothing of streams. It guarantees that the same conversation is at the same step.
"""

import re
from collections.abc import Mapping, Sequence

from chalicelib.engine.models.placeholders import Filler
from chalicelib.engine.models.toolchoice import Wanted
from chalicelib.ports import JSON, ModelRequest

OPTION = "offline_plan"
_CALL = re.compile(r"/([a-zA-Z_][a-zA-Z0-9_-]*)[ \t]*(.*)\Z")

Steps = list[list[Wanted]]


def planned_calls(request: ModelRequest, said: str, results: Sequence[JSON], done: int) -> tuple[Wanted, ...] | None:
    """The calls of the next step; none if the plan is at its end; None if there is no plan.

    `results`: what the calls since the user's message answered, in order. `done`: the steps that asked for them.
    Arguments that are no JSON are handed on as they stand: the call then fails, and says why.
    """
    if request.tool_choice == "none":
        return None
    option = request.options.get(OPTION)
    steps = _steps(request, said) or (_steps(request, option) if isinstance(option, str) else [])
    if not steps:
        return None
    known = {"user": {"said": said}} | {str(number): result for number, result in enumerate(results, start=1)}
    return tuple(_filled(call, known) for call in (steps[done] if done < len(steps) else ()))


def _steps(request: ModelRequest, text: str) -> Steps:
    offered = {tool.name for tool in request.tools}
    steps: Steps = [[]]
    for line in text.splitlines():
        match = _CALL.match(line.strip())
        if match is None or match.group(1) not in offered:
            steps.append([])
            continue
        steps[-1].append(Wanted(name=match.group(1), arguments_text=match.group(2) or "{}"))
    if not request.parallel_tool_calls:
        steps = [[call] for step in steps for call in step]
    return [step for step in steps if step]


def _filled(call: Wanted, known: Mapping[str, JSON]) -> Wanted:
    return Wanted(name=call.name, arguments_text=Filler(results=known).fill(call.arguments_text))
