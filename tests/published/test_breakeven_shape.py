"""The map of the break-even for Llama-3.3-70B FP8 with an EAGLE-3 head on H100,
K = 3, against a prototype's figures.

The ranges are those of a cost model fitted to the same public kernel tables (two and four GPUs); the
tolerance is its own band, ±10 % on step times, about ±0.05 in α. "Break-even rises to 0.45–0.55 at high
concurrency" is one region of the map: K = 1, batch 256, 1k of context.
"""

from functools import cache
from pathlib import Path

import pytest

from simulator.breakeven.breakeven import breakeven
from simulator.breakeven.simulated_evaluator import SimulatedEvaluator
from simulator.breakeven.theory import required_alpha_geometric
from simulator.scenario import load_scenario

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama-3.3-70b-eagle3-h100.yaml"
BAND = 0.05
GPUS = (2, 4)


@cache
def evaluator(gpus: int, context_tokens: int) -> SimulatedEvaluator:
    scenario = load_scenario(
        EXAMPLE,
        [
            f"hardware.tensor_parallel={gpus}",
            f"speculation.eagle3-k3.draft_tensor_parallel={gpus}",
            f"workload.prompt_tokens={{kind: fixed, tokens: {context_tokens - 100}}}",
            "workload.output_tokens={kind: fixed, tokens: 200}",
            "run.mechanisms.kv_limit=false",
        ],
    )
    return SimulatedEvaluator(scenario, scenario.speculation[0])


def alpha(gpus: int, batch: int, context_tokens: int = 1000, draft_length: int = 3) -> float:
    """Break-even of costs alone at one point of the map."""
    here = evaluator(gpus, context_tokens)
    overhead = here.step_s(draft_length, batch) / here.step_s(0, batch) - 1
    needed = required_alpha_geometric(overhead, draft_length)
    assert needed is not None
    return needed


@pytest.mark.parametrize("gpus", GPUS)
@pytest.mark.parametrize(
    ("batch", "context_tokens", "low", "high"),
    [
        (1, 1000, 0.12, 0.15),
        (64, 1000, 0.34, 0.41),
        (256, 1000, 0.72, 0.76),
        (256, 4000, 0.59, 0.64),
        (256, 8000, 0.48, 0.51),
        (256, 16_000, 0.36, 0.36),
    ],
)
def test_break_even_is_where_the_prototype_had_it(
    gpus: int, batch: int, context_tokens: int, low: float, high: float
) -> None:
    assert low - BAND <= alpha(gpus, batch, context_tokens) <= high + BAND


@pytest.mark.parametrize("gpus", GPUS)
def test_the_round_figure_of_the_literature_holds_for_one_draft_at_batch_256(gpus: int) -> None:
    assert 0.48 - BAND <= alpha(gpus, 256, draft_length=1) <= 0.55 + BAND
    assert alpha(gpus, 256, draft_length=3) > 0.55 + BAND, "not for three"
    assert alpha(gpus, 256, 8000, draft_length=1) < 0.45 - BAND, "not with long contexts"
    assert alpha(gpus, 32, draft_length=1) < 0.45 - BAND, "not at batch 32"


@pytest.mark.parametrize("gpus", GPUS)
def test_break_even_rises_with_the_batch_and_falls_with_the_context(gpus: int) -> None:
    by_batch = [alpha(gpus, batch) for batch in (32, 64, 128, 256)]
    assert by_batch == sorted(by_batch)
    for batch in (64, 128, 256):
        by_context = [alpha(gpus, batch, context) for context in (1000, 4000, 8000, 16_000)]
        assert by_context == sorted(by_context, reverse=True)


def test_simulated_break_even_has_the_same_shape() -> None:
    """With everything on: 0.1–0.2 at one request, and rising beyond 32."""
    scenario = load_scenario(
        EXAMPLE, ["workload.prompt_tokens={kind: fixed, tokens: 900}", "run.replications=3"]
    )
    rows = breakeven(scenario, [{"concurrency": n} for n in (1, 32, 64, 128, 256)]).rows
    values = [row.simulated_alpha.value for row in rows if row.simulated_alpha is not None]
    assert 0.1 <= values[0] <= 0.2
    assert values == sorted(values)
    assert len(values) == 5
