"""docs/closure.md says what its figures say: three runs in a row, every target met in each."""

from __future__ import annotations

import importlib
import json
import sys
from types import ModuleType

import pytest

from tests.shared_data import ROOT


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """docs/closed_loop.py, which finds what it needs beside it."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module("closed_loop")
    finally:
        sys.path.remove(str(ROOT / "docs"))


def test_every_block_of_the_page_is_that_of_its_figures(maker: ModuleType) -> None:
    runs = json.loads(maker.FIGURES.read_text("utf-8"))["runs"]
    text = maker.PAGE.read_text("utf-8")
    assert maker.with_blocks(text, maker.blocks_of(runs)) == text


def test_three_runs_in_a_row_met_every_target(maker: ModuleType) -> None:
    runs = json.loads(maker.FIGURES.read_text("utf-8"))["runs"]
    assert len(runs) >= 3
    for run in runs:
        assert run["busy"] is None
        assert all(target["met"] for target in run["summary"]["targets"])
        assert run["seconds_s"] < 600
