"""A check that the right simulator passes and wrong ones fail: the speedup of a steady batch on real prices.

The claim: G = E / (1 + o), where o is the ratio of two uniform steps less one, each the sum of the operators
that `CostModel` prices (not the step's own tables), and E the formula of the acceptance. Everything the
closed form leaves out is switched off.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from simulator.breakeven import theory
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario
from tests.runs import Measured, drafting_variant, plain_variant, ratio, run, small_scenario, with_prices

SIGMAS = 3.0
ALPHA, DRAFT_LENGTH, BATCH, PROMPT, OUTPUT = 0.7, 3, 64, 2000, 2000
OFF = ("prefill", "stop_trim", "ghost_rows", "context_growth")


@cache
def steady(cache_bytes: str = "bf16") -> Scenario:
    changes = {
        "target": {"model": "llama-3.3-70b-instruct", "weights": "fp8", "kv_cache": cache_bytes},
        "hardware.tensor_parallel": 4,
        "speculation.eagle3.draft": "eagle3-llama-3.3-70b",
        "speculation.eagle3.acceptance.alpha": ALPHA,
        "workload.arrivals.concurrency": BATCH,
        "workload.requests": 2 * BATCH,
        "workload.prompt_tokens.tokens": PROMPT,
        "workload.output_tokens.tokens": OUTPUT,
        "engine.max_num_batched_tokens": 8192,
    }
    return small_scenario({**changes, **{f"run.mechanisms.{name}": False for name in OFF}})


def cycle_s(variant: CompiledVariant) -> float:
    """One step of the full batch, operator by operator from the cost model."""
    k, settings = variant.settings.max_nodes, variant.settings
    query = k + 1
    context = PROMPT + OUTPUT // 2 - 1 + query
    tokens = BATCH * query
    all_tokens = BATCH * context
    target = variant.setup.cost.target_pass(tokens, BATCH, all_tokens, query, logit_rows=tokens)
    drafts_s = 0.0
    if k:
        first = variant.setup.cost.draft_pass(tokens, BATCH, all_tokens, query, logit_rows=BATCH)
        later = variant.setup.cost.draft_pass(BATCH, BATCH, all_tokens, 1, logit_rows=BATCH)
        drafts_s = first.duration_s + (k - 1) * later.duration_s
    gpu_s = target.duration_s + variant.setup.cost.sample(tokens).duration_s + drafts_s
    hidden_s = (settings.hidden_step_ns + settings.hidden_per_sequence_ns * BATCH) / 1e9
    return max(gpu_s, hidden_s)


def simulated(variant: CompiledVariant) -> Measured:
    """Speedup over plain decoding, from the time per token of all requests."""
    slow, fast = run(plain_variant(variant.scenario)), run(variant)
    plain_s = (slow.last_ns - slow.first_ns).sum() / 1e9 / (slow.emitted_tokens - 1).sum()
    own = ratio(fast.emitted_tokens - 1, (fast.last_ns - fast.first_ns) / 1e9)
    return Measured(own.value * plain_s, own.error * plain_s)


def claimed(scenario: Scenario, alpha: float = ALPHA) -> float:
    overhead = cycle_s(drafting_variant(scenario)) / cycle_s(plain_variant(scenario)) - 1
    return theory.speedup(theory.tokens_per_verify(alpha, DRAFT_LENGTH), overhead)


def with_free_verify(variant: CompiledVariant) -> CompiledVariant:
    """A step of any number of tokens costs what one token per request does."""
    prices = variant.prices
    names = ("target_tokens", "target_experts", "target_head", "sample")
    flat = {name: np.minimum(table := getattr(prices, name), table[BATCH]) for name in names}
    return with_prices(variant, prices._replace(**flat))


def with_cache_read_per_query(variant: CompiledVariant) -> CompiledVariant:
    """Every query token reads the KV cache anew, K + 1 times in all."""
    queries = np.arange(1, len(variant.prices.attention) + 1)[:, None, None]
    return with_prices(variant, variant.prices._replace(attention=queries * variant.prices.attention[:1]))


def test_the_right_simulator_passes() -> None:
    assert simulated(drafting_variant(steady())).score(claimed(steady())) < SIGMAS
    assert simulated(drafting_variant(steady("fp8"))).score(claimed(steady("fp8"))) < SIGMAS


@pytest.mark.parametrize("alpha", [ALPHA - 0.02, ALPHA + 0.02])
def test_a_wrong_acceptance_fails(alpha: float) -> None:
    assert simulated(drafting_variant(steady())).score(claimed(steady(), alpha)) > 2 * SIGMAS


@pytest.mark.parametrize("wrong", [with_free_verify, with_cache_read_per_query])
def test_a_simulator_with_wrong_prices_fails(wrong) -> None:
    assert simulated(wrong(drafting_variant(steady()))).score(claimed(steady())) > 10 * SIGMAS


def test_a_simulator_that_forgets_the_drafter_fails() -> None:
    variant = drafting_variant(steady())
    names = ("draft_tokens", "draft_experts", "draft_head", "draft_attention")
    free = variant.prices._replace(**{name: np.zeros_like(getattr(variant.prices, name)) for name in names})
    assert simulated(with_prices(variant, free)).score(claimed(steady())) > 10 * SIGMAS
