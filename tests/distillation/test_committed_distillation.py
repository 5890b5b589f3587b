"""The committed results of distillation."""

from __future__ import annotations

import json
import runpy
from typing import Any

import pytest

from tests.shared_data import ROOT

TABLES = runpy.run_path(str(ROOT / "docs" / "distillation_tables.py"))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return json.loads(TABLES["DATA"].read_text())  # type: ignore[no-any-return]


def test_learning_raises_alpha(document: dict[str, Any]) -> None:
    """Every drafter that has learned to the end beats its random weights beyond the interval, and every run
    has left its beginning behind.
    """
    for name, run in document["runs"].items():
        if run["complete"]:
            assert TABLES["against_random"](run).ci95[0] > 0, name
        first, last = run["curve"][0]["alpha"], run["curve"][-1]["alpha"]
        assert last["ci95"][0] > first["ci95"][1], name
