"""A measured run without speculation, and the scenario that should give the same figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibration.telemetry.reading import LATENCIES
from experiments.advice.runs import readings_by_run
from experiments.advice.traffic import measured_clients, traffic_overrides
from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from simulator.scenario import Scenario

RESIDUALS = {
    f"{latency.removesuffix('_s')}_{statistic}": (latency, statistic)
    for latency in LATENCIES
    for statistic in ("mean", "p99")
}
"""Metric of the residual → where readings and results have it."""
_FEWEST_REQUESTS, _ROUNDS = 400, 8


@dataclass(frozen=True)
class Baseline:
    """One run. `clients`: requests that the server had at once."""

    name: str
    reading: Mapping[str, Any]
    clients: int

    def measured(self, metric: str) -> float | None:
        """A figure of the run, s or tokens/s; None where the files do not have it."""
        if metric == "throughput":
            value = self.reading["throughput_tokens_per_s"]
        else:
            latency, statistic = RESIDUALS[metric]
            value = self.reading.get(latency, {}).get(statistic)
        return None if value is None else float(value)

    def scenario(self, scenario: Scenario) -> Scenario:
        """The deployment under this run's load and lengths, without speculation."""
        from simulator.scenario import scenario_from_data

        data = scenario.model_dump(mode="json")
        data["speculation"] = []
        data["workload"]["arrivals"] = {"kind": "closed", "concurrency": self.clients}
        data["workload"]["requests"] = max(_FEWEST_REQUESTS, _ROUNDS * self.clients)
        data["run"] |= {"replications": 2, "precision": None}
        return scenario_from_data(data, scenario.base_dir, traffic_overrides(self.reading))


def baselines(files: Sequence[str]) -> list[Baseline]:
    """The runs in the files. Raises InputError where one speculates, or does not tell its load or TPOT."""
    runs = []
    for name, reading in readings_by_run(files).items():
        clients = measured_clients(reading)
        problem = None
        if reading["mean_acceptance_length"] is not None:
            problem = "is of a run with speculation", "a run of plain decoding"
        elif clients is None:
            problem = (
                "does not tell how many requests ran at once",
                "a benchmark result, or metrics before and after",
            )
        elif reading["tpot_s"].get("mean") is None:
            problem = "has no mean TPOT", "a benchmark result, or metrics before and after"
        if problem is not None or clients is None:
            message, allowed = problem or ("", "")
            raise InputError(Problem(name, message=message, allowed=allowed))
        runs.append(Baseline(name, reading, clients))
    return sorted(runs, key=lambda run: run.clients)
