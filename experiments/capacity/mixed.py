"""A mixed fleet: each traffic class on its own replicas, with speculation where that is cheaper.

It helps where classes differ in lengths, acceptance or limits. Its price is that replicas are not shared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from experiments.capacity.candidates import Candidate, Candidates
from experiments.capacity.demand import USERS
from simulator.scenario import with_workload

if TYPE_CHECKING:
    from experiments.capacity.demand import Demand
    from experiments.capacity.replica import ReplicaSetting
    from simulator.scenario import Scenario, TrafficClass

MAX_CLASSES = 4


@dataclass(frozen=True)
class ClassFleet:
    """The replicas of one traffic class."""

    name: str
    demand: Demand
    best: Candidate

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "class": self.name,
            "load": self.demand.peak,
            "arm": self.best.setting.name,
            "tensor_parallel": self.best.setting.tensor_parallel,
            "replicas": self.best.replicas,
            "gpus": self.best.gpus,
        }


def mixed_fleet(
    candidates: Candidates, settings: tuple[ReplicaSetting, ...]
) -> tuple[ClassFleet, ...] | None:
    """The cheapest of `settings` for each class; None without classes, or if a class misses its SLO."""
    classes = candidates.scenario.workload.traffic_classes
    if not 2 <= len(classes) <= MAX_CLASSES:
        return None
    fleets = [
        _class_fleet(candidates, traffic_class, settings)
        for traffic_class in classes
        if traffic_class.share > 0
    ]
    return tuple(fleets) if all(fleet.best.replicas is not None for fleet in fleets) else None


def _class_fleet(
    candidates: Candidates, traffic_class: TrafficClass, settings: tuple[ReplicaSetting, ...]
) -> ClassFleet:
    demand = _class_demand(candidates.demand, traffic_class.share)
    class_candidates = Candidates(
        scenario_of_class(candidates.scenario, traffic_class),
        candidates.slo.of_class(traffic_class.name),
        demand,
        candidates.replications,
        candidates.band,
        lambda step: candidates.report(f"{traffic_class.name}: {step}"),
    )
    return ClassFleet(
        traffic_class.name,
        demand,
        min((class_candidates.candidate(setting) for setting in settings), key=lambda c: c.rank),
    )


def _class_demand(demand: Demand, share: float) -> Demand:
    rows = tuple((seconds, load * share) for seconds, load in demand.rows)
    peak = demand.peak * share
    if demand.kind == USERS:
        peak = float(max(1, round(peak)))
    return replace(demand, peak=peak, mean=demand.mean * share, low=demand.low * share, rows=rows)


def scenario_of_class(scenario: Scenario, traffic_class: TrafficClass) -> Scenario:
    """The scenario with the requests of one class only."""
    return with_workload(scenario, classes=(traffic_class.model_copy(update={"share": 1.0}),))
