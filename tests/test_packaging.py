"""The wheel holds everything, and its command imports what it installed, wherever it is run."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.shared_data import ROOT

PACKAGES = ("simulator", "calibration", "experiments", "dashboards")


def run(*command: str | Path, folder: Path) -> str:
    """Run a command in a folder, without this run's settings of Python; return what it prints on stdout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
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


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
        licences = {name.rpartition("/")[2] for name in archive.namelist() if "/licenses/" in name}
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and (path.suffix != ".md" or "data" in path.parts)
    }
    assert files == expected
    assert licences == {"LICENSE", "NOTICE"}


def test_the_decoys_are_decoys(installed: Path, decoys: Path) -> None:
    code = "import simulator"
    with pytest.raises(AssertionError, match="the decoy simulator was imported"):
        run(installed / "python", "-c", code, folder=decoys)


def test_the_installed_command_imports_the_installed_packages(installed: Path, decoys: Path) -> None:
    assert "Usage: decodesim" in run(installed / "decodesim", "--help", folder=decoys)


def test_the_installed_command_works_among_decoys(installed: Path, decoys: Path) -> None:
    flags = (
        "--model",
        "llama-3.1-8b-instruct",
        "--gpu",
        "h100-sxm",
        "--tp",
        "1",
        "--concurrency",
        "8",
        "--json",
    )
    answer = json.loads(run(installed / "decodesim", "memory", *flags, folder=decoys))
    assert answer["fits"] is True
    # 8.03 billion parameters of two bytes: catalogue and data files came with the wheel.
    assert answer["per_gpu"]["weights_bytes"] == pytest.approx(2 * 8.03e9, rel=0.001)
