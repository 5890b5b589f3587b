"""The verdict rests on the band, and its sentence on the largest effect."""

import math

import pytest

from simulator.results.estimate import Estimate
from simulator.results.verdict import (
    LOSES,
    PAYS,
    UNDECIDED,
    effects_of,
    explain,
    judge_acceptance,
    judge_speedup,
)


def estimate(value: float, low: float, high: float, sampling: float = 0.01) -> Estimate:
    return Estimate(value, (value - sampling, value + sampling), (low, high))


@pytest.mark.parametrize(
    ("speedup", "outcome"),
    [
        (estimate(1.4, 1.3, 1.5), PAYS),
        (estimate(0.8, 0.7, 0.9), LOSES),
        (estimate(1.05, 0.95, 1.15), UNDECIDED),
        (Estimate(1.4), UNDECIDED),
        (None, UNDECIDED),
    ],
)
def test_speedup_is_judged_by_its_whole_band(speedup: Estimate | None, outcome: str) -> None:
    assert judge_speedup(speedup) == outcome
    assert judge_speedup(estimate(1.4, 1.3, 1.5), target=1.45) == UNDECIDED


def test_acceptance_inside_the_break_even_band_is_undecided() -> None:
    root = estimate(0.35, 0.30, 0.40)
    assert [judge_acceptance(alpha, root) for alpha in (0.29, 0.30, 0.35, 0.40, 0.41)] == [
        LOSES,
        UNDECIDED,
        UNDECIDED,
        UNDECIDED,
        PAYS,
    ]
    assert judge_acceptance(0.5, None) == UNDECIDED


PLAIN = {
    "tokens_per_round": 1.0,
    "mean_batch": 64.0,
    "step_s.mean": 0.020,
    "step_s.draft": 0.0,
    "step_s.verify": 0.018,
    "step_s.sampling": 0.0005,
    "step_s.host": 0.0015,
}


def test_effects_multiply_to_the_speedup_of_the_formula() -> None:
    """G = E / (1 + o): ln 2.1 from tokens, and verify growth of 40 % of a plain step."""
    fast = {**PLAIN, "tokens_per_round": 2.1, "step_s.mean": 0.028, "step_s.verify": 0.026}
    effects = effects_of(PLAIN, fast)
    assert sum(effects.values()) == pytest.approx(math.log(2.1 / 1.4))
    assert min(effects, key=lambda name: effects[name]) == "verify"


def test_sentence_names_the_strongest_reason() -> None:
    slow = {
        **PLAIN,
        "tokens_per_round": 1.5,
        "step_s.mean": 0.038,
        "step_s.verify": 0.034,
        "step_s.draft": 0.002,
    }
    verdict = explain("eagle3-k3", "throughput", estimate(0.79, 0.72, 0.87), PLAIN, slow)
    assert verdict.outcome == LOSES
    assert verdict.sentence == (
        "eagle3-k3: loses: throughput × 0.79 (0.72 to 0.87): each round yields 1.50 tokens for "
        "a step 1.90 × as long, most of it by verifying the drafts (+80% of a plain step)"
    )
    fast = {**PLAIN, "tokens_per_round": 2.5, "step_s.mean": 0.028, "step_s.verify": 0.026}
    verdict = explain("eagle3-k3", "throughput", estimate(1.79, 1.6, 1.97), PLAIN, fast)
    assert verdict.sentence.endswith("each round yields 2.50 tokens for a step 1.40 × as long")


def test_fewer_requests_at_once_is_a_reason_of_its_own() -> None:
    crowded = {
        **PLAIN,
        "mean_batch": 20.0,
        "tokens_per_round": 1.6,
        "step_s.mean": 0.022,
        "step_s.verify": 0.020,
    }
    verdict = explain("draft-k3", "throughput", estimate(0.5, 0.45, 0.55), PLAIN, crowded)
    assert "fewer requests decode together (20 in place of 64)" in verdict.sentence


def test_undecided_says_whether_to_simulate_more_or_to_measure() -> None:
    by_model = explain("a", "throughput", estimate(1.02, 0.93, 1.12), PLAIN, PLAIN)
    assert by_model.outcome == UNDECIDED
    assert "measure to decide" in by_model.sentence
    by_sampling = explain("a", "throughput", estimate(1.1, 0.95, 1.25, sampling=0.14), PLAIN, PLAIN)
    assert by_sampling.outcome == UNDECIDED
    assert "more requests or replications" in by_sampling.sentence
    assert "one replication" in explain("a", "throughput", Estimate(1.5), PLAIN, PLAIN).sentence
    assert "not available" in explain("a", "TPOT", None, PLAIN, PLAIN).sentence
