"""The root search against systems whose root is known by formula."""

import math

import numpy as np
import pytest

from simulator.breakeven.root_search import (
    ALWAYS,
    FOUND,
    UNDETERMINED,
    UNREACHABLE,
    Evaluate,
    RootSearch,
    ScoredRun,
)
from simulator.breakeven.theory import required_alpha_geometric, tokens_per_verify

DRAFT_LENGTH = 3


def closed_loop(overhead: float, target: float = 1.0, noise_sd: float = 0.0) -> tuple[Evaluate, list[float]]:
    """Throughput ratio E(α) / ((1 + o) · scale), with noise by replication;
    and the list of every x that was asked for.
    """
    asked: list[float] = []
    noise = np.random.default_rng(7).normal(0, noise_sd, size=100)

    def evaluate(alpha: float, replication: int, scale: float) -> ScoredRun:
        asked.append(alpha)
        tokens = tokens_per_verify(alpha, DRAFT_LENGTH)
        score = math.log(tokens / ((1 + overhead) * scale * target)) + noise[replication]
        return ScoredRun(score, tokens)

    return evaluate, asked


@pytest.mark.parametrize("overhead", [0.05, 0.44, 1.0, 2.0, 2.9])
@pytest.mark.parametrize("guess", [0.0, 0.3, 0.99])
def test_finds_the_geometric_break_even_in_few_runs(overhead: float, guess: float) -> None:
    evaluate, asked = closed_loop(overhead)
    root = RootSearch(evaluate, replications=5, band=0.1).find(guess)
    exact = required_alpha_geometric(overhead, DRAFT_LENGTH)
    assert root.outcome == FOUND
    assert root.value is not None
    assert root.companion is not None
    assert exact is not None
    assert root.value.value == pytest.approx(exact, abs=5e-4)
    assert root.companion.value == pytest.approx(1 + overhead, abs=2e-3)
    assert len(asked) <= 45


@pytest.mark.parametrize("guess", [0.02, 0.5, 0.9])
def test_a_line_from_afar_is_not_taken_for_a_root(guess: float) -> None:
    """The first replication ties where the score is flat, and the others where it is steep."""
    noise = [0.0, *[0.03] * 4]

    def evaluate(x: float, replication: int, scale: float) -> ScoredRun:
        return ScoredRun(math.expm1(8 * x) / 1000 - 0.0002 - noise[replication] + math.log(scale))

    root = RootSearch(evaluate, replications=5, band=0.0).find(guess)
    exact = math.log1p(1000 * (0.0002 + sum(noise) / 5)) / 8
    assert root.outcome == FOUND
    assert root.value is not None
    assert root.value.value == pytest.approx(exact, abs=0.01)


def test_without_a_band_the_root_is_the_same_and_no_run_is_made_for_it() -> None:
    banded, plain = closed_loop(0.6, noise_sd=0.01), closed_loop(0.6, noise_sd=0.01)
    with_band = RootSearch(banded[0], replications=4, band=0.1).find(0.5)
    without = RootSearch(plain[0], replications=4, band=0.0).find(0.5)
    assert with_band.value is not None
    assert without.value is not None
    assert (without.value.value, without.value.ci95) == (with_band.value.value, with_band.value.ci95)
    assert without.value.band == without.value.ci95
    assert len(plain[1]) < len(banded[1])


def test_band_is_where_the_root_goes_when_steps_take_ten_percent_less_or_more() -> None:
    evaluate, _ = closed_loop(0.6)
    root = RootSearch(evaluate, replications=3, band=0.1).find(0.5)
    assert root.value is not None
    assert root.value.band is not None
    expected = [required_alpha_geometric(1.6 * scale - 1, DRAFT_LENGTH) for scale in (0.9, 1.1)]
    assert root.value.band == pytest.approx(expected, abs=2e-3)
    assert root.companion is not None
    assert root.companion.band == pytest.approx((1.6 * 0.9, 1.6 * 1.1), rel=5e-3)


def test_the_band_is_centred_on_all_replications_though_the_first_alone_is_searched() -> None:
    """A replication whose root lies far from the mean shifts no band: only its own shift counts."""
    shifts = [0.1, 0.0, -0.05, -0.05]
    rise_per_scale = 0.5

    def evaluate(x: float, replication: int, scale: float) -> ScoredRun:
        return ScoredRun(x - 0.5 - shifts[replication] - rise_per_scale * (scale - 1))

    root = RootSearch(evaluate, replications=4, band=0.1).find(0.5)
    assert root.value is not None
    assert root.value.band is not None
    assert root.value.value == pytest.approx(0.5)
    half = math.hypot(rise_per_scale * 0.1, root.value.half_width)
    assert root.value.band == pytest.approx((0.5 - half, 0.5 + half), abs=0.005)


def test_interval_is_the_spread_of_the_replications_own_roots() -> None:
    evaluate, _ = closed_loop(0.6, noise_sd=0.01)
    root = RootSearch(evaluate, replications=8, band=0.0, tolerance=0.02).find(0.5)
    noise = np.random.default_rng(7).normal(0, 0.01, size=100)[:8]
    roots = [required_alpha_geometric(1.6 * math.exp(-x) - 1, DRAFT_LENGTH) for x in noise]
    half = 2.3646 * float(np.std(np.array(roots, dtype=float), ddof=1)) / math.sqrt(8)
    assert root.value is not None
    assert root.value.value == pytest.approx(float(np.mean(np.array(roots, dtype=float))), abs=5e-4)
    assert root.value.half_width == pytest.approx(half, rel=0.05)


def test_replications_are_added_until_the_interval_is_narrow_enough() -> None:
    evaluate, _ = closed_loop(0.6, noise_sd=0.02)
    few = RootSearch(evaluate, replications=3, band=0.0, tolerance=0.01).find(0.5)
    more = RootSearch(evaluate, replications=3, band=0.0, tolerance=0.01, most_replications=12).find(0.5)
    assert few.value is not None
    assert more.value is not None
    assert more.value.half_width < few.value.half_width


def test_target_beyond_every_draft_accepted_is_unreachable() -> None:
    evaluate, _ = closed_loop(0.5, target=3.0)  # 3 × 1.5 > K + 1
    assert RootSearch(evaluate, replications=3, band=0.1).find(0.5).outcome == UNREACHABLE


def test_target_that_needs_no_acceptance_is_zero_and_its_band_says_how_far_that_holds() -> None:
    evaluate, _ = closed_loop(-0.05)
    root = RootSearch(evaluate, replications=3, band=0.1).find(0.5)
    assert root.outcome == ALWAYS
    assert root.value is not None
    assert root.value.value == 0
    assert root.value.band is not None
    assert root.value.band[0] == 0
    assert root.value.band[1] == pytest.approx(
        required_alpha_geometric(0.95 * 1.1 - 1, DRAFT_LENGTH), abs=3e-3
    )


def test_a_metric_that_acceptance_does_not_move_has_no_root() -> None:
    """Below the target everywhere but on a spike of noise,
    which the search hits: no slope holds around it.
    """

    def evaluate(alpha: float, replication: int, scale: float) -> ScoredRun:
        return ScoredRun(0.01 if 0.5 <= alpha < 0.502 else -0.01)

    root = RootSearch(evaluate, replications=3, band=0.1).find(0.421)
    assert root.outcome == UNDETERMINED
    assert root.value is None
    assert root.note is not None


def test_a_system_that_collapses_on_one_side_still_has_a_root() -> None:
    """Saturated below α = 0.4: no score there."""

    def evaluate(alpha: float, replication: int, scale: float) -> ScoredRun:
        return ScoredRun(math.nan if alpha < 0.4 else math.log(tokens_per_verify(alpha, DRAFT_LENGTH) / 1.9))

    root = RootSearch(evaluate, replications=3, band=0.0).find(0.1)
    assert root.value is not None
    assert root.value.value == pytest.approx(required_alpha_geometric(0.9, DRAFT_LENGTH), abs=1e-3)
