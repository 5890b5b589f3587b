"""Host times with which the simulation gives the measured TPOT and TTFT, and what is left of other figures.

The step's exposed host time is found for every run by its mean TPOT. Runs at several loads tell the time of a
step from the time of each sequence. What then is left of the mean TTFT is the request's way in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.replay.baseline import RESIDUALS, Baseline
from simulator.numerics.roots import bracketed_root

if TYPE_CHECKING:
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario

SCHEMA = "decodesim/replay-1"
_TOLERANCE = 0.002
"""Of a fitted time, as a share of the measured TPOT."""


@dataclass(frozen=True)
class Replay:
    """The answer. `residual`: run → metric → measured, simulated, ln(simulated ÷ measured)."""

    scenario: Scenario
    fitted: Mapping[str, float]
    residual: Mapping[str, Mapping[str, Mapping[str, float]]]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim replay`."""
        errors: dict[str, list[float]] = {}
        for metrics in self.residual.values():
            for metric, row in metrics.items():
                errors.setdefault(metric, []).append(abs(row["error"]))
        return {
            "schema": SCHEMA,
            "fitted": dict(self.fitted),
            "residual": {metric: {"mean_abs_log_error": fmean(values)} for metric, values in errors.items()},
            "runs": {
                name: {k: dict(v) for k, v in metrics.items()} for name, metrics in self.residual.items()
            },
            "scenario": self.scenario.model_dump(mode="json"),
            "notes": list(self.notes),
        }


def replay(scenario: Scenario, runs: Sequence[Baseline], progress: Progress | None = None) -> Replay:
    """Fit a scenario to runs of plain decoding. Raises InputError where the scenario cannot run."""
    total = 2 * len(runs) + 1
    notes: list[str] = []
    steps_s: list[float] = []
    for number, run in enumerate(runs, start=1):
        step_s = _step_s(run, run.scenario(scenario))
        if step_s is None:
            notes.append(
                f"{run.name}: the measured TPOT is shorter than the simulated one without any host time: the "
                "profile is of a slower device"
            )
        steps_s.append(step_s or 0.0)
        if progress is not None:
            progress(number, total, run.name)
    step_s, per_sequence_s = _line([run.clients for run in runs], steps_s)
    host = {"step_s": step_s, "per_sequence_s": per_sequence_s}
    latencies = [_latency_s(run, _with_host(run.scenario(scenario), host)) for run in runs]
    known = [latency for latency in latencies if latency is not None]
    if known:
        host["request_latency_s"] = max(fmean(known), 0.0)
    fitted = _with_host(scenario, host)
    residual = {}
    for number, run in enumerate(runs, start=len(runs) + 1):
        residual[run.name] = _residual(run, run.scenario(fitted))
        if progress is not None:
            progress(number, total, run.name)
    return Replay(
        fitted, {f"engine.host.{name}": value for name, value in host.items()}, residual, tuple(notes)
    )


def _with_host(scenario: Scenario, host: Mapping[str, float]) -> Scenario:
    engine = scenario.engine
    changed = engine.model_copy(update={"host": engine.host.model_copy(update=dict(host))})
    return scenario.model_copy(update={"engine": changed})


def _figures(scenario: Scenario) -> dict[str, float]:
    """Figures of plain decoding."""
    from simulator.simulation import simulate

    return simulate(scenario, keep_requests=False).variants["plain"].values()


def _step_s(run: Baseline, scenario: Scenario) -> float | None:
    """The host time of a step that gives the measured mean TPOT; None where even none is too much."""
    measured_s = run.measured("tpot_mean")
    assert measured_s is not None

    def excess_s(step_s: float) -> float:
        host = {"step_s": step_s, "per_sequence_s": 0.0}
        return _figures(_with_host(scenario, host))["tpot_s.mean"] - measured_s

    if excess_s(0.0) >= 0:
        return None
    return bracketed_root(excess_s, 0.0, measured_s, tolerance=_TOLERANCE * measured_s)


def _line(clients: Sequence[int], steps_s: Sequence[float]) -> tuple[float, float]:
    """(time of a step, time of each sequence), neither below 0; one load tells the first alone."""
    if len(set(clients)) < 2:
        return fmean(steps_s), 0.0
    slope_s, start_s = np.polyfit(clients, steps_s, 1)
    if slope_s <= 0:
        return fmean(steps_s), 0.0
    if start_s < 0:
        return 0.0, float(np.dot(clients, steps_s) / np.dot(clients, clients))
    return float(start_s), float(slope_s)


def _latency_s(run: Baseline, scenario: Scenario) -> float | None:
    """What is left of the mean TTFT, on top of the preset's way in."""
    measured_s = run.measured("ttft_mean")
    if measured_s is None:
        return None
    host = {"request_latency_s": 0.0}
    return measured_s - _figures(_with_host(scenario, host))["ttft_s.mean"]


def _residual(run: Baseline, scenario: Scenario) -> dict[str, dict[str, float]]:
    figures = _figures(scenario)
    rows = {}
    for metric in ("throughput", *RESIDUALS):
        path = "throughput_tokens_per_s" if metric == "throughput" else ".".join(RESIDUALS[metric])
        measured, simulated = run.measured(metric), figures.get(path)
        if measured and simulated:
            error = math.log(simulated / measured)
            rows[metric] = {"measured": measured, "simulated": simulated, "error": error}
    return rows
