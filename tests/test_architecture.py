"""The shape of the code: packages in a line, no circles, heavy modules late, files with one idea each.

Imports are read from the syntax tree: a forbidden one is found even where no test reaches it.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.imports import LINE, SOURCES, imports, module_of, name_of, ring_of
from tests.shared_data import ROOT

HEAVY = frozenset(
    {"torch", "transformers", "numba", "scipy", "pyarrow", "plotly", "dash", "dask", "distributed", "kaleido"}
    | {"numpy", "pydantic"}
)
"""Modules that cost a tenth of a second or more to import: `decodesim --help` does without."""

TORCH_FOLDERS = tuple(
    f"calibration/{name}"
    for name in ("closure", "decoder", "drafters", "engine_loop/inside", "microbench", "sampling")
)
"""Folders whose files are written in torch and import it at their top; others import these files late."""

MAX_LINES = 350


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
    result = []
    for imported in imports(path, source):
        module = imported.module
        place = f"{name_of(path)}:{imported.line}: {module}"
        if top(module) in LINE and LINE.index(top(module)) > own:
            result.append(f"{place} stands to the right of {LINE[own]}")
        if top(module) in {"torch", "transformers"} and LINE[own] != "calibration":
            result.append(f"{place} is for calibration only")
        elif (
            imported.when == "import"
            and any(map(brings_torch, imported.reaches))
            and not in_torch(name_of(path))
        ):
            result.append(f"{place} belongs inside the function that uses it")
        if top(module) == "tests":
            result.append(f"{place} is not installed")
    return result


def circle(sources: Mapping[Path, str | None]) -> list[str]:
    """Modules that import one another in a ring, each the next, or [] where there is none.

    Imports within functions count, as they only hide a circle; those for types do not. The `__init__` of a
    folder counts where names are taken from it, not where one of its modules is imported.
    """
    modules = {module_of(path) for path in sources}

    def imported(path: Path) -> Iterator[str]:
        for imported in imports(path, sources[path]):
            below = [full for full in imported.reaches[1:] if full in modules]
            if imported.when != "typing":
                yield from below
                if len(below) < max(len(imported.names), 1):
                    yield imported.module

    graph = {module_of(path): {*imported(path)} - {module_of(path)} for path in sources}
    return ring_of(graph)


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
        ("experiments/x.py", "from calibration import drafters", "inside the function"),
        ("dashboards/x.py", "from tests.oracle import run", "not installed"),
    ],
)
def test_offences_are_found(place: str, source: str, offence: str) -> None:
    result = offences(ROOT / place, source)
    assert len(result) == 1
    assert offence in result[0]


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("calibration/x.py", "def f():\n    import torch"),
        ("calibration/drafters/x.py", "import torch\nfrom calibration.sampling import rejection"),
        ("experiments/x.py", "def f():\n    from calibration.drafters.target_session import TargetSession"),
        (
            "dashboards/x.py",
            "import simulator.results.result\nimport experiments.study.grid\nfrom . import figures",
        ),
        ("simulator/step/x.py", "from ..units import GIB\nfrom .plan import Plan"),
    ],
)
def test_what_is_allowed_is_not_found(place: str, source: str) -> None:
    assert offences(ROOT / place, source) == []


def test_no_modules_import_one_another() -> None:
    assert circle(dict.fromkeys(SOURCES)) == []


@pytest.mark.parametrize(
    ("first", "second", "third", "result"),
    [
        ("from . import b", "import simulator.x.c", "from simulator.x.a import A", "abca"),
        ("def f():\n    from .b import B", "from simulator.x import a", "", "aba"),
        ("class A:\n    from simulator.x.b import B", "importlib.import_module('simulator.x.a')", "", "aba"),
        (
            "from .b import B",
            "if TYPE_CHECKING:\n    from .a import A\ndef f():\n    from .c import C",
            "",
            "",
        ),
        ("if TYPE_CHECKING:\n    def f():\n        from .b import B", "from .a import A", "", ""),
    ],
)
def test_planted_circles_are_found(first: str, second: str, third: str, result: str) -> None:
    files = [ROOT / f"simulator/x/{name}.py" for name in ("__init__", "a", "b", "c")]
    ring = circle(dict(zip(files, ("", first, second, third), strict=True)))
    assert len(ring) == len(result)
    assert "".join(name[-1] for name in ring) in 2 * result[1:]


def test_taking_a_name_from_a_folder_imports_its_init() -> None:
    package, inner = ROOT / "simulator/x/__init__.py", ROOT / "simulator/x/a.py"
    assert circle({package: "from simulator.x.a import A", inner: "from simulator.x import A"})
    assert not circle({package: "from simulator.x.a import A", inner: "from simulator.y import A"})


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
