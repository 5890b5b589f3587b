"""The tables of the gallery, from rows whose acceptance is known."""

from __future__ import annotations

import importlib

import pytest

from calibration.acceptance import gallery
from calibration.acceptance.gallery import (
    alpha_curves,
    alpha_table,
    best_length_table,
    length_curves,
    length_table,
    quantised_table,
    read,
    select,
    too_long_table,
)
from simulator.breakeven.theory import best_draft_length, leviathan_gain
from tests.measured_rows import measured_row
from tests.shared_data import ROOT

SCAN = [measured_row(0.7, k) for k in range(1, 9)]
TEMPERATURES = [
    measured_row(0.8 - 0.2 * temperature, 4, temperature, how, domain=domain)
    for domain in ("code", "prose")
    for temperature in (0.0, 0.5, 1.0)
    for how in (("greedy",) if temperature == 0.0 else ("greedy", "sampled"))
]


def test_acceptance_by_temperature_starts_at_the_greedy_row() -> None:
    curves = alpha_curves([*SCAN[:3], *TEMPERATURES])
    assert [(curve.domain, curve.draft_sampling) for curve in curves] == [
        (domain, how) for domain in ("code", "prose") for how in ("greedy", "sampled")
    ]
    for curve in curves:
        assert curve.temperatures == (0.0, 0.5, 1.0)
        assert curve.alphas == pytest.approx((0.8, 0.7, 0.6))
        assert curve.half_widths == pytest.approx((0.01, 0.01, 0.01))
    assert alpha_table(curves).rows[1][:4] == ["layer-skip", "code", "drawn", "0.80 ± 0.01"]


def test_both_theories_describe_acceptance_without_memory() -> None:
    (curve,) = length_curves(SCAN, "layer-skip")
    measured = [estimate["value"] for estimate in curve.measured]
    assert curve.geometric == pytest.approx(measured)
    assert curve.positional == pytest.approx(measured)
    assert [row[0] for row in length_table([curve]).rows] == ["code, T = 0"] * 3


def test_the_best_length_is_the_theorys() -> None:
    curves = length_curves(SCAN, "layer-skip")
    table = best_length_table(curves)
    for title, cell in zip(table.columns[1:], table.rows[0][1:], strict=True):
        ratio = float(title.removeprefix("cost ratio "))
        best = best_draft_length(0.7, ratio, max=8)
        assert cell == f"{best} ({leviathan_gain(0.7, ratio, best):.2f} ×)"


def test_a_scan_without_its_first_length_is_no_curve() -> None:
    assert length_curves(SCAN[1:], "layer-skip") == []
    assert select(SCAN, draft_length=3, domain="prose") == []


def test_drafts_that_are_too_long_gain_nothing_and_cost() -> None:
    rows = [measured_row(0.6, k) for k in (4, 8, 12, 16)]
    shown = too_long_table(rows, "layer-skip")
    assert shown is not None
    lengths = [float(cell.partition(" ")[0]) for cell in shown.rows[0][2:]]
    speeds = [float(cell) for cell in shown.rows[-1][2:]]
    assert lengths == sorted(lengths)
    assert lengths[-1] - lengths[1] < 0.03
    assert speeds == sorted(speeds, reverse=True)
    assert too_long_table(rows[:1], "layer-skip") is None


def test_quantised_drafters_stand_by_bits() -> None:
    rows = [measured_row(0.1 * bits, 4, draft=f"quantised:{bits}") for bits in (8, 2, 4)]
    shown = quantised_table(rows)
    assert shown is not None
    assert [row[0] for row in shown.rows] == ["quantised, 2 bits", "quantised, 4 bits", "quantised, 8 bits"]
    assert shown.rows[0][2:] == ["0.20 ± 0.01", "–", "–"]
    assert quantised_table(SCAN) is None


def test_the_page_is_what_its_script_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    script = importlib.import_module("acceptance_gallery")
    rows = (read(gallery.ACCEPTANCE) or {"rows": []})["rows"]
    text = script.page(rows, read(gallery.TREES), read(gallery.TYPICAL))
    assert text == (ROOT / "docs" / "acceptance-gallery.md").read_text(encoding="utf-8")


def test_what_is_not_measured_is_none() -> None:
    assert read(ROOT / "calibration" / "no-such-file.json") is None
