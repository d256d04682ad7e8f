"""The documents say what is so: their commands exist, their snippet runs, their routes are the app's, their links lead
somewhere. Whole commands are run by tests/journeys/test_examples.py."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import app
from chalicelib import cli, settings
from chalicelib.domain import limits
from chalicelib.engine.agent import Agent, Tool
from infra.local.options import ROOT

README = ROOT / "README.md"
DOCUMENTS = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)]+)\)")
_ASSIGNMENT = re.compile(r"[A-Z_]+=")


def _name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def _blocks(document: Path, language: str) -> list[str]:
    return [text for name, text in _FENCE.findall(document.read_text()) if name == language]


def _commands() -> Iterator[tuple[str, list[str]]]:
    """(document, words) of each command in a shell block, without its assignments and its comment."""
    for document in DOCUMENTS:
        for block in _blocks(document, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                while words and _ASSIGNMENT.match(words[0]):
                    words.pop(0)
                if words:
                    yield _name(document), words


COMMANDS = list(_commands())


def _of(program: str) -> list[Any]:
    return [
        pytest.param(words[1:], id=" ".join([document, *words])) for document, words in COMMANDS if words[0] == program
    ]


def test_every_command_of_the_documents_is_of_a_kind_that_is_checked_here() -> None:
    known = {"make", ".venv/bin/turnlog", ".venv/bin/python", "curl", "kill", "export"}
    assert {words[0] for _, words in COMMANDS} == known


@pytest.mark.parametrize("words", _of("make"))
def test_a_make_command_names_a_target_and_variables_that_exist(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for word in words:
        name, assigned, _ = word.partition("=")
        assert name in ("MODEL", "PORT") if assigned else re.search(rf"^{re.escape(name)}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("words", _of(".venv/bin/turnlog"))
def test_a_turnlog_command_is_understood_by_the_command_line(words: list[str]) -> None:
    command = cli.main.commands[words[0]]
    with command.make_context(words[0], words[1:]) as context:
        assert isinstance(context, click.Context)


@pytest.mark.parametrize("words", _of(".venv/bin/python"))
def test_a_script_that_is_run_exists(words: list[str]) -> None:
    assert (ROOT / words[0]).is_file()


@pytest.mark.parametrize("words", _of("curl"))
def test_a_request_goes_to_a_route_with_its_method(words: list[str]) -> None:
    address = next(word for word in words if word.startswith("$TURNLOG_URL/"))
    path = address.removeprefix("$TURNLOG_URL").partition("?")[0].split("/")
    method = "POST" if "-d" in words else "GET"
    fitting = [route for route in app.app.routes if _fits(route.split("/"), path)]
    assert any(method in app.app.routes[route] for route in fitting)


def _fits(template: list[str], path: list[str]) -> bool:
    return len(template) == len(path) and all(t in (p, f"{{{t[1:-1]}}}") for t, p in zip(template, path, strict=True))


def test_the_agent_of_the_readme_is_the_example_word_for_word() -> None:
    (snippet,) = _blocks(README, "python")
    example = (ROOT / "examples" / "librarian.py").read_text()
    assert example.endswith(snippet)


@pytest.mark.parametrize(
    "snippet",
    [pytest.param(text, id=f"{_name(d)} {n}") for d in DOCUMENTS for n, text in enumerate(_blocks(d, "python"))],
)
def test_a_python_snippet_defines_what_the_engine_accepts(snippet: str) -> None:
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(snippet, "snippet", "exec"), names)
    assert any(isinstance(made, Agent | Tool) for made in names.values())


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_links_lead_to_files_that_are_there_and_not_empty(document: Path) -> None:
    for target in _LINK.findall(document.read_text()):
        if target.startswith("https://"):
            continue
        found = document.parent / target.partition("#")[0]
        assert found.is_file() or (found.is_dir() and any(found.glob("*.*"))), target


def test_the_api_page_lists_the_routes_of_the_app_and_no_other() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    told = set(re.findall(r"^\| `([A-Z]+) (/api[^`]*)` \|", page, re.MULTILINE))
    assert told == {(method, route) for route, methods in app.app.routes.items() for method in methods}


def test_the_operations_page_names_every_setting() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    source = Path(settings.__file__).read_text()
    read = set(re.findall(r'"((?:TURNLOG|OPENAI|ANTHROPIC)_[A-Z_]+)"', source))
    assert read
    assert {name for name in read if f"`{name}`" not in page} == set()


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("content of a message | {} KB", limits.CONTENT_BYTES // limits.KB),
        ("metadata of a message | {} KB", limits.METADATA_BYTES // limits.KB),
        ("arguments of a thread | {} KB", limits.ARGUMENTS_BYTES // limits.KB),
        ("durable value | {} KB", limits.VALUE_BYTES // limits.KB),
        ("entry of the log: name | {} characters", limits.LOG_NAME_CHARACTERS),
        ("entry of the log: message, error | {} KB", limits.LOG_TEXT_BYTES // limits.KB),
        ("entry of the log: data | {} KB", limits.LOG_DATA_BYTES // limits.KB),
        ("entry of the log: request, response | {} KB", limits.LOG_VALUE_BYTES // limits.KB),
        ("title | {} characters", limits.TITLE_CHARACTERS),
        ("JSON depth | {}", limits.JSON_DEPTH),
        ("commands that wait in a thread | {:,}", limits.QUEUED_COMMANDS),
        ("items of a page | {}", limits.LIST_LIMIT),
        ("long poll | {} s", limits.WAIT_SECONDS),
        ("frame of the websocket | {} KB", limits.FRAME_BYTES // limits.KB),
        ("result of a tool, kept | {} KB", limits.TOOL_RESULT_BYTES // limits.KB),
    ],
)
def test_the_page_of_limits_says_the_limits_of_the_code(words: str, value: int) -> None:
    assert f"| {words.format(value)}" in (ROOT / "docs" / "limits.md").read_text()


def test_the_license_is_the_one_that_the_package_declares() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
