"""Intervals: Student t, ratios paired by replication, and the cost model's band on top."""

import math

import numpy as np
import pytest

from simulator.errors import InputError
from simulator.results.estimate import Estimate, estimate_from_json, mean_estimate, paired_ratio, student_t95


def test_student_t_quantiles_are_those_of_the_printed_table() -> None:
    assert [round(student_t95(df), 3) for df in (1, 2, 4, 10, 30)] == [12.706, 4.303, 2.776, 2.228, 2.042]


def test_interval_of_five_known_samples() -> None:
    """1…5: mean 3, sd √2.5, standard error √0.5, t(4) = 2.776."""
    estimate = mean_estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert estimate is not None
    assert estimate.ci95 is not None
    assert estimate.value == 3
    assert estimate.half_width == pytest.approx(2.7764451 * math.sqrt(0.5))
    assert estimate.relative_half_width == pytest.approx(estimate.half_width / 3)
    assert estimate.band == estimate.ci95, "no model error was given yet"


def test_interval_covers_the_truth_about_95_times_in_100() -> None:
    rng = np.random.default_rng(1)
    runs = 4000
    hits = 0
    for sample in rng.normal(10, 2, size=(runs, 5)):
        estimate = mean_estimate(sample.tolist())
        assert estimate is not None
        assert estimate.ci95 is not None
        hits += estimate.ci95[0] <= 10 <= estimate.ci95[1]
    assert hits / runs == pytest.approx(0.95, abs=3 * math.sqrt(0.95 * 0.05 / runs))


def test_one_replication_has_a_value_and_no_interval() -> None:
    estimate = mean_estimate([7.0])
    assert estimate == Estimate(7.0)
    assert estimate is not None
    assert estimate.with_model_range(6, 8).band is None
    assert estimate.half_width == math.inf
    assert estimate.to_json() == {"value": 7.0, "ci95": None, "band": None}


def test_a_figure_that_one_replication_lacks_is_not_averaged_over_the_others() -> None:
    assert mean_estimate([1.0, math.nan, 1.0]) is None
    assert mean_estimate([]) is None
    assert paired_ratio([1.0, math.nan], [1.0, 1.0]) is None
    assert paired_ratio([1.0, 1.0], [0.0, 1.0]) is None


def test_pairing_removes_the_luck_that_both_share() -> None:
    noise = [100.0, 140.0, 80.0, 120.0]
    speedup = paired_ratio([1.5 * x for x in noise], noise)
    assert speedup is not None
    assert speedup.value == pytest.approx(1.5)
    assert speedup.half_width == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="paired"):
        paired_ratio([1.0], [1.0, 2.0])


def test_ratio_the_other_way_round_is_the_inverse() -> None:
    a, b = [3.0, 4.0, 6.0], [2.0, 2.5, 2.0]
    there, back = paired_ratio(a, b), paired_ratio(b, a)
    assert there is not None
    assert back is not None
    assert there.ci95 is not None
    assert back.ci95 is not None
    assert there.value * back.value == pytest.approx(1)
    assert there.ci95[0] * back.ci95[1] == pytest.approx(1)


def test_band_adds_the_model_error_in_quadrature_on_each_side() -> None:
    estimate = Estimate(10.0, (7.0, 13.0), (7.0, 13.0)).with_model_range(14.0, 6.0)
    assert estimate.ci95 == (7.0, 13.0)
    assert estimate.band == (5.0, 15.0)
    one_sided = Estimate(10.0, (7.0, 13.0)).with_model_range(10.0, 14.0)
    assert one_sided.band == (7.0, 15.0)


def test_clipping_holds_value_and_intervals_within_what_is_possible() -> None:
    assert Estimate(0.9, (0.8, 1.1), (0.4, 1.3)).clipped(0, 1) == Estimate(0.9, (0.8, 1.0), (0.4, 1.0))


def test_json_round_trip_and_refusal() -> None:
    estimate = Estimate(1.42, (1.40, 1.44), (1.33, 1.51))
    assert estimate_from_json(estimate.to_json()) == estimate
    none = {"ci95": None, "band": None}
    for wrong in ({"value": 1.0}, {"value": "x", **none}, {"value": 1, **none, "ci95": [2]}):
        with pytest.raises(InputError, match="not an estimate"):
            estimate_from_json(wrong)


def test_an_estimate_with_nan_or_a_reversed_interval_is_refused() -> None:
    for wrong in ((math.nan, None), (1.0, (2.0, 1.0)), (1.0, (0.0, math.inf))):
        with pytest.raises(ValueError, match="finite"):
            Estimate(wrong[0], wrong[1])


def test_the_tabled_quantiles_are_those_of_scipy() -> None:
    from scipy.special import stdtrit

    for degrees_of_freedom in (*range(1, 31), 31, 100):
        assert student_t95(degrees_of_freedom) == pytest.approx(
            float(stdtrit(degrees_of_freedom, 0.975)), rel=1e-12
        )
