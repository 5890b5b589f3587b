"""docs/break-even-map.md says what its figures say, and they are those of the example study."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dashboards.stored import StoredStudy
from experiments.study.load import load_study
from tests.shared_data import ROOT
from tests.stored_studies import break_even_study

STUDY = ROOT / "examples" / "break-even-map-70b.study.yaml"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """docs/break_even_map.py, which finds its tables beside it."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module("break_even_map")
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def stored(maker: ModuleType) -> StoredStudy:
    """The figures that the page rests on."""
    result = maker.read_figures()
    assert isinstance(result, StoredStudy)
    return result


def test_every_table_of_the_page_is_that_of_its_figures(maker: ModuleType, stored: StoredStudy) -> None:
    text = maker.PAGE.read_text(encoding="utf-8")
    assert maker.with_blocks(text, maker.blocks_of(stored)) == text


def test_the_figures_are_those_of_the_study_of_the_examples(stored: StoredStudy) -> None:
    study = load_study(STUDY)
    document = study.document
    assert stored.study["axes"] == document["axes"]
    assert stored.study["keep"] == list(document["keep"])
    assert stored.study["scenario"]["speculation"] == document["scenario"]["speculation"]
    points = 1
    for group in study.groups:
        points *= len(study.axes[group[0]].values)
    assert len(stored.rows) == points == sum(stored.counts.values())


def test_the_picture_is_there_and_small(maker: ModuleType) -> None:
    data = maker.PICTURE.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert 20_000 < len(data) < 300_000


def test_what_is_kept_of_a_store_says_the_same(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "FIGURES", tmp_path / "figures.json")
    study = break_even_study()
    maker.write_figures(study)
    again = maker.read_figures()
    assert again.map.axes == study.map.axes
    for cell, restored in zip(study.map.cells, again.map.cells, strict=True):
        assert (cell.variant, cell.draft_length, cell.load, cell.place) == (
            restored.variant, restored.draft_length, restored.load, restored.place,
        )  # fmt: skip
        assert restored.outcome == cell.outcome
        for end in (None, 0, 1):
            needs = cell.required_alpha(end)
            assert restored.required_alpha(end) == (None if needs is None else pytest.approx(needs, rel=1e-3))
        assert restored.speedups.keys() == cell.speedups.keys()
