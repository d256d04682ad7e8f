"""The shipped debate: two sides argue about a motion in turns, until the opponent concludes or the turns are over."""

from chalicelib.engine.agent import Agent, tool
from chalicelib.engine.prompts import Prompt, Side

#: Short enough to read to the end: three turns for each side.
TURNS = 6


@tool(timeout_seconds=5, on_retry="again")
def conclude(summary: str) -> dict[str, str]:
    """Conclude the debate with a summary of both sides."""
    return {"summary": summary}


RULES = Prompt(
    name="rules",
    parts=[
        "This is a debate. Answer the other side's last argument in at most three sentences, then add one of yours."
    ],
)

debate = Agent(
    name="debate",
    kind="dual_ai",
    title="Debate",
    description="Two sides debate the motion that you write.",
    side_a=Side(prompt=Prompt(name="for", parts=[RULES, "You speak for the motion."])),
    side_b=Side(
        prompt=Prompt(
            name="against",
            parts=[RULES, "You speak against the motion. When nothing new is said, conclude."],
            tools=[conclude],
        ),
        session_stop="conclude",
    ),
    max_turns=TURNS,
)
