"""The plan as it is told: verdict, best way, schedule, replicas, cost, what would change it; and its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.capacity.candidates import Candidate
from simulator.results.catalogue import paths_shown
from simulator.results.metric import Detail

if TYPE_CHECKING:
    from experiments.capacity.crossover import Crossover
    from experiments.capacity.decision import Decision
    from experiments.capacity.demand import Demand
    from experiments.capacity.deployment import Deployment
    from experiments.capacity.grid import Point
    from experiments.capacity.mixed import ClassFleet
    from experiments.capacity.schedule import Schedule
    from experiments.capacity.slo import Slo
    from simulator.results.estimate import Estimate

SCHEMA = "decodesim/plan-1"


@dataclass(frozen=True)
class BetterDrafter:
    """What a drafter with a higher acceptance would do."""

    alpha: float
    better_alpha: float
    best: Candidate


@dataclass(frozen=True)
class BreakEvenAlpha:
    """The acceptance at which the best variant and plain decoding tie, at one replica's part of the peak."""

    alpha: Estimate | None
    scenario_alpha: float | None
    metric: str
    verdict: str


@dataclass(frozen=True)
class Plan:
    """Everything that is told. `plain` and `speculative` are None where that way does not keep the SLO."""

    demand: Demand
    slo: Slo
    decision: Decision
    best: Candidate
    """The best speculative way, whether it is taken or not."""
    plain: Deployment | None
    speculative: Deployment | None
    work_ratio: Estimate | None
    schedule: Schedule | None
    schedule_speedup: Estimate | None
    """Mean TPOT at the planned load, best single draft length ÷ schedule."""
    crossing: Crossover | None
    crossing_tensor_parallel: int | None
    break_even: BreakEvenAlpha | None
    better_drafter: BetterDrafter | None
    mixed: Sequence[ClassFleet] | None
    front: Sequence[Point]
    alternatives: Sequence[Candidate]
    gpu_hour_cost: float | None
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cost_unit(self) -> str:
        """What costs are in."""
        return "GPU-hours" if self.gpu_hour_cost is None else "currency of the GPU hour"

    def cost(self, gpu_hours: float | None) -> float | None:
        """GPU-hours in that unit."""
        return None if gpu_hours is None else gpu_hours * (self.gpu_hour_cost or 1.0)

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim plan`."""
        both = {"plain": self.plain, "speculative": self.speculative}
        return {
            "schema": SCHEMA,
            "verdict": self.decision.verdict,
            "reason": self.decision.reason,
            "enable_below": self.decision.below,
            "load_unit": self.demand.unit,
            "traffic": {"peak": self.demand.peak, "mean": self.demand.mean, "low": self.demand.low},
            "slo": [{"limit": one.path, "label": one.label, "most": one.most} for one in self.slo.limits],
            "slo_of_requests": dict(self.slo.each_s),
            "best": {
                "arm": self.best.setting.name,
                "method": self.best.setting.variant.method if self.best.setting.variant else None,
                "draft_length": self.best.setting.draft_length,
                "tensor_parallel": self.best.setting.tensor_parallel,
                "keeps_slo": self.best.replicas is not None,
            },
            "schedule": None if self.schedule is None else self.schedule.to_json(),
            "schedule_speedup": _json(self.schedule_speedup),
            "replicas": {name: one and one.replicas for name, one in both.items()},
            "replicas_band": {name: one and list(one.possible_replicas) for name, one in both.items()},
            "tensor_parallel": {name: one and one.setting.tensor_parallel for name, one in both.items()},
            "gpus": {name: one and one.gpus for name, one in both.items()},
            "cost_unit": self.cost_unit,
            "cost_per_million_tokens": {
                name: one and self.cost(one.gpu_hours_per_million_tokens) for name, one in both.items()
            },
            "cost_per_million_tokens_when_scaled": {
                name: one and self.cost(one.when_scaled) for name, one in both.items()
            },
            "capacity": {name: one and _json(one.capacity.amount) for name, one in both.items()},
            "limited_by": {name: one and one.capacity.limited_by for name, one in both.items()},
            "saturation": {name: one and one.capacity.most.to_json() for name, one in both.items()},
            "headroom": {name: one and one.headroom for name, one in both.items()},
            "at_peak": {name: one and self._at_peak(one) for name, one in both.items()},
            "tpot_at_mean_s": {name: one and one.tpot_at_mean_s for name, one in both.items()},
            "tokens_within_slo_ratio": _json(self.work_ratio),
            "crossover": self._crossover(),
            "break_even": self._break_even(),
            "value_of_better_drafter": self._better_drafter(),
            "mixed_fleet": self._mixed(),
            "pareto": [_point(one) for one in self.front],
            "alternatives": [self.alternative(one) for one in self.alternatives],
            "provenance": dict(self.provenance),
            "notes": list(self.notes),
        }

    def _at_peak(self, one: Deployment) -> dict[str, Any]:
        """One replica at its part of the peak."""
        paths = dict.fromkeys((*paths_shown(Detail.TABLE), *(limit.path for limit in self.slo.limits)))
        figures = {path: _json(one.summary.estimates.get(path)) for path in paths}
        return {"load": one.load, "keeps_slo": one.confirmed, "figures": figures}

    def _crossover(self) -> dict[str, Any] | None:
        found = self.crossing
        if found is None:
            return None
        return {
            "outcome": found.outcome,
            "unit": self.demand.unit,
            "per_replica": _json(found.load),
            "highest_looked_at": found.highest,
            "pays_when_idle": found.idle_pays,
            "tensor_parallel": self.crossing_tensor_parallel,
        }

    def _break_even(self) -> dict[str, Any] | None:
        found = self.break_even
        if found is None:
            return None
        return {
            "alpha": _json(found.alpha),
            "scenario_alpha": found.scenario_alpha,
            "metric": found.metric,
            "verdict": found.verdict,
        }

    def _better_drafter(self) -> dict[str, Any] | None:
        found = self.better_drafter
        if found is None:
            return None
        before, after = self.speculative, found.best
        cost = self.cost(before.gpu_hours_per_million_tokens) if before else None
        return {
            "alpha": found.alpha,
            "better_alpha": found.better_alpha,
            **self.alternative(after),
            "replicas_saved": _saved(before.replicas if before else None, after.replicas),
            "gpus_saved": _saved(before.gpus if before else None, after.gpus),
            "cost_saved": _saved(cost, self.cost(after.gpu_hours_per_million_tokens)),
        }

    def _mixed(self) -> dict[str, Any] | None:
        if self.mixed is None:
            return None
        gpus = sum(fleet.best.gpus or 0 for fleet in self.mixed)
        shared = [one.gpus for one in (self.plain, self.speculative) if one is not None]
        return {
            "gpus": gpus,
            "gpus_of_the_best_shared_fleet": min(shared, default=None),
            "classes": [fleet.to_json() for fleet in self.mixed],
        }

    def alternative(self, one: Candidate) -> dict[str, Any]:
        """One candidate as plain data."""
        return {
            "arm": one.setting.name,
            "draft_length": one.setting.draft_length,
            "gpu": one.setting.gpu,
            "tensor_parallel": one.setting.tensor_parallel,
            "capacity": _json(one.capacity.amount) if one.capacity else None,
            "replicas": one.replicas,
            "gpus": one.gpus,
            "cost_per_million_tokens": self.cost(one.gpu_hours_per_million_tokens),
            "tpot_mean_s": one.tpot_s,
            "why_not": one.why_not,
        }


def _saved(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else before - after


def _json(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else estimate.to_json()


def _point(one: Point) -> dict[str, Any]:
    return {
        "arm": one.setting.name,
        "draft_length": one.setting.draft_length,
        "tensor_parallel": one.setting.tensor_parallel,
        "concurrency": one.concurrency,
        "tokens_per_s_per_gpu": one.tokens_per_s_per_gpu,
        "tokens_per_s_per_user": one.tokens_per_s_per_user,
    }
