"""Arrival processes against what renewal theory says of them, with tolerances from their standard errors."""

import json

import numpy as np
import pytest
from scipy import stats

from simulator.errors import InputError
from simulator.scenario.workload import Workload
from simulator.traffic.arrivals import draw_arrivals, rescale
from simulator.traffic.workload import generate
from tests.traffic_figures import describe

N = 40_000
ALPHA = 1e-4
"""Chance of a false alarm per statistical check."""


def arrivals(**fields):
    """The arrivals section with these fields."""
    return Workload.model_validate_json(json.dumps({"arrivals": fields})).arrivals


def gaps_s(**fields):
    """Inter-arrival times of N requests, the first one counted from time 0."""
    return np.diff(draw_arrivals(arrivals(**fields), 11, N), prepend=0) / 1e9


def test_poisson_gaps_are_exponential():
    gaps = gaps_s(kind="poisson", rate_per_s=8.0)
    assert stats.kstest(gaps, "expon", args=(0, 1 / 8)).pvalue > ALPHA
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 4 / np.sqrt(N)


def test_poisson_counts_vary_as_their_mean():
    times_s = np.cumsum(gaps_s(kind="poisson", rate_per_s=8.0))
    counts = np.histogram(times_s, np.arange(0, 4000))[0]
    dispersion = counts.var(ddof=1) / counts.mean()
    assert abs(dispersion - 1) < 4 * np.sqrt(2 / len(counts))


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.0])
def test_gamma_gaps_have_their_mean_and_spread(cv):
    gaps = gaps_s(kind="gamma", rate_per_s=5.0, cv=cv)
    shape = cv**-2
    assert stats.kstest(gaps, "gamma", args=(shape, 0, cv**2 / 5)).pvalue > ALPHA
    assert abs(gaps.mean() - 0.2) < 4 * 0.2 * cv / np.sqrt(N)
    # Variance of a sample variance: (kurtosis − 1) σ⁴ / n, where a gamma's kurtosis is 3 + 6 / shape.
    assert abs(gaps.var() / (0.2 * cv) ** 2 - 1) < 4 * np.sqrt((2 + 6 / shape) / N)


def test_gamma_of_cv_one_is_poisson():
    poisson = draw_arrivals(arrivals(kind="poisson", rate_per_s=5.0), 3, 1000)
    gamma = draw_arrivals(arrivals(kind="gamma", rate_per_s=5.0, cv=1.0), 3, 1000)
    assert (poisson == gamma).all()


def test_clients_who_pause_start_spread_over_their_pauses():
    """One round of a client holds its think time and the pauses between the turns of a session."""
    pausing = arrivals(kind="closed", concurrency=4, think_time_s=10.0)
    assert (draw_arrivals(pausing, 1, 6) / 1e9).tolist() == [0, 2.5, 5, 7.5, -1e-9, -1e-9]
    assert (draw_arrivals(pausing, 1, 3, turns=3, gap_s=5.0) / 1e9).tolist() == [0, 5, 10]
    assert (draw_arrivals(arrivals(kind="closed", concurrency=4), 1, 5) == [0, 0, 0, 0, -1]).all()


def test_clients_begin_evenly_over_the_ramp():
    ramping = arrivals(kind="closed", concurrency=4, ramp_s=2.0)
    assert (draw_arrivals(ramping, 1, 6) / 1e9).tolist() == [0, 0.5, 1.0, 1.5, -1e-9, -1e-9]
    longer = arrivals(kind="closed", concurrency=4, think_time_s=10.0, ramp_s=2.0)
    assert (draw_arrivals(longer, 1, 4) / 1e9).tolist() == [0, 2.5, 5, 7.5]


def test_vanishing_cv_is_evenly_spaced():
    times_ns = draw_arrivals(arrivals(kind="gamma", rate_per_s=4.0, cv=1e-300), 3, 100)
    # The smallest cv drawn is 1e-9: n gaps of 0.25 s spread by 0.25 √n ns, and rounding adds half a ns.
    steps = np.arange(1, 101)
    assert (np.abs(times_ns - steps * 250_000_000) <= 4 * 0.25 * np.sqrt(steps) + 0.5).all()


def test_a_wrong_process_fails_the_same_checks():
    bursty = gaps_s(kind="gamma", rate_per_s=8.0, cv=1.1)
    assert stats.kstest(bursty, "expon", args=(0, 1 / 8)).pvalue < ALPHA
    faster = gaps_s(kind="poisson", rate_per_s=8.5)
    assert stats.kstest(faster, "expon", args=(0, 1 / 8)).pvalue < ALPHA


def test_twice_the_rate_is_the_same_luck_at_half_the_times():
    slow = draw_arrivals(arrivals(kind="poisson", rate_per_s=2.0), 5, 100)
    fast = draw_arrivals(arrivals(kind="poisson", rate_per_s=4.0), 5, 100)
    assert np.abs(slow - 2 * fast).max() <= 1


def test_a_flat_profile_is_poisson():
    flat = draw_arrivals(arrivals(kind="profile", rates_per_s=[[0, 5.0], [10, 5.0]]), 3, 1000)
    assert np.abs(flat - draw_arrivals(arrivals(kind="poisson", rate_per_s=5.0), 3, 1000)).max() <= 1


def test_profile_counts_follow_its_rates():
    rates = [[0, 20.0], [100, 0.0], [200, 60.0], [300, 5.0]]
    times_s = draw_arrivals(arrivals(kind="profile", rates_per_s=rates), 7, 12_000) / 1e9
    counts = np.histogram(times_s, [0, 100, 200, 300, 500])[0]
    expected = np.array([2000, 0, 6000, 1000])
    assert counts[1] == 0
    assert (np.abs(counts - expected) <= 4 * np.sqrt(expected)).all()
    inside = times_s[(times_s >= 200) & (times_s < 300)]
    assert stats.kstest(inside, "uniform", args=(200, 100)).pvalue > ALPHA
    assert times_s[-1] > 500  # the last rate goes on: 3,000 more at 5 a second


def test_sessions_start_at_the_rate_of_requests_over_turns():
    """A rate counts requests, so a session of four starts a quarter as often, in every part of a profile."""
    turns, edges_s = 4, np.array([0, 200, 400])
    rates = {
        "poisson": {"rate_per_s": 30.0},
        "gamma": {"rate_per_s": 30.0, "cv": 1.0},
        "profile": {"rates_per_s": [[0, 40.0], [200, 20.0]]},
    }
    for kind, fields in rates.items():
        times_s = draw_arrivals(arrivals(kind=kind, **fields), 7, 5000, turns) / 1e9
        requests = [8000, 4000] if kind == "profile" else [6000, 6000]
        sessions = np.array(requests) / turns
        assert times_s[-1] > edges_s[-1]
        assert (np.abs(np.histogram(times_s, edges_s)[0] - sessions) <= 4 * np.sqrt(sessions)).all(), kind


def test_rescaling_inverts_the_integrated_rate():
    rates = [(0.0, 0.0), (2.0, 3.0), (4.0, 0.0), (9.0, 0.5)]
    unit_s = np.array([0.0, 1.5, 5.9, 6.0, 7.0])
    assert rescale(unit_s, rates).tolist() == [2.0, 2.5, 2 + 5.9 / 3, 9.0, 11.0]


def test_a_rate_that_ends_is_refused():
    with pytest.raises(InputError, match="the last rate lasts for ever"):
        rescale(np.array([1.0]), [(0.0, 1.0), (5.0, 0.0)])


@pytest.mark.parametrize("rate", [1e-12, 5e-324])
def test_arrivals_beyond_the_clock_are_refused(rate):
    with pytest.raises(InputError, match=r"workload\.arrivals: the last of 10 arrivals"):
        draw_arrivals(arrivals(kind="poisson", rate_per_s=rate), 1, 10)


def test_description_finds_rate_and_cv():
    fields = {"arrivals": {"kind": "gamma", "rate_per_s": 5.0, "cv": 2.0}, "requests": N}
    result = describe(generate(Workload.model_validate_json(json.dumps(fields)), 1))["arrivals"]
    assert abs(result["rate_per_s"] - 5) < 4 * 5 * 2 / np.sqrt(N)
    assert abs(result["cv"] - 2) < 4 * 2 * np.sqrt((2 + 6 * 4) / N)
