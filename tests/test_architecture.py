"""The shape of the code: packages in a line, heavy modules imported late, files with one idea each.

Imports are read from the syntax tree: a forbidden one is found even where no test reaches it.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shared_data import ROOT

LINE = ("simulator", "calibration", "experiments", "dashboards")
"""The packages from left to right; each imports itself and what stands to its left."""

HEAVY = frozenset(
    {"torch", "transformers", "numba", "scipy", "pyarrow", "plotly", "dash", "dask", "distributed", "kaleido"}
    | {"numpy", "pydantic"}
)
"""Modules that cost a tenth of a second or more to import: `decodesim --help` does without."""

TORCH_FOLDERS = tuple(
    f"calibration/{name}" for name in ("closure", "decoder", "drafters", "microbench", "sampling")
)
"""Folders whose files are written in torch and import it at their top; others import these files late."""

MAX_LINES = 350

SOURCES = sorted(path for package in LINE for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    """Relative path, as the id of a parametrised case."""
    return path.relative_to(ROOT).as_posix()


def imports(path: Path, source: str | None = None) -> Iterator[tuple[str, int, bool]]:
    """Yield (full module name, line, whether the module's own import runs it) of every import of a file.

    Imports under `if TYPE_CHECKING:` cost nothing, but tie the packages all the same: they count as late.
    Strings given to `import_module` are read too.
    """
    tree = ast.parse(path.read_text(encoding="utf-8") if source is None else source, filename=str(path))
    package = [*path.relative_to(ROOT).parts[:-1]]

    def visit(node: ast.AST, at_import: bool) -> Iterator[tuple[str, int, bool]]:
        for child in ast.iter_child_nodes(node):
            late = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or (
                isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            )
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield alias.name, child.lineno, at_import
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) - child.level + 1] if child.level else []
                yield ".".join([*base, *([child.module] if child.module else [])]), child.lineno, at_import
            elif (
                isinstance(child, ast.Call)
                and ast.unparse(child.func).rpartition(".")[2] in {"import_module", "__import__"}
                and child.args
                and isinstance(child.args[0], ast.Constant)
                and isinstance(child.args[0].value, str)
            ):
                yield child.args[0].value, child.lineno, at_import
            yield from visit(child, at_import and not late)

    yield from visit(tree, True)


def top(module: str) -> str:
    """The first part of a dotted name."""
    return module.partition(".")[0]


def in_torch(place: str) -> bool:
    """Whether a path lies in a folder that is written in torch."""
    return place.startswith(tuple(f"{folder}/" for folder in TORCH_FOLDERS))


def brings_torch(module: str) -> bool:
    """Whether importing a module imports torch."""
    return top(module) in {"torch", "transformers"} or in_torch(module.replace(".", "/") + "/")


def offences(path: Path, source: str | None = None) -> list[str]:
    """Every import of a file that breaks the line or brings torch where or when it may not come."""
    own = LINE.index(path.relative_to(ROOT).parts[0])
    found = []
    for module, line, at_import in imports(path, source):
        place = f"{name_of(path)}:{line}: {module}"
        if top(module) in LINE and LINE.index(top(module)) > own:
            found.append(f"{place} stands to the right of {LINE[own]}")
        if top(module) in {"torch", "transformers"} and LINE[own] != "calibration":
            found.append(f"{place} is for calibration only")
        elif brings_torch(module) and at_import and not in_torch(path.relative_to(ROOT).as_posix()):
            found.append(f"{place} belongs inside the function that uses it")
        if top(module) == "tests":
            found.append(f"{place} is not installed")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_hold_the_line(path: Path) -> None:
    assert offences(path) == []


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_files_have_one_idea(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{name_of(path)} has {lines} lines: is there a second idea in it?"


@pytest.mark.parametrize(
    ("place", "source", "offence"),
    [
        ("simulator/x.py", "import experiments.runner.runner", "right of simulator"),
        ("simulator/x.py", "def f():\n    from calibration import fit", "right of simulator"),
        ("simulator/x.py", "if TYPE_CHECKING:\n    from calibration.fit import Fit", "right of simulator"),
        ("calibration/x.py", "importlib.import_module('dashboards.report')", "right of calibration"),
        ("simulator/x.py", "def f():\n    import torch", "calibration only"),
        ("calibration/x.py", "from torch import nn", "inside the function"),
        ("calibration/x.py", "class A:\n    import torch.nn", "inside the function"),
        ("calibration/x.py", "from calibration.drafters.eagle import EagleHead", "inside the function"),
        ("experiments/x.py", "import calibration.sampling", "inside the function"),
        ("dashboards/x.py", "from tests.oracle import run", "not installed"),
    ],
)
def test_offences_are_found(place: str, source: str, offence: str) -> None:
    found = offences(ROOT / place, source)
    assert len(found) == 1
    assert offence in found[0]


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("calibration/x.py", "def f():\n    import torch"),
        ("calibration/drafters/x.py", "import torch\nfrom calibration.sampling import rejection"),
        ("experiments/x.py", "def f():\n    from calibration.drafters.target import Target"),
        (
            "dashboards/x.py",
            "import simulator.results.result\nimport experiments.study.grid\nfrom . import figures",
        ),
        ("simulator/step/x.py", "from ..units import GIB\nfrom .plan import Plan"),
    ],
)
def test_what_is_allowed_is_not_found(place: str, source: str) -> None:
    assert offences(ROOT / place, source) == []


def heavy_after(statement: str) -> set[str]:
    """The heavy modules that a fresh interpreter holds after a statement."""
    code = f"import sys\n{statement}\nprint('\\n'.join({{name.partition('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split()) & HEAVY


def test_the_probe_sees_heavy_modules() -> None:
    assert heavy_after("import scipy") == {"numpy", "scipy"}


def test_the_command_line_starts_light() -> None:
    assert heavy_after("import experiments.cli, simulator, calibration, experiments, dashboards") == set()
