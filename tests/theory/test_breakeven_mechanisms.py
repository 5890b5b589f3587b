"""Simulated break-even against the closed form: equal with every mechanism off, and where each one takes it.

Each mechanism is work or loss that the formula E = 1 + o leaves out, switched by itself. The intervals are
the search's own. Output lengths differ, so that plain requests do not run in lock step.
"""

from functools import cache
from pathlib import Path

import pytest

from simulator.breakeven.answer import BreakEvenRow
from simulator.breakeven.breakeven import breakeven
from simulator.breakeven.theory import alpha_from_tokens_per_verify
from simulator.results.estimate import Estimate
from simulator.scenario import Mechanisms, load_scenario
from simulator.simulation import simulate

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama-3.3-70b-eagle3-h100.yaml"
MEAN_OUTPUT_TOKENS = 400
SHORT = (
    "workload.output_tokens={kind: uniform, low: 30, high: 50}",
    "workload.requests=2000",
    "run.replications=6",
)
TWO_GPUS_IN_BF16 = (
    "target.weights=bf16",
    "target.kv_cache=bf16",
    "hardware.tensor_parallel=2",
    "speculation.eagle3-k3.draft_tensor_parallel=2",
    "workload.arrivals.concurrency=32",
)
UNLIKE_REQUESTS = ("speculation.eagle3-k3.acceptance={model: hierarchical, alpha: 0.5, request_sd: 1.0}",)


@cache
def row(on: str | None = None, changes: tuple[str, ...] = ()) -> BreakEvenRow:
    """Break-even with every mechanism off but the one named, in a closed loop."""
    overrides = [f"run.mechanisms.{name}=false" for name in Mechanisms.model_fields if name != on]
    overrides += [
        "workload.prompt_tokens={kind: fixed, tokens: 1000}",
        "workload.output_tokens={kind: uniform, low: 300, high: 500}",
        "workload.requests=1000",
        "run.replications=4",
        *changes,
    ]
    return breakeven(load_scenario(EXAMPLE, overrides)).rows[0]


def root_of(answer: BreakEvenRow) -> Estimate:
    assert answer.simulated_alpha is not None
    assert answer.simulated_alpha.ci95 is not None
    return answer.simulated_alpha


def closed_form(answer: BreakEvenRow, output_tokens: int) -> float:
    """The α of E = 1 + o when the first of n tokens comes from prefill, one round that cannot draft.

    n tokens take n plain rounds, and 1 + (n − 1) / E speculative ones of 1 + o, so that
    E = (1 + o)(n − 1) / (n − 1 − o).
    """
    assert answer.overhead is not None
    tokens = (1 + answer.overhead) * (output_tokens - 1) / (output_tokens - 1 - answer.overhead)
    alpha = alpha_from_tokens_per_verify(tokens, answer.draft_length)
    assert alpha is not None
    return alpha


@pytest.mark.parametrize("changes", [(), TWO_GPUS_IN_BF16, ("workload.arrivals.concurrency=8",)])
def test_with_every_mechanism_off_the_closed_form_is_met(changes: tuple[str, ...]) -> None:
    answer = row(changes=changes)
    root = root_of(answer)
    assert root.half_width < 0.005
    assert abs(root.value - closed_form(answer, MEAN_OUTPUT_TOKENS)) < 2 * root.half_width


@pytest.mark.parametrize(
    ("mechanism", "changes"),
    [
        ("prefill", ()),
        ("kv_limit", TWO_GPUS_IN_BF16),
        ("heterogeneity", UNLIKE_REQUESTS),
        ("stop_trim", SHORT),
        ("ghost_rows", SHORT),
    ],
)
def test_each_mechanism_raises_the_break_even_by_more_than_the_intervals(
    mechanism: str, changes: tuple[str, ...]
) -> None:
    """Drafting on prefill rows, a drafter that takes KV, the harmonic mean, cut rounds, ghosts."""
    off, on = root_of(row(None, changes)), root_of(row(mechanism, changes))
    assert off.ci95 is not None
    assert on.ci95 is not None
    assert on.ci95[0] > off.ci95[1]


def test_short_outputs_raise_it_above_the_geometric_one_by_more_than_the_interval() -> None:
    answer = row("stop_trim", SHORT)
    root = root_of(answer)
    assert root.ci95 is not None
    assert answer.geometric_alpha is not None
    assert root.ci95[0] > answer.geometric_alpha
    long = row("stop_trim")
    assert root.value - answer.geometric_alpha > root_of(long).value - (long.geometric_alpha or 1)


def test_above_capacity_the_break_even_is_where_simulated_throughputs_are_equal() -> None:
    """Rates are those of the full engine: over the arrivals alone, both variants would mostly read
    prompts.
    """
    crowd = [
        "workload.arrivals={kind: poisson, rate_per_s: 60}",
        "workload.requests=2000",
        "engine.max_num_seqs=128",
        "run.replications=3",
    ]
    answer = breakeven(load_scenario(EXAMPLE, crowd), metrics=["throughput"]).rows[0]
    root = root_of(answer)
    at_root = load_scenario(EXAMPLE, [*crowd, f"speculation.eagle3-k3.acceptance.alpha={root.value}"])
    speedup = simulate(at_root).comparison["eagle3-k3"].ratios["throughput_speedup"]
    assert speedup is not None
    assert speedup.ci95 is not None
    assert speedup.ci95[0] <= 1 <= speedup.ci95[1]
