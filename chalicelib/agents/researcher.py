"""A sample with subagents: `researcher` looks at a question from several sides at once and writes a report.

Each call of `look_into` makes a child thread, played by `reader`. They run side by side; the run of the researcher is
parked until all have ended, and holds nothing meanwhile. What they said are the results of the calls.
"""

from typing import Annotated

from chalicelib.engine.agent import Agent, ToolFailure, tool
from chalicelib.engine.agent_tool import AgentTool
from chalicelib.engine.state import ThreadState

REPORT = "/report.md"
#: Readers at work at once: enough for the sides of one question, and a bound on what one question costs.
READERS = 5

LOOK_INTO = AgentTool(
    name="look_into",
    agent="reader",
    description="Have a narrow question answered by a reader. Ask for several at once: they work side by side.",
    parameters={
        "type": "object",
        "properties": {"question": {"type": "string", "minLength": 1}},
        "required": ["question"],
        "additionalProperties": False,
    },
    message="question",
    max_instances=READERS,
    on_retry="again",
)


@tool(on_retry="again")
def write_report(
    state: ThreadState,
    title: str,
    findings: Annotated[list[str], "What each reader has found, one after the other"],
) -> dict[str, object]:
    """Write the report of what was found to a file."""
    if not findings:
        raise ToolFailure("There is nothing to report yet: look into the question first.")
    parts = [f"# {title}", *(f"## Finding {number}\n\n{text}" for number, text in enumerate(findings, start=1))]
    entry = state.write_file(REPORT, "\n\n".join(parts) + "\n", "text/markdown")
    return {"path": entry.path, "bytes": entry.bytes}


# The offline models do not think of questions: they ask these two.
_OFFLINE_PLAN = """\
/look_into {"question": "What speaks for it? ${user.said}"}
/look_into {"question": "What speaks against it? ${user.said}"}

/write_report {"title": "${user.said}", "findings": ["${1.result}", "${2.result}"]}
"""

reader = Agent(
    name="reader",
    title="Reader",
    description="Answers one narrow question. The researcher sends it ahead.",
    prompt="Answer the question in a few sentences. Say what you are not sure of.",
)

researcher = Agent(
    name="researcher",
    title="Researcher",
    description="Looks at a question from several sides at once and writes a report.",
    prompt=(
        "You research questions. Split what is asked into two to four narrow questions and look into all of them at "
        f"once. Then write the report, and tell the user in three sentences what it says. It is the file {REPORT}."
    ),
    tools=[LOOK_INTO, write_report],
    options={"offline_plan": _OFFLINE_PLAN},
)
