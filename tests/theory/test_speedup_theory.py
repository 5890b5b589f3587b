"""Simulated tokens per verify and speedup against the formulas, with the run's own standard errors.

Steps cost a constant here, so that G = E / (1 + o) holds without any approximation of its own
(`simulator/theory.py`); what real prices add is tested in `test_negative_controls.py`.
A wrong claim must fail the same check.
"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.acceptance import AcceptanceModel, Geometric, Positional
from simulator.breakeven import theory
from simulator.results.measure import measure
from simulator.results.record import RunRecord
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario
from tests import closed_forms
from tests.runs import (
    Measured,
    constant_steps,
    drafting_variant,
    plain_variant,
    ratio,
    run,
    small_scenario,
    tokens_per_verify,
)

SIGMAS = 3.0
PLAIN_NS = 1_000_000
VERIFY_NS, DRAFT_PASS_NS = 1_300_000, 100_000
MODELS = {
    "geometric 0.3": Geometric(0.3),
    "geometric 0.7": Geometric(0.7),
    "geometric 0.95": Geometric(0.95),
    "positional": Positional((0.66, 0.64, 0.63, 0.65, 0.62, 0.66, 0.60)),
    "rising": Positional((0.08, 0.56, 0.60, 0.64, 0.71, 0.70, 0.72)),
}


def long_outputs(draft_length: int, **changes: object) -> Scenario:
    """Long outputs that end without a cut: the last round's surplus counts, so a run is a renewal process."""
    return small_scenario(
        {
            "speculation.eagle3.draft_length": draft_length,
            "workload.output_tokens.tokens": 2000,
            "workload.prompt_tokens.tokens": 1,
            "run.mechanisms.stop_trim": False,
            **changes,
        }
    )


def drafting(scenario: Scenario) -> CompiledVariant:
    return constant_steps(drafting_variant(scenario), VERIFY_NS, DRAFT_PASS_NS)


def plain(scenario: Scenario) -> CompiledVariant:
    return constant_steps(plain_variant(scenario), PLAIN_NS)


def overhead(draft_length: int) -> float:
    return theory.overhead(VERIFY_NS / PLAIN_NS, DRAFT_PASS_NS / PLAIN_NS, draft_length)


def tokens(model: AcceptanceModel, draft_length: int) -> float:
    """E, written out: 1 + the sum of the survivals."""
    conditional = (
        [model.alpha] * draft_length if isinstance(model, Geometric) else model.conditional(draft_length)
    )
    return 1.0 + float(np.cumprod(conditional).sum())


def simulated_speedup(fast: RunRecord, slow: RunRecord) -> Measured:
    """Time per token of plain decoding ÷ that of `fast`, pooled over all tokens after the first."""
    tokens_after = fast.emitted_tokens - 1
    own = ratio(tokens_after, (fast.last_ns - fast.first_ns) / 1e9)
    plain_s = float((slow.last_ns - slow.first_ns).sum() / 1e9 / (slow.emitted_tokens - 1).sum())
    return Measured(own.value * plain_s, own.error * plain_s)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("draft_length", [1, 3, 7])
def test_tokens_per_verify_are_those_of_the_formula(name: str, draft_length: int) -> None:
    model = MODELS[name]
    record = run(drafting(long_outputs(draft_length)), acceptance=[model])
    expected = tokens(model, draft_length)
    assert tokens_per_verify(record).score(expected) < SIGMAS
    if isinstance(model, Geometric):
        assert expected == pytest.approx(theory.tokens_per_verify(model.alpha, draft_length))


@pytest.mark.parametrize("name", ["geometric 0.7", "positional"])
def test_each_position_survives_as_often_as_the_formula_says(name: str) -> None:
    model, draft_length = MODELS[name], 5
    record = run(drafting(long_outputs(draft_length)), acceptance=[model])
    rounds = record.accepted_at.sum()
    at_least = np.cumsum(record.accepted_at.sum(axis=0)[::-1])[::-1][1:] / rounds
    survival = model.survival(draft_length)
    # luck belongs to positions, so rounds are independent
    error = np.sqrt(survival * (1 - survival) / rounds)
    assert np.abs((at_least - survival) / error).max() < SIGMAS


@pytest.mark.parametrize("draft_length", [1, 3, 7])
@pytest.mark.parametrize("alpha", [0.3, 0.7, 0.95])
@pytest.mark.parametrize("concurrency", [1, 8])
def test_the_speedup_is_tokens_over_one_plus_overhead(
    alpha: float, draft_length: int, concurrency: int
) -> None:
    scenario = long_outputs(draft_length, **{"workload.arrivals.concurrency": concurrency})
    fast = run(drafting(scenario), acceptance=[Geometric(alpha)])
    expected = theory.speedup(theory.tokens_per_verify(alpha, draft_length), overhead(draft_length))
    assert simulated_speedup(fast, run(plain(scenario))).score(expected) < SIGMAS


@pytest.mark.parametrize("wrong", [0.68, 0.72])
def test_a_wrong_acceptance_fails_the_same_checks(wrong: float) -> None:
    scenario = long_outputs(3)
    fast = run(drafting(scenario), acceptance=[Geometric(0.7)])
    assert tokens_per_verify(fast).score(theory.tokens_per_verify(wrong, 3)) > 2 * SIGMAS
    claimed = theory.speedup(theory.tokens_per_verify(wrong, 3), overhead(3))
    assert simulated_speedup(fast, run(plain(scenario))).score(claimed) > 2 * SIGMAS


def test_a_speedup_without_the_overhead_of_drafting_fails_the_same_check() -> None:
    scenario = long_outputs(3)
    fast = run(drafting(scenario), acceptance=[Geometric(0.7)])
    claimed = theory.speedup(theory.tokens_per_verify(0.7, 3), VERIFY_NS / PLAIN_NS - 1)
    assert simulated_speedup(fast, run(plain(scenario))).score(claimed) > 10 * SIGMAS


@pytest.mark.parametrize("draft_length", [1, 3, 5])
@pytest.mark.parametrize("preset", ["vllm-0.10", "vllm-0.33", "sglang-0.5"])
def test_full_acceptance_emits_k_plus_one_every_cycle(draft_length: int, preset: str) -> None:
    """Exact: 1 token from the prompt's step, then K + 1 a cycle; on real prices and every engine."""
    cycles = 12
    scenario = small_scenario(
        {
            "engine.preset": preset,
            "speculation.eagle3.draft_length": draft_length,
            "workload.output_tokens.tokens": 1 + cycles * (draft_length + 1),
        }
    )
    record = run(drafting_variant(scenario), acceptance=[Geometric(1.0)])
    assert (record.draft_rounds == cycles).all()
    assert (record.decode_rounds == cycles).all()
    assert (record.accepted_tokens == cycles * draft_length).all()
    assert (record.emitted_tokens == 1 + cycles * (draft_length + 1)).all()
    assert record.totals["trimmed_tokens"] == record.totals["rejected_rows"] == 0
    figures = measure(record)
    assert figures["mean_acceptance_length"] == draft_length + 1
    assert figures["draft_acceptance_rate"] == 1.0
    assert figures["tokens_per_round"] == draft_length + 1


@pytest.mark.parametrize("preset", ["vllm-0.10", "vllm-0.33", "sglang-0.5"])
def test_no_acceptance_emits_one_token_every_cycle(preset: str) -> None:
    scenario = small_scenario({"engine.preset": preset})
    record = run(drafting_variant(scenario), acceptance=[Geometric(0.0)])
    assert (record.decode_rounds == record.emitted_tokens - 1).all()
    assert (record.accepted_tokens == 0).all()
    assert (record.emitted_tokens == 100).all()
    # The last token is no surprise with max_tokens, but its round drafts as all others do.
    assert record.totals["rejected_rows"] == record.drafted_tokens.sum()
    assert measure(record)["tokens_per_round"] == 1.0


def test_the_extremes_of_acceptance_give_exact_speedups() -> None:
    """A burst that starts together takes one step for the prompts, then one per cycle: all integers."""
    cycles, draft_length = 50, 3
    scenario = small_scenario(
        {
            "workload.arrivals": {"kind": "burst"},
            "workload.output_tokens.tokens": 1 + cycles * (draft_length + 1),
            "workload.prompt_tokens.tokens": 10,
        }
    )
    slow = run(plain(scenario))
    cycle_ns = VERIFY_NS + draft_length * DRAFT_PASS_NS
    assert slow.makespan_ns == (1 + cycles * (draft_length + 1)) * PLAIN_NS
    every = run(drafting(scenario), acceptance=[Geometric(1.0)])
    assert every.makespan_ns == (1 + cycles) * cycle_ns
    none = run(drafting(scenario), acceptance=[Geometric(0.0)])
    assert none.makespan_ns * PLAIN_NS == slow.makespan_ns * cycle_ns  # G = 1 / (1 + o)
    assert slow.makespan_ns / none.makespan_ns == pytest.approx(1 / (1 + overhead(draft_length)), rel=1e-12)


@pytest.mark.parametrize("output", [5, 20, 40])
@pytest.mark.parametrize(("alpha", "draft_length"), [(0.9, 4), (0.7, 3), (0.5, 7)])
def test_short_outputs_follow_the_finite_form(alpha: float, draft_length: int, output: int) -> None:
    """`output` tokens after the first; the endless form must fail where the stop matters."""
    scenario = small_scenario(
        {
            "speculation.eagle3.draft_length": draft_length,
            "workload.output_tokens.tokens": output + 1,
            "workload.requests": 4000,
            "workload.prompt_tokens.tokens": 2,  # one that lacks a single token verifies padding
        }
    )
    record = run(drafting(scenario), acceptance=[Geometric(alpha)])
    result = ratio(record.emitted_tokens - 1, record.decode_rounds)
    assert result.score(closed_forms.finite_tokens_per_verify(alpha, draft_length, output)) < SIGMAS
    assert result.score(theory.tokens_per_verify(alpha, draft_length)) > 2 * SIGMAS
    # Acceptance itself is counted before the cut, so the stop does not bias it by position.
    trimmed = 1 + record.accepted_tokens + record.decode_rounds - record.emitted_tokens
    assert trimmed.sum() == record.totals["trimmed_tokens"]
