"""The wheel holds everything, and what it installs imports its own packages, in whatever folder it is run."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from experiments import api
from tests.shared_data import ROOT

PACKAGES = ("simulator", "calibration", "experiments", "dashboards")
PUBLIC = "experiments/decodesim"
"""Where a checkout has the package that users import."""

MEMORY = "memory --model llama-3.1-8b-instruct --gpu h100-sxm --tp 1 --concurrency 8 --json".split()


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    """Run a command in a folder, without this run's settings of Python; return what it prints on stdout."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command,
        cwd=folder,
        env=inherited | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from a copy: building leaves a folder behind that would get into the next wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source / name)
    # Folders of a checkout that must not be taken for packages.
    for name in ("tests", "examples"):
        (source / name).mkdir()
        (source / name / "__init__.py").touch()
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment that holds the wheel and sees the dependencies installed here.

    A line in a .pth file shows the packages of this environment but runs none of its own .pth files:
    a checkout that is installed here in editable form stays out of sight.
    """
    environment = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", environment, folder=environment)
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python))
    run(*pip, "install", "--no-deps", "--no-index", wheel, folder=environment)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=environment)
    (Path(site.strip()) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin"


@pytest.fixture
def decoys(tmp_path: Path) -> Path:
    """A folder such as users have: packages with our names, which fail when imported."""
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(
            f"raise ImportError('the decoy {package} was imported')\n"
        )
    return tmp_path


@pytest.fixture
def study(decoys: Path) -> Path:
    """A study of two cells that do not fit their GPU: workers say so without compiling the simulation."""
    place = decoys / "small.study.yaml"
    place.write_text(
        "scenario:\n"
        "  target: {model: llama-3.1-70b-instruct}\n"
        "  hardware: {gpu: h100-sxm}\n"
        "  workload: {arrivals: {kind: closed, concurrency: 1}}\n"
        "axes:\n"
        "  workload.arrivals.concurrency: [1, 8]\n",
        encoding="utf-8",
    )
    return place


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
        licences = {name.rpartition("/")[2] for name in archive.namelist() if "/licenses/" in name}
    expected = {
        path.relative_to(ROOT).as_posix().replace(PUBLIC, "decodesim")
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and (path.suffix != ".md" or "data" in path.parts)
    }
    assert files == expected
    assert licences == {"LICENSE", "NOTICE"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_decoys_are_decoys(installed: Path, decoys: Path, package: str) -> None:
    with pytest.raises(AssertionError, match=f"the decoy {package} was imported"):
        run(installed / "python", "-c", f"import {package}", folder=decoys)


@pytest.mark.parametrize("program", [("decodesim",), ("python", "-m", "decodesim")], ids=" ".join)
def test_the_command_works_among_decoys(installed: Path, decoys: Path, program: tuple[str, ...]) -> None:
    command = (installed / program[0], *program[1:])
    assert "Usage: decodesim" in run(*command, "--help", folder=decoys)
    answer = json.loads(run(*command, *MEMORY, folder=decoys))
    assert answer["fits"] is True
    # 8.03 billion parameters of two bytes: catalogue and data files came with the wheel.
    assert answer["per_gpu"]["weights_bytes"] == pytest.approx(2 * 8.03e9, rel=0.001)


def test_the_command_works_with_decoys_on_the_search_path(
    installed: Path, decoys: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    answer = run(installed / "decodesim", *MEMORY, folder=elsewhere, PYTHONPATH=str(decoys))
    assert json.loads(answer)["fits"] is True


LIBRARY = """
import sys, decodesim
heavy = {"numpy", "numba", "pydantic", "scipy"} & set(sys.modules)
scenario = decodesim.load({
    "target": {"model": "llama-3.1-8b-instruct"},
    "hardware": {"gpu": "h100-sxm"},
    "workload": {"arrivals": {"kind": "closed", "concurrency": 8}},
})
import dashboards.report, simulator
print(heavy, decodesim.__version__, decodesim.memory(scenario).fits, simulator.__file__)
"""


def test_the_library_works_among_decoys(installed: Path, decoys: Path) -> None:
    """As in a notebook, where the current folder comes first in the search path. The import is light."""
    heavy, version, fits, place = run(installed / "python", "-c", LIBRARY, folder=decoys).split()
    assert (heavy, fits) == ("set()", "True")
    assert f"decodesim, version {version}\n" == run(installed / "decodesim", "--version", folder=decoys)
    assert Path(place).is_relative_to(installed.parent)


CALLS = """
import json, decodesim, experiments.api as api
print(json.dumps({name: getattr(decodesim, name) is getattr(api, name) for name in decodesim.__all__}))
"""


def test_the_library_has_every_call(installed: Path, tmp_path: Path) -> None:
    result = json.loads(run(installed / "python", "-c", CALLS, folder=tmp_path))
    assert result == dict.fromkeys(api.__all__, True)


@pytest.mark.parametrize(
    "where", [("--workers", "2"), ("--workers", "2", "--dask", "local")], ids=["processes", "dask"]
)
def test_workers_of_the_command_import_the_installed_packages(
    installed: Path, study: Path, where: tuple[str, ...]
) -> None:
    command = (installed / "python", "-m", "decodesim", "sweep", study.name, "--json", *where)
    answer = json.loads(run(*command, folder=study.parent))
    assert (answer["cells"], answer["does_not_fit"], answer["failed"]) == (2, 2, 0)


SWEEP = """
import decodesim
standing = decodesim.sweep("small.study.yaml", "small.db", workers=2)
print(standing.cells, standing.does_not_fit, standing.failed)
"""


def test_workers_of_a_notebook_import_the_installed_packages(installed: Path, study: Path) -> None:
    """A notebook is no module that its workers could import again, and neither is what `-c` runs."""
    assert run(installed / "python", "-c", SWEEP, folder=study.parent).split() == ["2", "2", "0"]


def test_a_package_of_the_users_own_is_not_mixed_with_ours(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    for name in ("__init__", "mine"):
        (tmp_path / "experiments" / f"{name}.py").touch()
    python = installed / "python"
    run(python, "-c", "import experiments.mine", folder=tmp_path)
    with pytest.raises(AssertionError, match="'experiments' is already imported from "):
        run(python, "-c", "import experiments, decodesim", folder=tmp_path)
    with pytest.raises(AssertionError, match=r"No module named 'experiments\.mine': decodesim was imported"):
        run(python, "-c", "import decodesim, experiments.mine", folder=tmp_path)
