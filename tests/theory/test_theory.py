"""The closed forms against textbook values, and against derivations that share nothing with them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.breakeven import theory
from simulator.errors import InputError
from tests import closed_forms

ALPHAS = st.floats(0.0, 1.0)
DRAFT_LENGTHS = st.integers(1, 16)


def test_tokens_per_verify_is_the_geometric_sum() -> None:
    assert theory.tokens_per_verify(0.0, 5) == 1.0
    assert theory.tokens_per_verify(1.0, 5) == 6.0
    assert theory.tokens_per_verify(0.5, 0) == 1.0
    for alpha in (0.1, 0.5, 0.9, 0.999):
        for k in (1, 3, 8, 64):
            closed = (1 - Fraction(alpha) ** (k + 1)) / (1 - Fraction(alpha))
            assert theory.tokens_per_verify(alpha, k) == pytest.approx(float(closed), rel=1e-13)


# arXiv 2211.17192, table 1: gains in speed for a drafter without cost.
LEVIATHAN_TABLE_1 = [
    (0.6, 2, 1.96),
    (0.7, 3, 2.53),
    (0.8, 2, 2.44),
    (0.8, 5, 3.69),
    (0.9, 2, 2.71),
    (0.9, 10, 6.86),
]


@pytest.mark.parametrize(("alpha", "k", "speed"), LEVIATHAN_TABLE_1)
def test_leviathans_table_of_gains(alpha: float, k: int, speed: float) -> None:
    assert theory.leviathan_gain(alpha, 0.0, k) == pytest.approx(speed, abs=0.0051)


# arXiv 2211.17192, appendix: expected improvement at the published alpha, c and K (T5 on a TPU).
LEVIATHAN_EXPECTED = [
    (0.75, 0.02, 7, 3.2),
    (0.80, 0.04, 7, 3.3),
    (0.82, 0.11, 7, 2.5),
    (0.62, 0.02, 7, 2.3),
    (0.68, 0.04, 5, 2.4),
    (0.71, 0.11, 3, 2.0),
]


@pytest.mark.parametrize(("alpha", "cost_ratio", "k", "expected"), LEVIATHAN_EXPECTED)
def test_leviathans_expected_improvements(alpha: float, cost_ratio: float, k: int, expected: float) -> None:
    """The printed figure lies within what the rounding of the printed alpha, c and figure allows."""
    low = theory.leviathan_gain(alpha - 0.005, cost_ratio + 0.005, k)
    high = theory.leviathan_gain(alpha + 0.005, cost_ratio - 0.005, k)
    assert low - 0.05 <= expected <= high + 0.05


def test_speculation_gains_iff_alpha_exceeds_the_cost() -> None:
    """arXiv 2211.17192, corollary 3.9."""
    for cost_ratio in (0.05, 0.2, 0.5):
        assert theory.best_draft_length(cost_ratio - 0.001, cost_ratio) == 0
        assert theory.best_draft_length(cost_ratio, cost_ratio) == 0
        k = theory.best_draft_length(cost_ratio + 0.001, cost_ratio)
        assert k >= 1
        gain = theory.leviathan_gain(cost_ratio + 0.001, cost_ratio, k)
        assert gain >= (1 + cost_ratio + 0.001) / (1 + cost_ratio) - 1e-12


COSTS = (0.0125, 0.02, 0.05, 0.10, 0.15, 0.25, 0.375)
BEST = {
    0.5: [(5, 1.85), (4, 1.79), (3, 1.63), (2, 1.46), (2, 1.35), (1, 1.20), (1, 1.09)],
    0.7: [(9, 2.91), (8, 2.76), (6, 2.35), (4, 1.98), (3, 1.75), (2, 1.46), (2, 1.25)],
    0.9: [(22, 7.15), (19, 6.37), (13, 4.67), (10, 3.43), (8, 2.78), (6, 2.09), (4, 1.64)],
}


@pytest.mark.parametrize("alpha", BEST)
def test_the_best_draft_length_of_the_textbook(alpha: float) -> None:
    for cost_ratio, (k, gain) in zip(COSTS, BEST[alpha], strict=True):
        assert theory.best_draft_length(alpha, cost_ratio) == k
        assert theory.leviathan_gain(alpha, cost_ratio, k) == pytest.approx(gain, abs=0.0051)


@given(st.floats(0.05, 0.97), st.floats(0.005, 0.6))
def test_the_best_draft_length_obeys_the_first_difference_rule(alpha: float, cost_ratio: float) -> None:
    """Raise K while S_{K+1} / E(K) > (T(K+1) - T(K)) / T(K): the gain is concave enough for it."""
    k = 0
    while alpha ** (k + 1) / theory.tokens_per_verify(alpha, k) > cost_ratio / (1 + cost_ratio * k) + 1e-12:
        k += 1
    if k <= 64:
        best = theory.best_draft_length(alpha, cost_ratio)
        assert theory.leviathan_gain(alpha, cost_ratio, k) == pytest.approx(
            theory.leviathan_gain(alpha, cost_ratio, best), rel=1e-9
        )
        tokens = [theory.tokens_per_verify(alpha, j) for j in range(65)]
        assert theory.best_draft_length_of(tokens, [1 + cost_ratio * j for j in range(65)]) == best


@pytest.mark.parametrize(
    ("overhead", "k", "linear", "geometric"),
    [(0.6, 3, 0.200, 0.389), (0.6, 7, 0.086, 0.375), (1.0, 3, 0.333, 0.544), (1.0, 7, 0.143, 0.502)],
)
def test_linear_and_geometric_break_even_of_the_textbook(
    overhead: float, k: int, linear: float, geometric: float
) -> None:
    a_star = theory.required_alpha_geometric(overhead, k)
    rate_star = theory.required_acceptance_linear(overhead, k)
    assert a_star == pytest.approx(geometric, abs=0.00051)
    assert rate_star == pytest.approx(linear, abs=0.00051)
    # Two names of one point.
    assert a_star is not None
    assert rate_star is not None
    assert theory.acceptance_rate(a_star, k) == pytest.approx(rate_star, abs=1e-12)
    assert theory.alpha_from_tokens_per_verify(1 + k * rate_star, k) == pytest.approx(a_star, abs=1e-12)


@given(st.floats(0.0, 20.0), DRAFT_LENGTHS, st.floats(1.0, 4.0))
def test_break_even_is_the_root_of_the_polynomial(overhead: float, k: int, target: float) -> None:
    """sum of a^j for j = 0..K equals G (1 + o); it has a root in [0, 1) iff G (1 + o) < K + 1."""
    needed = target * (1.0 + overhead)
    alpha = theory.required_alpha_geometric(overhead, k, target)
    rate = theory.required_acceptance_linear(overhead, k, target)
    assert (alpha is None) == (rate is None) == (needed >= k + 1)
    if alpha is not None and rate is not None:
        assert 0.0 <= alpha <= 1.0
        assert float(np.polyval(np.ones(k + 1), alpha)) == pytest.approx(needed, rel=1e-12)
        assert theory.speedup(1.0 + k * rate, overhead) == pytest.approx(target, rel=1e-12)


def test_break_even_exists_iff_the_overhead_is_below_k() -> None:
    assert theory.required_alpha_geometric(2.999999, 3) is not None
    assert theory.required_alpha_geometric(3.0, 3) is None
    assert theory.required_acceptance_linear(3.0, 3) is None
    assert theory.required_alpha_geometric(-0.1, 3) == 0.0
    assert theory.required_acceptance_linear(-0.1, 3) == 0.0


def test_both_break_evens_coincide_only_for_one_draft() -> None:
    assert theory.required_alpha_geometric(0.6, 1) == pytest.approx(theory.required_acceptance_linear(0.6, 1))
    assert abs(theory.required_alpha_geometric(0.6, 3) - theory.required_acceptance_linear(0.6, 3)) > 0.1


def test_the_linear_form_in_its_costs() -> None:
    """A* = (v - 1 + h) / K + c."""
    verify, draft_pass, host, k = 1.2, 0.08, 0.03, 4
    o = theory.overhead(verify, draft_pass, k, host)
    assert theory.required_acceptance_linear(o, k) == pytest.approx((verify - 1 + host) / k + draft_pass)


def test_an_acceptance_rate_holds_at_its_own_k() -> None:
    rates = [theory.acceptance_rate(0.7, k) for k in (1, 3, 5, 7)]
    assert rates == pytest.approx([0.700, 0.511, 0.388, 0.306], abs=0.00051)


@given(ALPHAS, DRAFT_LENGTHS)
def test_alpha_from_tokens_per_verify_inverts(alpha: float, k: int) -> None:
    result = theory.alpha_from_tokens_per_verify(theory.tokens_per_verify(alpha, k), k)
    assert result is not None
    assert result == pytest.approx(alpha, abs=1e-12)


def test_no_alpha_gives_more_than_k_plus_one() -> None:
    assert theory.alpha_from_tokens_per_verify(4.0001, 3) is None
    assert theory.alpha_from_tokens_per_verify(0.9999, 3) is None
    assert theory.alpha_from_tokens_per_verify(4.0, 3) == 1.0
    assert theory.alpha_from_tokens_per_verify(1.0, 3) == 0.0


# The alpha that a target speedup takes at K = 5, and how overhead moves it: sum of a^j (0..5) = G (1 + o).
@pytest.mark.parametrize("overhead", [0.0, 0.2, 0.4, 0.6])
@pytest.mark.parametrize("target", [2.0, 3.0])
def test_alpha_for_two_and_three_times_at_five_drafts(target: float, overhead: float) -> None:
    roots = np.roots([1.0] * 5 + [1.0 - target * (1.0 + overhead)])
    real = [float(root.real) for root in roots if abs(root.imag) < 1e-9 and root.real > 0]
    assert theory.required_alpha_geometric(overhead, 5, target) == pytest.approx(real[0], abs=1e-9)


def _rounds_by_enumeration(alpha: Fraction, k: int, left: int) -> Fraction:
    """Mean rounds, by walking every outcome of every round."""
    if left <= 0:
        return Fraction(0)
    total = Fraction(1)
    for x in range(k + 1):
        chance = alpha**x * ((1 - alpha) if x < k else 1)
        total += chance * _rounds_by_enumeration(alpha, k, left - x - 1)
    return total


@pytest.mark.parametrize(
    ("alpha", "k", "output"), [(Fraction(9, 10), 4, 7), (Fraction(1, 3), 2, 8), (Fraction(7, 10), 1, 9)]
)
def test_the_finite_form_is_exact(alpha: Fraction, k: int, output: int) -> None:
    exact = output / _rounds_by_enumeration(alpha, k, output)
    assert closed_forms.finite_tokens_per_verify(float(alpha), k, output) == pytest.approx(
        float(exact), rel=1e-13
    )


def test_the_endless_form_overstates_short_outputs() -> None:
    endless = theory.tokens_per_verify(0.9, 4)
    assert closed_forms.finite_tokens_per_verify(0.9, 4, 20) / endless - 1 == pytest.approx(-0.07, abs=0.005)
    assert closed_forms.finite_tokens_per_verify(0.9, 4, 100) / endless - 1 == pytest.approx(-0.02, abs=0.005)
    assert closed_forms.finite_tokens_per_verify(0.9, 4, 100_000) == pytest.approx(endless, rel=3e-5)
    assert closed_forms.finite_tokens_per_verify(0.9, 4, 1) == 1.0
    assert closed_forms.finite_tokens_per_verify(0.0, 4, 9) == 1.0
    assert closed_forms.finite_tokens_per_verify(1.0, 4, 10) == 5.0


def test_rounds_to_emit_takes_any_survival() -> None:
    assert closed_forms.rounds_to_emit([1.0, 1.0], 7) == 3.0
    assert closed_forms.rounds_to_emit([0.0, 0.0], 7) == 7.0
    assert closed_forms.rounds_to_emit([], 7) == 7.0
    assert closed_forms.rounds_to_emit([0.5], 0) == 0.0
    assert closed_forms.rounds_to_emit([0.5], 2) == pytest.approx(1.5)


def test_requests_that_differ_emit_at_the_harmonic_mean() -> None:
    assert theory.harmonic_mean([2.0, 4.0]) == pytest.approx(8.0 / 3.0)
    assert theory.harmonic_mean([2.0, 4.0], [0.0, 1.0]) == 4.0
    assert theory.harmonic_mean([3.0]) == 3.0


@given(st.lists(st.floats(1.0, 16.0), min_size=1, max_size=20))
def test_the_harmonic_mean_never_exceeds_the_mean(tokens: list[float]) -> None:
    assert theory.harmonic_mean(tokens) <= np.mean(tokens) * (1 + 1e-12)


def test_waits_of_the_textbook() -> None:
    """At 80 % load and a service of 1 s: M/M/1 waits 4 s, M/D/1 half as long; both without end at 100 %."""
    assert closed_forms.mm1_wait_s(0.8, 1.0) == pytest.approx(4.0)
    assert closed_forms.md1_wait_s(0.8, 1.0) == pytest.approx(2.0)
    assert closed_forms.mg1_wait_s(0.8, 1.0, 2.0) == pytest.approx(10.0)
    assert closed_forms.mm1_wait_s(1.0, 1.0) == math.inf
    assert closed_forms.md1_wait_s(2.0, 1.0) == math.inf
    assert closed_forms.mm1_sojourn_quantile_s(1.0, 1.0, 0.5) == math.inf
    # Mean sojourn 1 / (mu - lambda) = 5 s; its 99th percentile ln(100) times that.
    assert closed_forms.mm1_sojourn_quantile_s(0.8, 1.0, 0.99) == pytest.approx(5.0 * math.log(100.0))


@pytest.mark.parametrize(
    ("draw", "wait"), [("exponential", closed_forms.mm1_wait_s), ("constant", closed_forms.md1_wait_s)]
)
def test_waits_of_a_simulated_queue(draw: str, wait: object) -> None:
    """Lindley's recursion, independent replications; each formula is the other queue's negative control."""
    random = np.random.default_rng(5)
    replications, customers, warmup, rate = 400, 1500, 500, 0.6
    gaps = random.exponential(1.0 / rate, (customers, replications))
    services = random.exponential(1.0, gaps.shape) if draw == "exponential" else np.ones(gaps.shape)
    waiting = np.zeros(replications)
    total = np.zeros(replications)
    for customer in range(customers):
        if customer >= warmup:
            total += waiting
        waiting = np.maximum(0.0, waiting + services[customer] - gaps[customer])
    means = total / (customers - warmup)
    error = means.std(ddof=1) / math.sqrt(replications)
    assert callable(wait)
    assert abs(means.mean() - wait(rate, 1.0)) < 3.0 * error
    other = closed_forms.md1_wait_s if draw == "exponential" else closed_forms.mm1_wait_s
    assert abs(means.mean() - other(rate, 1.0)) > 5.0 * error


def test_littles_law() -> None:
    assert closed_forms.in_system(0.8, closed_forms.mm1_wait_s(0.8, 1.0) + 1.0) == pytest.approx(0.8 / 0.2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: theory.tokens_per_verify(1.1, 3),
        lambda: theory.tokens_per_verify(math.nan, 3),
        lambda: theory.tokens_per_verify(0.5, -1),
        lambda: theory.acceptance_rate(0.5, 0),
        lambda: theory.required_alpha_geometric(0.5, 0),
    ],
)
def test_impossible_arguments_are_refused(call: object) -> None:
    assert callable(call)
    with pytest.raises(InputError, match=r"from 0 to 1|or more"):
        call()
