"""Definitions of the metrics on figures that were worked out by hand."""

import math

import numpy as np
import pytest

from simulator.results import metrics


def test_tpot_leaves_out_the_first_token_and_needs_two() -> None:
    second = 1_000_000_000
    values = metrics.tpot_s(
        np.array([second, second, second]), np.array([3 * second, second, second]), np.array([5, 1, 0])
    )
    assert values[0] == 0.5
    assert np.isnan(values[1:]).all()


def test_elapsed_is_nan_where_something_did_not_happen() -> None:
    values = metrics.elapsed_s(np.array([0, 0]), np.array([1500, -1]), np.array([True, False]))
    assert values[0] == 1.5e-6
    assert math.isnan(values[1])


@pytest.mark.parametrize(
    ("statistic", "needed"),
    [("mean", 1), ("p50", 20), ("p90", 100), ("p95", 200), ("p99", 1000), ("p999", 10_000)],
)
def test_a_percentile_needs_ten_samples_beyond_it(statistic: str, needed: int) -> None:
    assert metrics.samples_needed(statistic) == needed
    assert not math.isnan(metrics.statistics(np.arange(float(needed)))[statistic])
    if needed > 1:
        assert math.isnan(metrics.statistics(np.arange(float(needed - 1)))[statistic])


def test_statistics_skip_what_is_not_a_sample() -> None:
    preset = metrics.statistics(np.array([1.0, math.nan, 3.0] * 10))
    assert preset["mean"] == 2
    assert preset["p50"] == 2
    assert all(math.isnan(value) for value in metrics.statistics(np.array([math.nan])).values())


def test_percentiles_from_a_histogram_are_within_a_bin_of_the_exact_ones() -> None:
    samples = np.random.default_rng(3).lognormal(-4, 1, size=50_000)
    edges = np.array(1e-6 * 1.001 ** np.arange(20_000), dtype=np.float64)
    counts = np.histogram(samples, edges)[0]
    result = metrics.histogram_statistics(counts, edges, float(samples.mean()))
    exact = metrics.statistics(samples)
    assert result["mean"] == exact["mean"]
    for name in metrics.QUANTILE:
        assert result[name] == pytest.approx(exact[name], rel=2e-3)


def test_histogram_percentile_of_one_bin_lies_inside_it_and_empty_has_none() -> None:
    edges = np.array([1.0, 2.0, 3.0])
    result = metrics.histogram_statistics(np.array([0, 100]), edges, 2.5)
    assert result["p50"] == 2.5
    assert result["p90"] == pytest.approx(2.9)
    assert math.isnan(result["p99"])
    assert all(
        math.isnan(v) for v in metrics.histogram_statistics(np.array([0, 0]), edges, math.nan).values()
    )


def test_acceptance_figures_of_the_published_example() -> None:
    """Marginals .72 .51 .34 give an acceptance length of 2.57 and a rate of 52.3 %."""
    rounds_by_accepted = np.array([28, 21, 17, 34])
    rates = metrics.acceptance_rates_at(rounds_by_accepted, 100)
    assert rates == pytest.approx([0.72, 0.51, 0.34])
    accepted = metrics.accepted_from_counts(rounds_by_accepted)
    assert accepted == 157
    assert metrics.mean_acceptance_length(accepted, 100) == pytest.approx(2.57)
    assert metrics.mean_acceptance_length(accepted, 100) == pytest.approx(1 + sum(rates))
    assert metrics.draft_acceptance_rate(accepted, 300) == pytest.approx(0.5233, abs=1e-4)
    assert metrics.conditional_acceptance(rates) == pytest.approx([0.72, 0.51 / 0.72, 0.34 / 0.51])


def test_rounds_without_a_draft_do_not_dilute_the_acceptance_length() -> None:
    """60 of 100 rounds drafted and accepted 1 each: 2.0 tokens per drafted round, 1.6 per round."""
    assert metrics.mean_acceptance_length(60, 60) == 2
    assert metrics.draft_coverage(60, 100) * (
        metrics.mean_acceptance_length(60, 60) - 1
    ) + 1 == pytest.approx(1.6)
    rates = metrics.acceptance_rates_at(np.array([40, 60]), 60)
    assert rates == [1.0]


def test_what_has_no_sample_is_nan_not_zero() -> None:
    for value in (
        metrics.mean_acceptance_length(0, 0),
        metrics.draft_acceptance_rate(0, 0),
        metrics.share(0, 0),
    ):
        assert math.isnan(value)
    assert all(math.isnan(rate) for rate in metrics.acceptance_rates_at(np.array([5, 0]), 0))
    assert math.isnan(metrics.conditional_acceptance([0.0, 0.0])[1])
    assert metrics.acceptance_rates_at(np.array([5]), 0) == []
    assert metrics.conditional_acceptance([]) == []


def test_limits_hold_for_each_request_and_one_token_has_no_tpot_to_fail() -> None:
    nan = math.nan
    limits = {"ttft_p99_s": 1.0, "tpot_p99_s": 0.02, "itl_p99_s": 0.2}
    ttft, tpot = np.array([0.5, 1.5, 0.5, nan]), np.array([0.01, 0.03, nan, nan])
    assert metrics.meets_limits(limits, "ttft_s", ttft).tolist() == [True, False, True, False]
    assert metrics.meets_limits(limits, "tpot_s", tpot).tolist() == [True, False, True, True]
    assert metrics.meets_limits(limits, "worst_gap_s", np.array([0.1, 0.3, nan])).tolist() == [
        True,
        False,
        False,
    ]
    assert metrics.meets_limits(limits, "e2e_s", ttft).all(), "nothing limits it"
    with pytest.raises(ValueError, match="no known metric"):
        metrics.meets_limits({"speed_p99_s": 1.0}, "ttft_s", ttft)
