"""One public name serves one thing, and names say what they hold."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.shared_data import ROOT

FOLDERS = ("simulator", "calibration", "experiments", "dashboards", "docs")
WITHOUT_CONTENT = frozenset(
    "luck told found whole kept one given wanted said says caught mine ours theirs beside"
    " seat seats seated nobody somebody".split()
)


def modules(folders: Sequence[str]) -> Iterator[tuple[Path, ast.Module]]:
    """The modules of some folders."""
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield file.relative_to(ROOT), ast.parse(file.read_text("utf-8"))


def defined(module: ast.Module) -> Iterator[str]:
    """Public classes and aliases of types at the top of a module."""
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name[0].isupper() and not name.isupper():
                yield name


def bound(module: ast.Module) -> Iterator[str]:
    """Every name that a module binds: variables, parameters, functions, classes."""
    for node in ast.walk(module):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def test_one_public_name_serves_one_thing() -> None:
    places = defaultdict(list)
    for file, module in modules(FOLDERS):
        for name in defined(module):
            if not name.startswith("_"):
                places[name].append(str(file))
    assert len(places) > 300
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_names_say_what_they_hold() -> None:
    names = {(str(file), name) for file, module in modules((*FOLDERS, "tests")) for name in bound(module)}
    assert {(file, name) for file, name in names if name in WITHOUT_CONTENT} == set()
