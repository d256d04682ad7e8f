"""An agent with one tool. Copy this file to chalicelib/agents/ and name the agent in AGENTS there."""

from typing import Annotated

from chalicelib.engine.agent import Agent, ToolFailure, tool

SHELVES = {"Middlemarch": "E3", "Walden": "T1", "Emma": "A2"}


@tool(timeout_seconds=5)
def find_book(title: Annotated[str, "The title as it stands on the cover"]) -> dict[str, str]:
    """Find the shelf on which a book stands."""
    if title not in SHELVES:
        raise ToolFailure(f"There is no book with the title {title!r}.")
    return {"title": title, "shelf": SHELVES[title]}


librarian = Agent(
    name="librarian",
    title="Librarian",
    description="Knows where the books of one library stand.",
    prompt="You help the visitors of {library} to find their books. Look a book up before you say where it is.",
    tools=[find_book],
)
