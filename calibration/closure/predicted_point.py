"""Predicts a point: a scenario on the new profile, its step times and its break-even."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.closure.measured_point import MeasuredPoint
from calibration.decoder.shape import DecoderShape
from simulator.breakeven.breakeven import breakeven
from simulator.breakeven.root_search import ALWAYS, FOUND
from simulator.engines.preset import SCHEMA
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario
from simulator.scenario.load import scenario_from_data

_LAUNCHED = "torch-2"
"""The preset of a loop that launches its operators one by one."""
_MAX_IN_GRAPH = 256
_OUTPUT_TOKENS = 400
_REQUESTS_PER_CLIENT = 40
_ANY_ALPHA = 0.5
_FREE = dict.fromkeys(("prefill", "context_growth", "stop_trim", "kv_limit"), False)
"""Mechanisms that are switched off, because only decoding at one context is measured."""


@dataclass(frozen=True)
class PredictedPoint:
    """The simulator's prediction of a point, in s. `speedups`: by dialled acceptance."""

    plain_s: float
    plain_pass_s: float
    verify_s: float
    draft_pass_s: float
    cycle_s: float
    outcome: str
    break_even_alpha: float | None
    speedups: dict[float, float]

    @property
    def verify_ratio(self) -> float:
        """Verify pass ÷ plain pass."""
        return self.verify_s / self.plain_pass_s


def preset_of(on_gpu: bool, folder: Path) -> str:
    """The preset of the loop. On a GPU it is a file next to the profile, because each pass is a graph of its
    size.
    """
    if not on_gpu:
        return _LAUNCHED
    sizes = {"graph_sizes": [[1, _MAX_IN_GRAPH, 1]], "graph_unit": "tokens", "full_graphs": True}
    preset = {"schema": SCHEMA, "inherits": _LAUNCHED, "name": "torch-2-graphs"} | sizes
    path = folder / "torch-2-graphs.json"
    path.write_text(json.dumps(preset | {"piecewise_graphs": True}, indent=1), "utf-8")
    return str(path)


def predict(
    measured: MeasuredPoint, profile: Path, shape: DecoderShape, preset: str = _LAUNCHED
) -> PredictedPoint:
    """Predict step times at the measured contexts, and the break-even acceptance.

    Of the measurement it uses the contexts and the dialled acceptances, but never a time. Configs of drafters
    are written next to the profile.
    """
    point = measured.point
    plain_context, context = measured.contexts
    scenario = scenario_of(measured, profile, shape, preset)
    plain = CompiledVariant.compile(scenario, None).step_times(point.batch, plain_context, 0)
    variant = CompiledVariant.compile(scenario, scenario.speculation[0])
    cycle = variant.step_times(point.batch, context, point.draft_length)
    alphas = [dial.alpha for dial in measured.dials]
    (row,) = breakeven(scenario, metrics=("throughput",), alphas=alphas).rows
    alpha = row.simulated_alpha
    outcome = row.verdict if alpha is None else ALWAYS if alpha.value == 0 else FOUND
    return PredictedPoint(
        plain_s=plain["total"],
        plain_pass_s=plain["verify"],
        verify_s=cycle["verify"],
        draft_pass_s=cycle["draft"] / point.draft_length,
        cycle_s=cycle["total"],
        outcome=outcome,
        break_even_alpha=alpha.value if alpha is not None and outcome == FOUND else None,
        speedups=_speedups(row.speedup_at, alphas),
    )


def _speedups(estimates_by_text: Any, alphas: Sequence[float]) -> dict[float, float]:
    estimates = {alpha: estimates_by_text[f"{alpha:g}"] for alpha in alphas}
    return {alpha: estimate.value for alpha, estimate in estimates.items() if estimate is not None}


def scenario_of(measured: MeasuredPoint, profile: Path, shape: DecoderShape, preset: str) -> Scenario:
    """The point as a scenario: a closed loop of its batch, with constant contexts."""
    point = measured.point
    prompt = round(sum(measured.contexts) / 2) - _OUTPUT_TOKENS // 2 + 1
    variant = {
        "name": "speculative",
        "method": "draft_model",
        "draft": str(_drafter_config(profile.parent, shape, point.draft_layers)),
        "draft_length": point.draft_length,
        "draft_sampling": "sampled" if point.temperature else "greedy",
        "acceptance": {"model": "geometric", "alpha": _ANY_ALPHA},
    }
    data = {
        "target": {"model": shape.name},
        "hardware": {"gpu": str(profile)},
        "engine": {"preset": preset},
        "speculation": [variant],
        "workload": {
            "arrivals": {"kind": "closed", "concurrency": point.batch},
            "requests": _REQUESTS_PER_CLIENT * point.batch,
            "prompt_tokens": {"kind": "fixed", "tokens": prompt},
            "output_tokens": {"kind": "fixed", "tokens": _OUTPUT_TOKENS},
            "ends": "max_tokens",
            "temperature": point.temperature,
        },
        "run": {"replications": 3, "mechanisms": _FREE},
    }
    return scenario_from_data(data)


def _drafter_config(folder: Path, shape: DecoderShape, layers: int) -> Path:
    """The path of the config.json of a decoder's first layers."""
    path = folder / f"first-{layers}-layers" / "config.json"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(_config(shape, layers), indent=1), "utf-8")
    return path


def _config(shape: DecoderShape, layers: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.max_context_tokens,
        "tie_word_embeddings": True,
    }
