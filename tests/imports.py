"""The imports of the four packages, read from the syntax tree: one is found even where no test reaches it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Literal, NamedTuple

from tests.shared_data import ROOT

LINE = ("simulator", "calibration", "experiments", "dashboards")
"""The packages from left to right; each imports itself and what stands to its left."""

SOURCES = sorted(path for package in LINE for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    """Relative path, as the id of a parametrised case."""
    return path.relative_to(ROOT).as_posix()


class Import(NamedTuple):
    """An import of a file: the full name of the module, what is taken from it, and when it happens.

    `when`: "import" where the module's own import runs it, "call" within a function, "typing" under
    `if TYPE_CHECKING:`, which costs nothing and yet ties the packages.
    """

    module: str
    names: tuple[str, ...]
    line: int
    when: Literal["import", "call", "typing"]

    @property
    def reaches(self) -> tuple[str, ...]:
        """Every name that may be that of a module."""
        return (self.module, *(f"{self.module}.{name}" for name in self.names))


def imports(path: Path, source: str | None = None) -> Iterator[Import]:
    """Yield every import of a file; strings given to `import_module` are read too."""
    tree = ast.parse(path.read_text(encoding="utf-8") if source is None else source, filename=str(path))
    package = [*path.relative_to(ROOT).parts[:-1]]

    def visit(node: ast.AST, when: Literal["import", "call", "typing"]) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            within = when
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                within = "typing"
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and when == "import":
                within = "call"
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, (), child.lineno, when) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) - child.level + 1] if child.level else []
                module = ".".join([*base, *([child.module] if child.module else [])])
                yield Import(module, tuple(alias.name for alias in child.names), child.lineno, when)
            elif (
                isinstance(child, ast.Call)
                and ast.unparse(child.func).rpartition(".")[2] in {"import_module", "__import__"}
                and child.args
                and isinstance(child.args[0], ast.Constant)
                and isinstance(child.args[0].value, str)
            ):
                yield Import(child.args[0].value, (), child.lineno, when)
            yield from visit(child, within)

    yield from visit(tree, "import")


def module_of(path: Path) -> str:
    """The dotted name of a file's module."""
    return name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def ring_of(graph: Mapping[str, set[str]]) -> list[str]:
    """Names that lead to one another in a ring, each to the next, or [] where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        ring: list[str] = error.args[1]
        return ring[::-1]
    return []
