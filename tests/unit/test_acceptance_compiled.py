"""Acceptance compiled to tables: grids of effects, classes, gates, traces."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.acceptance import (
    GATED,
    TABLE,
    TRACE,
    Gated,
    Geometric,
    Hierarchical,
    ReplayedAcceptance,
    compile_acceptance,
)
from simulator.acceptance.base import logistic
from simulator.acceptance.tables import normal_quantiles
from simulator.errors import InputError
from tests.acceptance_reference import Traffic, one_class, tables_of

# Tables


def test_the_effect_grid_is_fine_enough() -> None:
    """c_j at any effect is within 1/1000 of its bin's threshold."""
    model = Hierarchical.from_alpha(0.7, 0.3, request_sd=1.0, drift_sd=0.7, drift_correlation=0.9)
    tables = tables_of(model, 1, 0, 4)
    reach = 5.5 * math.hypot(1.0, 0.7)
    effects = np.linspace(-reach, reach, 20_001)
    rows = ((effects - tables.effect_low) * tables.effect_bins_per_unit).astype(int)
    assert rows.min() >= 0
    assert rows.max() < tables.conditional.shape[1]
    assert np.abs(tables.conditional[0, rows] - model.conditional_at(effects, 4)).max() < 1e-3


def test_the_normal_levels_keep_the_population() -> None:
    """1,024 levels in place of a normal move S_1 by less than 1e-5, at the worst correlation (none)."""
    levels = normal_quantiles()
    assert float(levels @ levels) / 1024 == pytest.approx(1.0, abs=1e-12)
    assert levels.tolist() == pytest.approx((-levels[::-1]).tolist())
    for sd in (0.5, 1.5, 3.0):
        model = Hierarchical.from_alpha(0.7, drift_sd=sd)
        drawn = float(logistic(model.mu + sd * levels).mean())
        assert drawn == pytest.approx(model.survival(1)[0], abs=1e-5)


def _two_classes(requests: int = 1000) -> Traffic:
    """70 % of the requests chat with 200 tokens, 30 % code with 400."""
    classes = np.array([0] * 7 + [1] * 3, dtype=np.int32).repeat(requests // 10)
    return Traffic(classes, np.where(classes == 0, 200, 400).astype(np.int64))


def test_classes_keep_their_own_thresholds() -> None:
    tables = compile_acceptance([Geometric(0.7), Geometric(0.4)], _two_classes(), 0, 2)
    assert tables.kind == TABLE
    assert tables.conditional.tolist() == [[[0.7, 0.7]], [[0.4, 0.4]]]
    assert not tables.request_effect.any()


def test_without_heterogeneity_classes_are_blended_by_their_tokens() -> None:
    """Tokens 7 × 200 : 3 × 400; S_j is the blend, not c_j."""
    tables = compile_acceptance([Geometric(0.7), Geometric(0.4)], _two_classes(), 0, 2, heterogeneity=False)
    share = 1400 / 2600
    first = share * 0.7 + (1 - share) * 0.4
    second = (share * 0.49 + (1 - share) * 0.16) / first
    for row in tables.conditional[:, 0, :]:
        assert row == pytest.approx([first, second])


def test_a_class_that_does_not_draft_has_no_part_in_the_blend() -> None:
    tables = compile_acceptance(
        [Geometric(0.7), None], _two_classes(), 0, 2, False, class_drafts=[True, False]
    )
    assert tables.drafts.tolist() == [True, False]
    assert tables.conditional[0, 0] == pytest.approx([0.7, 0.7])
    with pytest.raises(InputError, match="missing for a class that drafts"):
        compile_acceptance([Geometric(0.7), None], _two_classes(), 0, 2)
    without_drafts = compile_acceptance(
        [None, None], _two_classes(), 0, 2, False, class_drafts=[False, False]
    )
    assert not without_drafts.conditional.any()


def test_classes_may_spread_differently() -> None:
    models = [
        Hierarchical.from_alpha(0.7, request_sd=0.5),
        Hierarchical.from_alpha(0.4, request_sd=2.0),
        Geometric(0.5),
    ]
    classes = np.arange(900, dtype=np.int32) % 3
    tables = compile_acceptance(models, Traffic(classes, np.full(900, 100)), 0, 2)
    deviations = [tables.request_effect[classes == index].std() for index in range(3)]
    assert deviations[0] == pytest.approx(0.5, rel=0.15)
    assert deviations[1] == pytest.approx(2.0, rel=0.15)
    assert deviations[2] == 0.0
    assert (tables.conditional[2] == 0.5).all()


def test_a_table_class_beside_a_gated_one_always_has_a_match() -> None:
    tables = compile_acceptance([Gated(0.3, 0.5, 0.5, 0.9), Geometric(0.6)], _two_classes(), 0, 2)
    assert tables.kind == GATED
    assert tables.match_after_miss.tolist() == pytest.approx([0.15, 1.0])
    assert tables.match_after_match.tolist() == pytest.approx([0.65, 1.0])
    assert tables.matched_before[700:].all()
    assert tables.matched_before[:700].mean() == pytest.approx(0.3, abs=3 * math.sqrt(0.21 / 700))


def test_requests_that_differ_have_matches_of_their_own() -> None:
    """Among requests that all match as often, and beside a class whose drafts need no match."""
    models = [Gated(0.3, 0.5, 0.5, 0.9, request_sd=1.0), Geometric(0.6)]
    tables = compile_acceptance(models, _two_classes(), 0, 2)
    assert tables.match_by_request
    often = models[0].match_at(tables.request_effect[:700])
    assert tables.match_after_miss[:700].tolist() == often.after_miss.tolist()
    assert tables.match_after_match[:700].tolist() == often.after_match.tolist()
    assert often.stationary.std() > 0.1
    assert set(tables.match_after_miss[700:]) == set(tables.match_after_match[700:]) == {1.0}
    assert tables.matched_before[:700].mean() == pytest.approx(0.3, abs=3 * math.sqrt(0.21 / 700))
    assert not compile_acceptance([Gated(0.3, 0.5, 0.5, 0.9)], one_class(9), 0, 2).match_by_request


def test_requests_that_differ_in_matches_go_with_drifts_of_another_class() -> None:
    drifting = Hierarchical.from_alpha(0.6, drift_sd=0.5, drift_correlation=0.9)
    tables = compile_acceptance([Gated(0.3, 0.0, 0.5, 0.9, request_sd=1.0), drifting], _two_classes(), 0, 2)
    assert (tables.kind, tables.drift_sd) == (GATED, 0.5)
    assert np.ptp(tables.conditional[0], axis=0).tolist() == [0.0, 0.0]


def test_gated_classes_blend_behind_one_gate() -> None:
    models = [Gated(0.3, 0.5, 0.5, 0.9), Gated(0.1, 0.0, 0.8, 0.8)]
    tables = compile_acceptance(models, _two_classes(), 0, 3, heterogeneity=False)
    share = 1400 / 2600
    survival = share * models[0].survival(3) + (1 - share) * models[1].survival(3)
    assert tables.match_after_miss.tolist() == tables.match_after_match.tolist()
    assert tables.match_after_miss[0] * np.cumprod(tables.conditional[1, 0]) == pytest.approx(survival)


def test_what_one_variant_cannot_hold_together_is_refused() -> None:
    trace, other = ReplayedAcceptance(((1, 2),)), ReplayedAcceptance(((2, 2),))
    for models in ([trace, Geometric(0.5)], [trace, other]):
        with pytest.raises(InputError, match="mixes a trace"):
            compile_acceptance(models, _two_classes(), 0, 2)
    assert compile_acceptance([trace, trace], _two_classes(), 0, 2).kind == TRACE
    drifts = [Hierarchical.from_alpha(0.5, drift_sd=sd, drift_correlation=0.5) for sd in (0.5, 0.6)]
    with pytest.raises(InputError, match="different drifts"):
        compile_acceptance(drifts, _two_classes(), 0, 2)


def test_a_trace_is_laid_out_end_to_end() -> None:
    tables = tables_of(ReplayedAcceptance(((1, 3), (2, 2, 5))), 4, 0, 3)
    assert tables.kind == TRACE
    assert tables.trace_lengths.tolist() == [1, 3, 2, 2, 5]
    assert tables.trace_start.tolist() == [0, 2, 5]


def test_a_plain_variant_compiles_too() -> None:
    assert tables_of(Geometric(0.5), 3, 0, 0).conditional.shape == (1, 1, 1)
