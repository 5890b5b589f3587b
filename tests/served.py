"""One variant beside plain decoding, from a few words: what a test of a published report simulates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.results.measure import measure
from simulator.runs.replications import make_traffic, replication_seed
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario, scenario_from_data

TOKENS_PER_S = "throughput_tokens_per_s"
LLAMA_8B = {"model": "llama-3.1-8b-instruct", "draft": "eagle3-llama-3.1-8b"}


def served(
    model: str,
    draft_length: int = 3,
    *,
    draft: str | None = None,
    method: str = "eagle3",
    acceptance: Mapping[str, Any] | None = None,
    clients: int = 1,
    prompt_tokens: int = 500,
    output_tokens: int = 300,
    **settings: Any,
) -> Scenario:
    """A scenario with one variant; `settings` are dotted paths with `__` for the dot."""
    variant = {
        "name": "spec",
        "method": method,
        "draft_length": draft_length,
        "acceptance": dict(acceptance or {"model": "geometric", "alpha": 0.7}),
        **({"draft": draft} if draft else {}),
    }
    document: dict[str, Any] = {
        "target": {"model": model},
        "hardware": {"gpu": "h100-sxm"},
        "engine": {"preset": "vllm-0.33"},
        "speculation": [variant],
        "workload": {
            "arrivals": {"kind": "closed", "concurrency": clients},
            "requests": max(12, 6 * clients),
            "prompt_tokens": {"kind": "fixed", "tokens": prompt_tokens},
            "output_tokens": {"kind": "fixed", "tokens": output_tokens},
            "ends": "max_tokens",
        },
    }
    for path, value in settings.items():
        *parents, last = path.split("__")
        place: Any = document
        for name in parents:
            place = variant if name == "variant" else place.setdefault(name, {})
        place[last] = value
    return scenario_from_data(document)


def figures(scenario: Scenario, plain: bool = False) -> dict[str, float]:
    """What one run of the variant, or of plain decoding, gave."""
    variant = CompiledVariant.compile(scenario, None if plain else scenario.speculation[0])
    record = variant.run(make_traffic(scenario, 0), replication_seed(scenario.run.seed, 0))
    return measure(record, (), {}, scenario.hardware.replicas, False)


def speedup(scenario: Scenario, metric: str = TOKENS_PER_S) -> float:
    """Speculative ÷ plain of a rate; plain ÷ speculative of a latency."""
    ratio = figures(scenario)[metric] / figures(scenario, plain=True)[metric]
    return ratio if metric == TOKENS_PER_S else 1 / ratio


def step_ratio(scenario: Scenario, sequences: int, context_tokens: float) -> float:
    """A speculative step ÷ a plain one, all requests alike."""
    spec = CompiledVariant.compile(scenario, scenario.speculation[0])
    plain = CompiledVariant.compile(scenario, None)
    times = [variant.step_times(sequences, context_tokens)["total"] for variant in (spec, plain)]
    return times[0] / times[1]


def survival_of(acceptance_lengths: list[float]) -> list[float]:
    """Acceptance lengths at K = 1, 2, … → share of rounds whose position j was accepted."""
    return [b - a for a, b in zip([1.0, *acceptance_lengths], acceptance_lengths, strict=False)]


def of_length(acceptance_length: float, draft_length: int) -> dict[str, Any]:
    """Geometric acceptance with a mean acceptance length."""
    return {
        "model": "geometric",
        "mean_acceptance_length": acceptance_length,
        "at_draft_length": draft_length,
    }
