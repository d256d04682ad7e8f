"""app.py is a page of doors: import-linter takes packages only, so this holds its rule."""

import ast

from infra.local.options import ROOT

HANDLERS = {"app", "run_turn", "fan_out", "connect", "message", "disconnect", "sweep", "provision"}
ALLOWED = ("chalicelib.doors", "chalicelib.bootstrap")
FRAMEWORK = ("chalice", "typing", "importlib", "collections")


def _imported(tree: ast.AST) -> list[str]:
    """Every module that is imported, also by a literal (or an f-string's literal start) given to import_module."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif isinstance(node, ast.Call) and "import_module" in ast.dump(node.func):
            texts = [str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)]
            names += [text for text in texts if "." in text]
    return names


def _outside(names: list[str]) -> list[str]:
    framework = [name for name in names if name.split(".")[0] in FRAMEWORK]
    return [name for name in names if name not in framework and not name.startswith(ALLOWED)]


def test_the_page_of_doors_imports_doors_and_the_composition_root_only() -> None:
    tree = ast.parse((ROOT / "app.py").read_text())
    assert _outside(_imported(tree)) == []


def test_the_rule_sees_what_it_forbids() -> None:
    page = "import boto3\nfrom chalicelib.services import x\nimport_module('chalicelib.engine.turn')\n"
    assert _outside(_imported(ast.parse(page))) == ["boto3", "chalicelib.services", "chalicelib.engine.turn"]


def test_the_page_of_doors_has_every_handler() -> None:
    tree = ast.parse((ROOT / "app.py").read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    assigned = {target.id for target in targets if isinstance(target, ast.Name)}
    assert functions | assigned >= HANDLERS
