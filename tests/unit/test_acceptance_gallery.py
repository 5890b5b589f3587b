"""The tables of the gallery, from rows whose acceptance is known."""

from __future__ import annotations

import pytest

from calibration.acceptance.gallery import (
    alpha_curves,
    alpha_table,
    best_length_table,
    chosen,
    length_curves,
    length_table,
    read,
)
from simulator.theory import best_draft_length, leviathan_gain
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
        assert curve.halves == pytest.approx((0.01, 0.01, 0.01))
    assert alpha_table(curves).rows[1][:4] == ["layer-skip", "code", "drawn", "0.80 ± 0.01"]


def test_both_theories_describe_acceptance_without_memory() -> None:
    (curve,) = length_curves(SCAN, "layer-skip")
    measured = [one["value"] for one in curve.measured]
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
    assert chosen(SCAN, draft_length=3, domain="prose") == []


def test_what_is_not_measured_is_none() -> None:
    assert read(ROOT / "calibration" / "no-such-file.json") is None
