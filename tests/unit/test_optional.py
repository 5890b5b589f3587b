"""A missing optional dependency is one line that says what to install."""

import json
import sys
from pathlib import Path

import pytest

from calibration.optional import need
from simulator.errors import InputError


def test_what_is_there_is_returned() -> None:
    assert need("json", "lm") is json


def test_what_is_missing_names_its_extra() -> None:
    with pytest.raises(InputError) as error:
        need("no_such_module", "lm")
    assert str(error.value) == "no_such_module is not installed, pip install 'decodesim[lm]'"


def test_torch_on_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"PyTorch's CPU index first.*decodesim\[calibration\]"):
        need("torch", "calibration")


def test_a_broken_install_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import what_it_needs\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        InputError, match="half_installed cannot be imported: No module named 'what_it_needs'"
    ):
        need("half_installed", "lm")
