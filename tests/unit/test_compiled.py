"""Where machine code is kept: keyed by the source whatever the environment says, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numba
import pytest

from simulator.numerics import compiled
from tests.shared_data import ROOT

KEPT = compiled.kept_in


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test asks for itself, and leaves numba as it was."""
    before = numba.config.CACHE_DIR
    KEPT.cache_clear()
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    yield
    KEPT.cache_clear()
    numba.config.CACHE_DIR = before


@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
def test_the_folder_is_keyed_by_the_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    key = compiled.cache_folder().name
    monkeypatch.setenv(variable, str(tmp_path))
    cache_folder = compiled.kept_in()
    assert cache_folder is not None
    assert cache_folder.is_relative_to(tmp_path)
    assert cache_folder.name == key
    assert str(cache_folder) == numba.config.CACHE_DIR
    assert not compiled.is_compiled()
    (cache_folder / "step.nbi").touch()
    assert compiled.is_compiled()


def test_another_install_of_the_same_source_compiles_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = compiled.cache_folder().name
    (tmp_path / "simulator").symlink_to(ROOT / "simulator")
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "simulator/numerics/compiled.py"))
    assert compiled.cache_folder().name != key


def test_a_folder_that_cannot_be_made_keeps_nothing_beside_the_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert compiled.kept_in() is None
    assert not compiled.is_compiled()

    @compiled.compiled(entry=True)
    def double(x: int) -> int:
        return 2 * x

    assert double(21) == 42
    assert double.stats.cache_path is None  # type: ignore[attr-defined]
