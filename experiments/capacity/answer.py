"""The answer of `plan` and its JSON: verdict, best candidate, schedule, replicas, cost, and what would change
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.capacity.candidates import Candidate
from simulator.results.catalogue import COMPARED, paths_shown
from simulator.results.comparison import ratio_of
from simulator.results.estimate import Estimate
from simulator.results.metric import Detail

if TYPE_CHECKING:
    from calibration.launch.launch import Artefact
    from experiments.capacity.crossover import Crossover
    from experiments.capacity.decision import PlanDecision
    from experiments.capacity.demand import Demand
    from experiments.capacity.deployment import Deployment
    from experiments.capacity.grid import LoadPoint
    from experiments.capacity.mixed import ClassFleet
    from experiments.capacity.schedule import Schedule
    from experiments.capacity.slo import SloLimits

SCHEMA = "decodesim/plan-1"


@dataclass(frozen=True)
class BetterDrafter:
    """The best candidate with a drafter of higher acceptance."""

    alpha: float
    better_alpha: float
    best: Candidate


@dataclass(frozen=True)
class BreakEvenAlpha:
    """The acceptance at which the best variant and plain decoding tie, at one replica's share of the peak."""

    alpha: Estimate | None
    scenario_alpha: float | None
    metric: str
    verdict: str


@dataclass(frozen=True)
class CapacityPlan:
    """The complete answer. `plain` and `speculative` are None where that variant does not meet the SLO."""

    demand: Demand
    slo: SloLimits
    decision: PlanDecision
    best: Candidate
    """The best speculative candidate, whatever the verdict."""
    plain: Deployment | None
    speculative: Deployment | None
    served_tokens_ratio: Estimate | None
    schedule: Schedule | None
    schedule_speedup: Estimate | None
    """Mean TPOT at the planned load, best single draft length ÷ schedule."""
    crossover: Crossover | None
    crossover_tensor_parallel: int | None
    break_even: BreakEvenAlpha | None
    better_drafter: BetterDrafter | None
    mixed: Sequence[ClassFleet] | None
    pareto_front: Sequence[LoadPoint]
    alternatives: Sequence[Candidate]
    engine: Mapping[str, Artefact]
    """Engine → what starts it with the plan's choice."""
    gpu_hour_cost: float | None
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cost_unit(self) -> str:
        """The unit of costs."""
        return "GPU-hours" if self.gpu_hour_cost is None else "currency of the GPU hour"

    def cost(self, gpu_hours: float | None) -> float | None:
        """GPU-hours converted to `cost_unit`."""
        return None if gpu_hours is None else gpu_hours * (self.gpu_hour_cost or 1.0)

    def gains(self) -> dict[str, Estimate | None]:
        """What speculation changes at the peak, each variant on its own replicas: GPUs, tokens within the SLO
        per GPU, and the comparisons of `simulate`. Empty where a variant does not meet the SLO.
        """
        before, after = self.plain, self.speculative
        if before is None or after is None:
            return {}
        return {
            "gpus_ratio": Estimate(after.gpus / before.gpus),
            "tokens_within_slo_ratio": self.served_tokens_ratio,
            **{name: ratio_of(name, before.measurement, after.measurement) for name in COMPARED},
        }

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim plan`."""
        deployments = {"plain": self.plain, "speculative": self.speculative}

        def by_variant(value: Callable[[Deployment], Any]) -> dict[str, Any]:
            return {
                name: None if deployment is None else value(deployment)
                for name, deployment in deployments.items()
            }

        return {
            "schema": SCHEMA,
            "verdict": self.decision.verdict,
            "reason": self.decision.reason,
            "enable_below": self.decision.below,
            "load_unit": self.demand.unit,
            "traffic": {"peak": self.demand.peak, "mean": self.demand.mean, "low": self.demand.low},
            "slo": [
                {"limit": limit.path, "label": limit.label, "most": limit.maximum}
                for limit in self.slo.limits
            ],
            "slo_of_requests": dict(self.slo.each_s),
            "best": {
                "arm": self.best.setting.name,
                "method": self.best.setting.variant.method if self.best.setting.variant else None,
                "draft_length": self.best.setting.draft_length,
                "tensor_parallel": self.best.setting.tensor_parallel,
                "keeps_slo": self.best.replicas is not None,
            },
            "schedule": None if self.schedule is None else self.schedule.to_json(),
            "schedule_speedup": _estimate_json(self.schedule_speedup),
            "replicas": by_variant(lambda deployment: deployment.replicas),
            "replicas_band": by_variant(lambda deployment: list(deployment.possible_replicas)),
            "tensor_parallel": by_variant(lambda deployment: deployment.setting.tensor_parallel),
            "gpus": by_variant(lambda deployment: deployment.gpus),
            "cost_unit": self.cost_unit,
            "cost_per_million_tokens": by_variant(
                lambda deployment: self.cost(deployment.gpu_hours_per_million_tokens)
            ),
            "cost_per_million_tokens_when_scaled": by_variant(
                lambda deployment: self.cost(deployment.gpu_hours_per_million_tokens_when_scaled)
            ),
            "capacity": by_variant(lambda deployment: _estimate_json(deployment.capacity.amount)),
            "limited_by": by_variant(lambda deployment: deployment.capacity.limited_by),
            "saturation": by_variant(lambda deployment: deployment.capacity.saturation_load.to_json()),
            "headroom": by_variant(lambda deployment: deployment.headroom),
            "at_peak": by_variant(self._at_peak),
            "tpot_at_mean_s": by_variant(lambda deployment: deployment.tpot_at_mean_s),
            "tokens_within_slo_ratio": _estimate_json(self.served_tokens_ratio),
            "gains": {name: _estimate_json(estimate) for name, estimate in self.gains().items()},
            "crossover": self._crossover(),
            "break_even": self._break_even(),
            "value_of_better_drafter": self._better_drafter(),
            "mixed_fleet": self._mixed(),
            "engine": {name: artefact.text or None for name, artefact in self.engine.items()},
            "engine_files": {
                file: text for artefact in self.engine.values() for file, text in artefact.files.items()
            },
            "engine_notes": {
                name: [str(option) for option in artefact.unstated] for name, artefact in self.engine.items()
            },
            "pareto": [_point_json(point) for point in self.pareto_front],
            "alternatives": [self.alternative(candidate) for candidate in self.alternatives],
            "provenance": dict(self.provenance),
            "notes": list(self.notes),
        }

    def _at_peak(self, deployment: Deployment) -> dict[str, Any]:
        """Figures of one replica at its share of the peak."""
        paths = dict.fromkeys((*paths_shown(Detail.TABLE), *(limit.path for limit in self.slo.limits)))
        figures = {path: _estimate_json(deployment.summary.estimates.get(path)) for path in paths}
        return {"load": deployment.load, "keeps_slo": deployment.confirmed, "figures": figures}

    def _crossover(self) -> dict[str, Any] | None:
        crossover = self.crossover
        if crossover is None:
            return None
        return {
            "outcome": crossover.outcome,
            "unit": self.demand.unit,
            "per_replica": _estimate_json(crossover.load),
            "highest_looked_at": crossover.highest_load,
            "pays_when_idle": crossover.idle_pays,
            "tensor_parallel": self.crossover_tensor_parallel,
        }

    def _break_even(self) -> dict[str, Any] | None:
        break_even = self.break_even
        if break_even is None:
            return None
        return {
            "alpha": _estimate_json(break_even.alpha),
            "scenario_alpha": break_even.scenario_alpha,
            "metric": break_even.metric,
            "verdict": break_even.verdict,
        }

    def _better_drafter(self) -> dict[str, Any] | None:
        better_drafter = self.better_drafter
        if better_drafter is None:
            return None
        before, after = self.speculative, better_drafter.best
        cost = self.cost(before.gpu_hours_per_million_tokens) if before else None
        return {
            "alpha": better_drafter.alpha,
            "better_alpha": better_drafter.better_alpha,
            **self.alternative(after),
            "replicas_saved": _difference(before.replicas if before else None, after.replicas),
            "gpus_saved": _difference(before.gpus if before else None, after.gpus),
            "cost_saved": _difference(cost, self.cost(after.gpu_hours_per_million_tokens)),
        }

    def _mixed(self) -> dict[str, Any] | None:
        if self.mixed is None:
            return None
        gpus = sum(fleet.best.gpus or 0 for fleet in self.mixed)
        shared = [deployment.gpus for deployment in (self.plain, self.speculative) if deployment is not None]
        return {
            "gpus": gpus,
            "gpus_of_the_best_shared_fleet": min(shared, default=None),
            "classes": [fleet.to_json() for fleet in self.mixed],
        }

    def alternative(self, candidate: Candidate) -> dict[str, Any]:
        """One candidate as plain data."""
        return {
            "arm": candidate.setting.name,
            "draft_length": candidate.setting.draft_length,
            "gpu": candidate.setting.gpu,
            "tensor_parallel": candidate.setting.tensor_parallel,
            "capacity": _estimate_json(candidate.capacity.amount) if candidate.capacity else None,
            "replicas": candidate.replicas,
            "gpus": candidate.gpus,
            "cost_per_million_tokens": self.cost(candidate.gpu_hours_per_million_tokens),
            "tpot_mean_s": candidate.tpot_s,
            "why_not": candidate.why_not,
        }


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else before - after


def _estimate_json(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else estimate.to_json()


def _point_json(point: LoadPoint) -> dict[str, Any]:
    return {
        "arm": point.setting.name,
        "draft_length": point.setting.draft_length,
        "tensor_parallel": point.setting.tensor_parallel,
        "concurrency": point.concurrency,
        "tokens_per_s_per_gpu": point.tokens_per_s_per_gpu,
        "tokens_per_s_per_user": point.tokens_per_s_per_user,
    }
