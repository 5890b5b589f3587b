"""Where the warm-up ends: cuts of series made by hand, what replications must agree on, and real runs."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.numerics.arrays import Floats
from simulator.results.warm_up import BATCH_REQUESTS, measured_requests, mser_cut, stays_s, steadiness
from simulator.simulation import simulate
from simulator.traffic.streams import stream
from tests.records import record_of_requests
from tests.runs import small_scenario


def noise(count: int, seed: int = 0) -> Floats:
    return stream(seed, "test of warm-up").normal(10.0, 1.0, count)


@pytest.mark.parametrize("transient", [20, 60, 120])
def test_the_cut_lies_where_a_transient_ends(transient: int) -> None:
    series = noise(400)
    series[:transient] += np.linspace(12, 4, transient)
    cut = mser_cut(series)
    assert cut is not None
    assert transient <= cut <= transient + 10


def test_a_steady_series_loses_nothing_that_counts() -> None:
    assert all((mser_cut(noise(400, seed)) or 0) <= 40 for seed in range(20))
    assert mser_cut(np.full(100, 3.7)) == 0  # lock step: no rounding error is a transient


def test_a_series_that_has_not_settled_has_no_cut() -> None:
    assert mser_cut(np.linspace(0, 100, 200) + noise(200)) is None


def test_a_cut_beyond_the_rule_counts_where_replications_agree() -> None:
    measured = (20 * BATCH_REQUESTS, 200 * BATCH_REQUESTS)
    slow_start = [noise(200, seed) + np.where(np.arange(200) < 50, 8.0, 0.0) for seed in range(5)]
    result = steadiness(slow_start, measured)
    assert result.too_short is None
    assert 50 * BATCH_REQUESTS <= result.warm_up <= 55 * BATCH_REQUESTS
    chance = [noise(200, seed) for seed in range(5)]
    chance[2][:50] += 40.0  # one replication began with a busy spell
    proposed = mser_cut(np.mean(chance, axis=0))
    assert proposed is not None
    assert 50 <= proposed <= 55
    assert steadiness(chance, measured).warm_up == 0


def test_runs_that_are_too_short_say_so() -> None:
    measured = (10 * BATCH_REQUESTS, 200 * BATCH_REQUESTS)
    rising = [np.linspace(0, 50, 200) + noise(200, seed) for seed in range(5)]
    assert steadiness(rising, measured).too_short == "runs are not steady when they end"
    spells = [np.repeat(noise(20, seed), 10) + noise(200, seed + 50) / 5 for seed in range(5)]
    wandering = [np.cumsum(run - run.mean()) for run in spells]
    assert "twentieths correlate" in (steadiness(wandering, measured).too_short or "")
    assert "do not show" in (steadiness([noise(10)] * 5, (10, 50)).too_short or "")
    assert steadiness([noise(200, seed) for seed in range(5)], measured).too_short is None


def test_stays_are_taken_at_equal_length() -> None:
    """Requests of 1 to 10 tokens, a token every ms: all that they stay is explained by their lengths."""
    tokens = [1 + r % 10 for r in range(50)]
    starts = [100.0 * r for r in range(50)]
    record = record_of_requests(starts, [x + 1 for x in starts], [[(1.0, 1)] * (n - 1) for n in tokens])
    assert stays_s(record) == pytest.approx(np.full(10, np.mean(tokens) * 1e-3))


def test_the_rule_is_the_least() -> None:
    closed = small_scenario({"workload.arrivals.concurrency": 8})
    assert measured_requests(closed, 400) == (40, 392)
    assert measured_requests(closed, 400, 25) == (40, 392)
    assert measured_requests(closed, 400, 90) == (90, 392)
    assert measured_requests(closed, 400, 390) == (200, 392)
    burst = small_scenario({"workload.arrivals": {"kind": "burst"}})
    assert measured_requests(burst, 400, 90) == (0, 400)


FILLING = {
    "workload.arrivals": {"kind": "poisson", "rate_per_s": 8.0},
    "workload.output_tokens.tokens": 1500,
    "engine.max_num_seqs": 256,
    "workload.requests": 400,
    "run.replications": 3,
}
"""A request stays for ten seconds and more, so that a hundred come before the batch has grown."""


def test_a_system_that_fills_slowly_is_measured_when_it_is_full() -> None:
    scenario = small_scenario(FILLING)
    result = simulate(scenario, keep_requests=False)
    usual = measured_requests(scenario, 400)[0]
    first, _ = result.provenance.measured_requests or (0, 0)
    assert usual == 40 < 80 < first
    served = result.variants["plain"]["throughput_tokens_per_s"]
    assert served is not None
    assert abs(served.value / (8.0 * 1500) - 1) < 3 * served.relative_half_width
    assert any("are warm-up, as the runs show (usual: 40)" in note for note in result.notes)


def test_both_drivers_find_the_same_warm_up() -> None:
    quick, slow = (
        simulate(
            small_scenario(
                {
                    **FILLING,
                    "workload.requests": 110,
                    "workload.output_tokens.tokens": 200,
                    "run.backend": backend,
                }
            )
        ).to_json()
        for backend in ("auto", "pipeline")
    )
    assert quick["arms"] == slow["arms"]
    assert quick["provenance"]["measured_requests"] == slow["provenance"]["measured_requests"]
