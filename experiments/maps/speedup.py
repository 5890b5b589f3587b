"""Maps of the speedup by load and acceptance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.breakeven.evaluator import DoesNotFitError
from simulator.scenario import with_workload

if TYPE_CHECKING:
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario, Variant

CONCURRENCIES = (1, 4, 16, 32, 64, 128, 256, 512)
"""Concurrent clients of a map, as far as they fit."""

ALPHAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

_MIN_DISTANCE = 0.04
"""The scenario's acceptance replaces rows of a map that are closer to it than this."""

_MIN_REQUESTS = 400
_ROUNDS_OF_CLIENTS = 8
"""Requests of a run, in total or per client, in place of the scenario's number. Both variants meet the same
random numbers, so their ratio is far more precise than either throughput.
"""

_ROUNDS_OF_BREAK_EVEN = 12
"""Requests per client that a break-even over the load needs."""

_METRIC = "throughput_tokens_per_s"


@dataclass(frozen=True)
class SpeedupMap:
    """Throughput of one variant ÷ that of plain decoding in closed loops, one run of each on common random
    numbers.

    `draft_length` is the variant's longest; a variant whose K varies with the batch keeps its table or
    policy. `speedup[i][j]` belongs to `alpha[i]` and `concurrency[j]`; None where the variants do not fit the
    memory.
    """

    variant: str
    draft_length: int
    alpha: tuple[float, ...]
    concurrency: tuple[int, ...]
    speedup: tuple[tuple[float | None, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """The map as plain data."""
        return {
            "arm": self.variant,
            "draft_length": self.draft_length,
            "metric": "throughput",
            "alpha": list(self.alpha),
            "concurrency": list(self.concurrency),
            "speedup": [list(row) for row in self.speedup],
        }


def speedup_map_from_json(document: Mapping[str, Any]) -> SpeedupMap:
    """The map from the JSON of `SpeedupMap.to_json`."""
    return SpeedupMap(
        str(document["arm"]),
        int(document["draft_length"]),
        tuple(document["alpha"]),
        tuple(document["concurrency"]),
        tuple(tuple(row) for row in document["speedup"]),
    )


def concurrencies(scenario: Scenario, variant: Variant) -> tuple[int, ...]:
    """The loads of a map: the scenario's own and those of `CONCURRENCIES` that can run at once."""
    from simulator.memory.report import gpu_memory
    from simulator.scenario import engine_preset

    preset, _ = engine_preset(scenario)
    max_requests = (
        min(preset.max_num_seqs, gpu_memory(scenario, variant).max_concurrency) * scenario.hardware.replicas
    )
    arrivals = scenario.workload.arrivals
    own_load = {arrivals.concurrency} if arrivals.kind == "closed" else set()
    return tuple(sorted({n for n in CONCURRENCIES if n <= max_requests} | own_load | {1}))


def alphas_with(scenario_alpha: float | None) -> tuple[float, ...]:
    """The acceptances of a map: `ALPHAS`, and the scenario's own where it has one."""
    if scenario_alpha is None:
        return ALPHAS
    return tuple(
        sorted({alpha for alpha in ALPHAS if abs(alpha - scenario_alpha) >= _MIN_DISTANCE} | {scenario_alpha})
    )


def with_enough_requests(scenario: Scenario, loads: Sequence[int]) -> Scenario:
    """The scenario with enough requests for a steady state at the largest of these loads."""
    requests = max(scenario.workload.requests, _ROUNDS_OF_BREAK_EVEN * max(loads))
    return with_workload(scenario, requests=requests)


def requests_for_ratio(clients: int) -> int:
    """Requests of a run whose ratio to another run on common random numbers is precise; 0 clients: no closed
    loop.
    """
    return max(_MIN_REQUESTS, _ROUNDS_OF_CLIENTS * clients)


def speedup_map(
    scenario: Scenario,
    variant: Variant,
    loads: Sequence[int] | None = None,
    alphas: Sequence[float] = ALPHAS,
    progress: Progress | None = None,
) -> SpeedupMap:
    """Simulate plain decoding and the variant, with its own draft length, at every load and acceptance.

    `loads` defaults to `concurrencies`. Raises InputError where the variant's acceptance has no α, or the
    traffic cannot run as a closed loop.
    """
    concurrencies_run = concurrencies(scenario, variant) if loads is None else tuple(loads)
    columns: list[list[float | None]] = []
    for load in concurrencies_run:
        columns.append(_column(scenario, variant, load, alphas))
        if progress is not None:
            progress(len(columns), len(concurrencies_run), f"speedup map, {load:,} clients")
    rows = tuple(zip(*columns, strict=True)) if columns else tuple(() for _ in alphas)
    return SpeedupMap(variant.name, variant.max_draft_length, tuple(alphas), concurrencies_run, rows)


def _column(scenario: Scenario, variant: Variant, load: int, alphas: Sequence[float]) -> list[float | None]:
    """The speedups at one load, one per acceptance."""
    from simulator.breakeven.simulated_evaluator import SimulatedEvaluator

    long_scenario = with_workload(scenario, requests=requests_for_ratio(load))
    evaluator = SimulatedEvaluator(long_scenario, variant, {"concurrency": load}, own_draft_length=True)
    try:
        plain = evaluator.plain(0)[_METRIC]
        runs = [evaluator.speculative(variant.max_draft_length, alpha, 0, 1.0)[_METRIC] for alpha in alphas]
    except DoesNotFitError:
        return [None for _ in alphas]
    return [run / plain if plain > 0 else None for run in runs]
