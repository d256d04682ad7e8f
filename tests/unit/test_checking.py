"""`turnlog agents check`: what is wrong with the agents of a module, in words, and an exit code."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from chalicelib.cli import main
from chalicelib.engine.checking import check

HEAD = "from chalicelib.engine.agent import Agent\nfrom chalicelib.engine.agent_tool import AgentTool\n"
HEARS = (
    f"{HEAD}from chalicelib.engine.prompts import Prompt, Side\n"
    'to = AgentTool(name="t", agent="c", receives_messages="side_b")\n'
)
HANDS = (
    "from chalicelib.engine.agent import Agent\nfrom chalicelib.engine.handoff import Handoff\n"
    "from chalicelib.engine.prompts import Prompt, Side\n"
    'to = Handoff(name="t", agent="c")\nside = Side(prompt=Prompt(name="p", tools=[to]))\n'
    'duel = Agent(name="c", kind="dual_ai", side_a=Side(prompt=Prompt(name="p")), side_b=Side(human=True))\n'
)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that can be imported as `guests_of_test_<something>`; written by the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / f"guests_of_{tmp_path.name.replace('-', '_')}.py"


def test_the_shipped_agents_are_all_right() -> None:
    found = check("chalicelib.agents")
    assert found.faults == ()
    assert ("debate", "dual_ai", 1) in found.agents


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (HEAD + 'AGENTS = {"a": Agent(name="b")}', "AGENTS['a'] is the agent 'b'; key it by its name"),
        (HEAD + 'AGENTS = {"a": Agent(name="a", subagents=["c"])}', "agent a: subagents names 'c'"),
        (
            HEAD + 'AGENTS = {"a": Agent(name="a", tools=[AgentTool(name="t", agent="c")])}',
            "agent a: tool t needs the agent 'c', which is none of AGENTS; add it, or set optional=True",
        ),
        (
            HANDS + 'AGENTS = {"a": Agent(name="a", tools=[to])}',
            "agent a: tool t hands over to 'c', which is none of AGENTS; add it, or set optional=True",
        ),
        (
            HANDS + 'AGENTS = {"a": Agent(name="a", tools=[to]), "c": duel}',
            "agent a: tool t hands over to 'c', which has two sides; use an AgentTool, or name an ai_human agent",
        ),
        (
            HANDS + 'AGENTS = {"a": Agent(name="a", kind="dual_ai", side_a=side, side_b=side), "c": Agent(name="c")}',
            "agent a: tool t is a handoff, and an agent with two sides hands nothing over; use an AgentTool",
        ),
        (
            HEARS + 'AGENTS = {"a": Agent(name="a", tools=[to]), "c": Agent(name="c")}',
            "agent a: tool t: receives_messages is 'side_b', and the agent 'c' has one side; leave it out",
        ),
        (
            HEARS
            + 'c = Agent(name="c", kind="dual_ai", side_a=Side(prompt=Prompt(name="p")), side_b=Side(human=True))\n'
            + 'AGENTS = {"a": Agent(name="a", tools=[to]), "c": c}',
            "agent a: tool t: receives_messages is 'side_b', and that side of 'c' is human; name the other",
        ),
        (HEAD + 'AGENTS = {"a": Agent(name="a", max_steps=0)}', "agent a: max_steps must be between 1 and 250"),
        ("import nothing_of_that_name", "cannot be imported: ModuleNotFoundError"),
        ("x = 1", "has no AGENTS: a dict of its agents by name"),
    ],
)
def test_a_fault_is_told_in_words(module: Path, code: str, fault: str) -> None:
    module.write_text(code)
    (told,) = check(module.stem).faults
    assert fault in told


def test_a_wrong_definition_names_its_file_and_line(module: Path) -> None:
    module.write_text(HEAD + '\nAGENTS = {\n    "a": Agent(name="a", model="none"),\n}\n')
    (told,) = check(module.stem).faults
    assert told.startswith(f"{module}:5: agent a: model must be `provider:name`")


def test_an_optional_agent_may_be_missing(module: Path) -> None:
    module.write_text(HEAD + 'AGENTS = {"a": Agent(name="a", tools=[AgentTool(name="t", agent="c", optional=True)])}')
    assert check(module.stem).faults == ()


def test_a_handoff_to_an_agent_with_one_side_is_right_and_one_to_none_may_be_optional(module: Path) -> None:
    optional = 'Agent(name="b", tools=[Handoff(name="t", agent="d", optional=True)])'
    module.write_text(
        HANDS + f'AGENTS = {{"a": Agent(name="a", tools=[to]), "b": {optional}, "c": Agent(name="c", side_a=side)}}'
    )
    assert check(module.stem).faults == ()


def test_the_command_prints_a_line_an_agent_and_fails_with_the_faults(module: Path) -> None:
    module.write_text(HEAD + 'AGENTS = {"a": Agent(name="a", subagents=["c"])}')
    ran = CliRunner().invoke(main, ["agents", "check", module.stem, "--json"])
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert rows[0] == {"agent": "a", "kind": "ai_human", "tools": 0}
    assert "subagents names 'c'" in rows[1]["fault"]
    assert ran.exit_code == 1


def test_the_command_is_content_with_the_shipped_agents() -> None:
    ran = CliRunner().invoke(main, ["agents", "check"])
    assert ran.exit_code == 0
    assert "assistant" in ran.stdout
