"""The committed results of distillation, and the page that is written from them."""

from __future__ import annotations

import runpy
from typing import Any

import pytest

from simulator.results.estimate import Estimate
from tests.shared_data import ROOT

TABLES = runpy.run_path(str(ROOT / "docs" / "distillation_tables.py"))


def test_the_page_is_what_its_generator_writes() -> None:
    page = TABLES["PAGE"].read_text(encoding="utf-8")
    assert TABLES["written"](page, TABLES["committed"]()) == page


def test_the_sentence_names_who_does_not_beat_layer_skip() -> None:
    def of(mean: float) -> dict[str, Any]:
        samples = [mean - 0.01, mean, mean + 0.01]
        held_out = {"digest": "x", "domains": ["code"] * 3}
        alpha = Estimate(mean, (mean - 0.02, mean + 0.02)).to_json()
        low = {"samples": [0.1, 0.1, 0.1]}
        final = {"samples": samples, "alpha": alpha}
        return {"held_out": held_out, "final": final, "random_initialisation": low}

    verdict = TABLES["verdict"]
    assert "Every one beats layer-skip" in verdict({"good": of(0.6)}, of(0.5))
    text = verdict({"good": of(0.6), "equal": of(0.5), "bad": of(0.1)}, of(0.5))
    assert "No better than random weights: bad." in text
    assert "beyond the interval: equal, bad." in text
    with pytest.raises(AssertionError, match="different text"):
        verdict({"other": of(0.6) | {"held_out": {"digest": "y", "domains": ["code"] * 3}}}, of(0.5))
