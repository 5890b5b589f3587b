"""The chosen candidate: its capacity with a band, and a long run that confirms the SLO."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.capacity.candidates import Candidate, Candidates
from experiments.capacity.demand import RATE, whole_users
from experiments.capacity.load_search import Capacity, LoadSearch
from experiments.token_cost import gpu_hours
from simulator.results.estimate import Estimate

if TYPE_CHECKING:
    from experiments.capacity.replica import ReplicaSetting
    from experiments.capacity.slo import LimitCheck
    from simulator.results.summary import VariantMeasurement
    from simulator.results.variant_summary import VariantSummary

CONFIRMATION_FACTOR = 3
"""The runs that confirm an answer are longer than those of the search by this factor."""
_MAX_ADDITIONS = 5
"""How often replicas are added when the confirmation run misses the SLO."""


@dataclass(frozen=True)
class Deployment:
    """Replicas of one setting that serve the demand within the SLO, confirmed by a long run.

    `measurement` and `summary` are of one replica at `load`, its share of the peak. `worst_limit` is the
    limit with the least margin. `gpu_hours_per_million_tokens` is for the mean demand on the replicas of the
    peak, `gpu_hours_per_million_tokens_when_scaled` for replicas that follow the demand. `tpot_at_mean_s` is
    the mean TPOT at the mean demand. The last two are None where the demand is constant.
    """

    setting: ReplicaSetting
    capacity: Capacity
    replicas: int
    load: float
    measurement: VariantMeasurement
    summary: VariantSummary
    worst_limit: LimitCheck
    gpu_hours_per_million_tokens: float
    gpu_hours_per_million_tokens_when_scaled: float | None
    tpot_at_mean_s: float | None
    headroom: float
    possible_replicas: tuple[int, int]

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.setting.tensor_parallel

    @property
    def confirmed(self) -> bool:
        """Whether the confirmation run meets the SLO."""
        return self.worst_limit.ratio <= 1


def deploy(candidates: Candidates, candidate: Candidate) -> Deployment:
    """The deployment of a candidate that serves the demand."""
    assert candidate.capacity is not None
    assert candidate.capacity.amount is not None
    demand, setting = candidates.demand, candidate.setting
    replica = candidates.replica(setting)
    search = LoadSearch(replica, demand.kind, candidates.replications, candidates.band)
    capacity = search.capacity(candidate.capacity.amount.value)
    if capacity.amount is None:  # from another starting point: the first answer is kept, without a band
        capacity = candidate.capacity
    assert capacity.amount is not None
    replicas, additions_left = demand.safe_replicas(capacity.amount), _MAX_ADDITIONS
    while True:
        load = demand.replica_load(replicas)
        requests = CONFIRMATION_FACTOR * capacity.requests
        measurement = replica.measurement(
            demand.kind, load, requests, candidates.replications, candidates.band
        )
        summary = measurement.summary()
        worst_limit = candidates.slo.worst(summary.values())
        if worst_limit.ratio <= 1 or additions_left == 0 or demand.replica_load(replicas + 1) == load:
            break
        replicas, additions_left = max(replicas + 1, math.ceil(1.02 * replicas)), additions_left - 1
    candidates.report(f"{setting.name}, confirmed")
    fewest, most = demand.possible_replicas(capacity.amount)
    amount = capacity.amount.value if demand.kind == RATE else whole_users(capacity.amount.value)
    tokens_per_s = candidates.tokens_per_s(load, measurement.samples["throughput_tokens_per_s"])
    return Deployment(
        setting=setting,
        capacity=capacity,
        replicas=replicas,
        load=load,
        measurement=measurement,
        summary=summary,
        worst_limit=worst_limit,
        gpu_hours_per_million_tokens=gpu_hours(replicas * setting.tensor_parallel, tokens_per_s),
        gpu_hours_per_million_tokens_when_scaled=_gpu_hours_when_scaled(candidates, setting, capacity.amount),
        tpot_at_mean_s=_tpot_at_mean_s(candidates, setting, replicas, capacity.requests),
        headroom=amount * replicas / demand.peak - 1,
        possible_replicas=(fewest, max(most, replicas)),
    )


def _gpu_hours_when_scaled(candidates: Candidates, setting: ReplicaSetting, amount: Estimate) -> float | None:
    """GPU-hours per million tokens for replicas that follow a profile."""
    demand = candidates.demand
    if len(demand.rows) < 2:
        return None
    gpu_s = tokens = 0.0
    for seconds, load in demand.rows:
        replicas = demand.safe_replicas(amount, load) if load else 0
        gpu_s += seconds * replicas * setting.tensor_parallel
        tokens += seconds * load * candidates.tokens_per_request
    return gpu_hours(gpu_s, tokens)  # sums over the same time


def _tpot_at_mean_s(
    candidates: Candidates, setting: ReplicaSetting, replicas: int, requests: int
) -> float | None:
    """Mean TPOT at the mean of a profile."""
    demand = candidates.demand
    if demand.mean == demand.peak:
        return None
    runs = candidates.runs_at(setting, demand.replica_load(replicas, demand.mean), requests)
    return sum(run.figures["tpot_s.mean"] for run in runs) / len(runs)


def served_tokens_ratio(candidates: Candidates, plain: Deployment, drafting: Deployment) -> Estimate | None:
    """Tokens per second and GPU within the SLO, with speculation ÷ without. None without intervals.

    The band scales the decodes of the speculative variant, as in all comparisons.
    """
    replica = candidates.replica(drafting.setting)
    search = LoadSearch(replica, candidates.demand.kind, candidates.replications, candidates.band, True)
    assert drafting.capacity.amount is not None
    assert plain.capacity.amount is not None
    amount = search.capacity(drafting.capacity.amount.value).amount
    if amount is None or amount.band is None or amount.ci95 is None or plain.capacity.amount.ci95 is None:
        return None

    def log_work(deployment: Deployment, load: float, scale: float = 1.0) -> float:
        """ln of the tokens per second and GPU at a load of one replica; at rates, ln of the load per GPU."""
        if candidates.demand.kind == RATE:
            return math.log(load / deployment.setting.tensor_parallel)
        runs = candidates.runs_at(
            deployment.setting, max(1, whole_users(load)), deployment.capacity.requests, scale
        )
        tokens = sum(run.figures["throughput_tokens_per_s"] for run in runs) / len(runs)
        return math.log(tokens / deployment.setting.tensor_parallel)

    work, low, high = (log_work(drafting, load) for load in (amount.value, *amount.ci95))
    lowest = log_work(drafting, amount.band[0], 1 + candidates.band)
    highest = log_work(drafting, amount.band[1], 1 - candidates.band)
    plain_work, least, most = (
        log_work(plain, load) for load in (plain.capacity.amount.value, *plain.capacity.amount.ci95)
    )
    value = work - plain_work

    def interval(below: float, above: float) -> tuple[float, float]:
        return (
            math.exp(value - math.hypot(work - below, most - plain_work)),
            math.exp(value + math.hypot(above - work, plain_work - least)),
        )

    return Estimate(math.exp(value), interval(low, high), interval(lowest, highest))
