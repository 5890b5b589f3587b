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


def test_every_run_is_done(document: dict[str, Any]) -> None:
    """The student over two million tokens, each kind of head, the ablation, and EAGLE on one domain."""
    assert all(run["complete"] for run in document["runs"].values())
    kinds = {run["plan"]["kind"] for run in document["runs"].values()}
    assert kinds >= {"student", "eagle", "eagle3", "medusa", "mtp", "eagle code-only", "eagle prose-only"}


def test_a_head_does_better_where_it_has_learned(document: dict[str, Any]) -> None:
    """Of two heads, one that learned from code and one that learned from prose, beyond the interval."""
    code, prose = (
        next(run for run in document["runs"].values() if run["plan"]["kind"] == f"eagle {name}-only")
        for name in ("code", "prose")
    )
    assert TABLES["difference"](code, prose, "code").ci95[0] > 0
    assert TABLES["difference"](prose, code, "prose").ci95[0] > 0
