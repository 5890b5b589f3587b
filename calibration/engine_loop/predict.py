"""A cell as a scenario on the calibrated profile and preset, and what the simulator predicts for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from calibration.engine_loop.checkpoints import SMOLLM2, checkpoint
from calibration.engine_loop.matrix import PLAIN, PROMPT_TOKENS, EngineVariant, LoopCell
from calibration.engine_loop.raw import Figures
from calibration.validation.predict import PredictionInput, run_figures
from simulator.errors import InputError, Problem
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario
from simulator.scenario.load import scenario_from_data

_SEEDS = 8
"""Random numbers that a prediction is averaged over: a cell of a few requests says little about what is
accepted in it, and its acceptance is counted.
"""
_NOT_LIMITED = {"kv_limit": False}
"""The KV cache of a cell is never full, and its size is not calibrated."""


@dataclass(frozen=True)
class Calibrated:
    """The files that a prediction rests on, in one folder, and the folder of the networks."""

    folder: Path
    checkpoints: Path

    @property
    def profile(self) -> Path:
        """The profile of this machine."""
        return self.folder / "profile.json"

    @property
    def preset(self) -> Path:
        """The preset of this engine."""
        return self.folder / "preset.json"

    def acceptance(self, variant: EngineVariant) -> Path:
        """What the engine accepts of a variant's drafts, as `decodesim read` reports it."""
        return self.folder / f"acceptance-{variant.name}.json"


def scenario_data(
    cell: LoopCell, variant: EngineVariant, files: Calibrated, prompt_tokens: float, acceptance: Path | None
) -> dict[str, Any]:
    """The scenario of a cell. `acceptance`: a document of `decodesim read`, for a variant that drafts."""
    arrivals: dict[str, Any] = {"kind": "closed", "concurrency": cell.clients}
    if cell.clients is None:
        arrivals = {"kind": "poisson", "rate_per_s": cell.rate_per_s}
    speculation: dict[str, Any] = {
        "name": variant.name,
        "method": variant.method,
        "draft_length": variant.draft_length,
        "draft_sampling": "greedy",
        "acceptance": {"file": str(acceptance)},
    }
    if variant.draft_layers is not None:
        speculation["draft"] = str(checkpoint(files.checkpoints, variant.draft_layers) / "config.json")
    return {
        "target": {"model": SMOLLM2},
        "hardware": {"gpu": str(files.profile)},
        "engine": {"preset": str(files.preset)},
        "speculation": [speculation] if variant.method else [],
        "workload": {
            "arrivals": arrivals,
            "requests": cell.requests,
            "prompt_tokens": {"kind": "fixed", "tokens": round(prompt_tokens)},
            "output_tokens": {"kind": "fixed", "tokens": cell.output_tokens},
            "ends": "max_tokens",
            "temperature": 0.0,
        },
        "run": {"mechanisms": _NOT_LIMITED},
    }


def predict(data: Mapping[str, Any], sent: int) -> Figures:
    """What the client of a scenario would report over the requests that it sends, on average."""
    scenario = scenario_from_data(data)
    variant = CompiledVariant.compile(scenario, scenario.speculation[0] if scenario.speculation else None)
    runs = []
    for seed in range(_SEEDS):
        run = scenario.run.model_copy(update={"seed": seed})
        seeded = replace(variant, scenario=scenario.model_copy(update={"run": run}))
        figures = run_figures(seeded, PredictionInput(None, None, sent=sent))
        if figures is None:
            raise InputError(Problem(message="a cell of the engine loop does not fit the simulated memory"))
        runs.append(figures)
    return Figures.of_simulation({path: fmean(run[path] for run in runs) for path in runs[0]})


def plain_step_s(clients: int, context_tokens: float, files: Calibrated) -> float:
    """The time of a plain decode step of this many requests, in seconds."""
    cell = LoopCell(PLAIN, clients, 2, clients)
    scenario: Scenario = scenario_from_data(
        scenario_data(cell, EngineVariant(PLAIN), files, PROMPT_TOKENS, None)
    )
    return float(CompiledVariant.compile(scenario, None).step_times(clients, context_tokens, 0)["total"])


def write_json(path: Path, document: Any) -> None:
    """Write a document as a whole."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document) + "\n", "utf-8")
    partial.replace(path)
