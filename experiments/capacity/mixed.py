"""A fleet of two kinds: each traffic class on replicas of its own, with speculation where that is cheaper.

Meaningful where classes differ in lengths, acceptance or limits; the price is that replicas are not shared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from experiments.capacity.candidates import Candidate, Candidates
from experiments.capacity.demand import USERS
from simulator.scenario import with_workload

if TYPE_CHECKING:
    from experiments.capacity.demand import Demand
    from experiments.capacity.replica import Setting
    from simulator.scenario import Scenario, TrafficClass

MOST_CLASSES = 4


@dataclass(frozen=True)
class ClassFleet:
    """The replicas of one class."""

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


def mixed_fleet(candidates: Candidates, settings: tuple[Setting, ...]) -> tuple[ClassFleet, ...] | None:
    """The cheapest of `settings` for each class by itself; None without classes, or if one keeps no SLO."""
    classes = candidates.scenario.workload.traffic_classes
    if not 2 <= len(classes) <= MOST_CLASSES:
        return None
    fleets = [_of_class(candidates, entry, settings) for entry in classes if entry.share > 0]
    return tuple(fleets) if all(fleet.best.replicas is not None for fleet in fleets) else None


def _of_class(candidates: Candidates, entry: TrafficClass, settings: tuple[Setting, ...]) -> ClassFleet:
    demand = _part(candidates.demand, entry.share)
    alone = Candidates(
        only_class(candidates.scenario, entry),
        candidates.slo.of_class(entry.name),
        demand,
        candidates.replications,
        candidates.band,
        lambda what: candidates.tell(f"{entry.name}: {what}"),
    )
    return ClassFleet(entry.name, demand, min((alone.tried(one) for one in settings), key=lambda c: c.rank))


def _part(demand: Demand, share: float) -> Demand:
    rows = tuple((seconds, load * share) for seconds, load in demand.rows)
    peak = demand.peak * share
    if demand.kind == USERS:
        peak = float(max(1, round(peak)))
    return replace(demand, peak=peak, mean=demand.mean * share, low=demand.low * share, rows=rows)


def only_class(scenario: Scenario, entry: TrafficClass) -> Scenario:
    """The scenario with the requests of one class alone."""
    return with_workload(scenario, classes=(entry.model_copy(update={"share": 1.0}),))
