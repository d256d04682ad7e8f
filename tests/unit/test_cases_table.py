"""The table of known faults is true: every test that it names is there, and every kind has a row."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from infra.local.options import ROOT

TABLE = ROOT / "tests" / "cases" / "README.md"
#: Kinds that are about parts which exist.
KINDS = [f"P{number:02}" for number in [*range(1, 22), 23, 24]]
_ROW = re.compile(r"^\| (P\d\d) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_TEST = re.compile(r"`([^`\s]+)::(\w+)`")

ROWS = {kind: (fault, _TEST.findall(shown)) for kind, fault, shown in _ROW.findall(TABLE.read_text())}


@cache
def names_in(file: str) -> frozenset[str]:
    """The names of the tests of a file: functions on its first level that are found by their name."""
    path = ROOT / file
    assert path.name.startswith("test_"), f"{file} is no file of tests"
    assert path.is_file(), f"there is no {file}"
    found = ast.parse(path.read_text(), file).body
    return frozenset(one.name for one in found if isinstance(one, ast.FunctionDef) and one.name.startswith("test_"))


def test_every_kind_has_one_row() -> None:
    assert [kind for kind, *_ in _ROW.findall(TABLE.read_text())] == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_test_that_a_row_names_is_there(kind: str) -> None:
    fault, named = ROWS[kind]
    assert fault.strip()
    assert named, f"{kind} names no test"
    assert [f"{file}::{name}" for file, name in named if name not in names_in(file)] == []


def test_every_file_of_cases_belongs_to_a_row() -> None:
    files = sorted(path.stem for path in Path(TABLE.parent).glob("*.json"))
    assert files
    assert {file.partition("-")[0].upper() for file in files} <= ROWS.keys()
