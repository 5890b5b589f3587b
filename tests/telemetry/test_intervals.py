"""Intervals hold the truth as often as they claim: of independent rounds, and of rounds that are alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.telemetry.intervals import Intervals, binomial, bootstrap, intervals_of, wilson
from calibration.telemetry.reading import Counts, MeasuredAcceptance, RoundBlock

RUNS = 400


def counts_of(accepted: NDArray[np.int64], draft_length: int) -> Counts:
    """The counts of rounds by their accepted drafts."""
    at = tuple(float((accepted > place).sum()) for place in range(draft_length))
    return Counts(float(len(accepted)), float(accepted.sum()), float(draft_length * len(accepted)), at)


def rounds_of(
    alphas: NDArray[np.float64], draft_length: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Accepted drafts of one round per alpha."""
    survived = generator.random((len(alphas), draft_length)) < alphas[:, None]
    return np.cumprod(survived, axis=1).sum(axis=1)


def mean_length(alpha: float, draft_length: int) -> float:
    """1 + α + … + α^K."""
    return float(sum(alpha**place for place in range(draft_length + 1)))


def share_holding(samples_of_intervals: Sequence[Intervals], truth: float) -> float:
    """Share of intervals of the mean that hold the truth."""
    return float(
        np.mean(
            [interval.mean_length[0] <= truth <= interval.mean_length[1] for interval in samples_of_intervals]
        )
    )


@pytest.mark.parametrize("rounds", [30, 300])
@pytest.mark.parametrize("alpha", [0.2, 0.7, 0.95])
def test_intervals_from_counts_hold_the_mean_of_independent_rounds(rounds: int, alpha: float) -> None:
    generator = np.random.default_rng(rounds)
    samples_of_intervals = [
        binomial(counts_of(rounds_of(np.full(rounds, alpha), 4, generator), 4), 4) for _ in range(RUNS)
    ]
    # Less 3 standard errors of the share itself; an interval may be too wide, never too narrow.
    assert share_holding(samples_of_intervals, mean_length(alpha, 4)) > 0.95 - 3 * (0.95 * 0.05 / RUNS) ** 0.5


def test_intervals_from_counts_shrink_with_the_root_of_the_rounds() -> None:
    few, many = (binomial(Counts(n, 1.57 * n, 3 * n, (0.72 * n, 0.51 * n, 0.34 * n)), 3) for n in (1e3, 1e5))
    widths = [interval.mean_length[1] - interval.mean_length[0] for interval in (few, many)]
    assert widths[0] / widths[1] == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize("accepted", [0.0, 120.0])
def test_rounds_that_are_all_alike_leave_an_interval(accepted: float) -> None:
    interval = binomial(Counts(40.0, accepted, 120.0, (accepted / 3,) * 3), 3).mean_length
    assert interval[1] - interval[0] > 0.1
    assert interval[0] <= 1.0 + accepted / 40.0 <= interval[1]


def test_without_positions_the_interval_is_no_narrower() -> None:
    known = binomial(Counts(500.0, 785.0, 1500.0, (360.0, 255.0, 170.0)), 3).mean_length
    unknown = binomial(Counts(500.0, 785.0, 1500.0), 3).mean_length
    assert unknown[0] <= known[0]
    assert unknown[1] >= known[1]


def test_wilson_is_the_textbook_interval() -> None:
    assert wilson(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    assert wilson(0, 20)[0] == 0.0
    assert wilson(20, 20)[1] == 1.0


def requests(generator: np.random.Generator, count: int) -> list[Counts]:
    """Requests of 40 rounds whose acceptance differs from request to request."""
    levels = generator.normal(0.4, 0.8, count)
    return [counts_of(rounds_of(np.full(40, 1 / (1 + np.exp(-level))), 3, generator), 3) for level in levels]


def total(blocks: Sequence[Counts]) -> Counts:
    """The sum of blocks."""
    return sum(blocks, Counts(0.0, 0.0))


def test_drawing_requests_holds_where_counts_are_too_narrow() -> None:
    generator = np.random.default_rng(7)
    levels = 1 / (1 + np.exp(-generator.normal(0.4, 0.8, 400_000)))
    truth = float(np.mean([levels**place for place in range(4)], axis=1).sum())
    drawn, counted = [], []
    for _ in range(200):
        blocks = requests(generator, 40)
        drawn.append(bootstrap(total(blocks), blocks, in_order=False))
        counted.append(binomial(total(blocks), 3))
    assert share_holding(drawn, truth) > 0.90
    assert share_holding(counted, truth) < 0.75  # the negative control: rounds are not independent


def test_drawing_neighbours_holds_where_acceptance_drifts() -> None:
    """Intervals of time whose acceptance follows an AR(1): drawn one by one they would look too certain."""
    generator = np.random.default_rng(3)
    held = {"together": 0, "alone": 0}
    for _ in range(200):
        level, levels = generator.normal(0.0, 0.6), []
        for _ in range(150):
            level = 0.8 * level + 0.6 * 0.6 * generator.normal()
            levels.append(level)
        blocks = [
            counts_of(rounds_of(np.full(30, 1 / (1 + np.exp(-logit))), 1, generator), 1) for logit in levels
        ]
        truth = 1.5  # by symmetry of the logistic
        for name, in_order in (("together", True), ("alone", False)):
            low, high = bootstrap(total(blocks), blocks, in_order).mean_length
            held[name] += low <= truth <= high
    assert held["together"] > held["alone"] + 20
    assert held["together"] > 160


def test_the_method_follows_what_is_known() -> None:
    blocks = tuple(RoundBlock(request) for request in requests(np.random.default_rng(1), 20))
    joint = total([block.counts for block in blocks])
    with_blocks = intervals_of(MeasuredAcceptance(joint, 3, "", blocks=blocks))
    few_blocks = intervals_of(MeasuredAcceptance(joint, 3, "", blocks=blocks[:3]))
    assert with_blocks is not None
    assert few_blocks is not None
    assert (with_blocks.method, few_blocks.method) == ("block-bootstrap", "binomial")
    assert intervals_of(MeasuredAcceptance(Counts(1.0, 1.57), 3, "", counted=False)) is None


def test_a_position_that_no_round_reached_has_no_conditional_interval() -> None:
    interval = binomial(Counts(50.0, 0.0, 150.0, (0.0, 0.0, 0.0)), 3)
    assert interval.conditional[0] is not None
    assert interval.conditional[1:] == (None, None)
