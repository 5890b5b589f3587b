"""A candidate chosen: its capacity with its band, and a long run at the planned load that keeps the SLO."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.capacity.candidates import SECONDS_PER_HOUR, Candidate, Candidates, gpu_hours
from experiments.capacity.demand import RATE, whole
from experiments.capacity.load_search import Capacity, LoadSearch
from simulator.results.estimate import Estimate

if TYPE_CHECKING:
    from experiments.capacity.replica import Setting
    from experiments.capacity.slo import Reached
    from simulator.results.summary import VariantMeasurement
    from simulator.results.variant_summary import VariantSummary

LONGER = 3
"""The runs that confirm an answer are so many times as long as those that found it."""
_MOST_ADDED = 5
"""So often replicas are added when the long run misses the SLO."""


@dataclass(frozen=True)
class Deployment:
    """Replicas of one setting that carry the demand within the SLO, as a long run confirmed.

    `measurement` and `summary` are of one replica at `load`, its part of the peak. `worst` is the limit that
    it keeps by least. `gpu_hours_per_million_tokens` is that of the mean demand on the replicas of the peak.
    None where the demand does not change: `when_scaled`, if replicas followed it, and `tpot_at_mean_s`, the
    mean TPOT at the mean demand.
    """

    setting: Setting
    capacity: Capacity
    replicas: int
    load: float
    measurement: VariantMeasurement
    summary: VariantSummary
    worst: Reached
    gpu_hours_per_million_tokens: float
    when_scaled: float | None
    tpot_at_mean_s: float | None
    headroom: float
    possible_replicas: tuple[int, int]

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.setting.tensor_parallel

    @property
    def confirmed(self) -> bool:
        """Whether the long run keeps the SLO."""
        return self.worst.ratio <= 1


def deploy(candidates: Candidates, candidate: Candidate) -> Deployment:
    """The candidate as it would be run. `candidate` must carry the demand."""
    assert candidate.capacity is not None
    assert candidate.capacity.amount is not None
    demand, setting = candidates.demand, candidate.setting
    replica = candidates.replica(setting)
    search = LoadSearch(replica, demand.kind, candidates.replications, candidates.band)
    capacity = search.capacity(candidate.capacity.amount.value)
    if capacity.amount is None:  # found again from another start: the first answer stands, without its band
        capacity = candidate.capacity
    assert capacity.amount is not None
    replicas, left = demand.safe_replicas(capacity.amount), _MOST_ADDED
    while True:
        load = demand.of_one(replicas)
        requests = LONGER * capacity.requests
        measurement = replica.measurement(
            demand.kind, load, requests, candidates.replications, candidates.band
        )
        summary = measurement.summary()
        worst = candidates.slo.worst(summary.values())
        if worst.ratio <= 1 or left == 0 or demand.of_one(replicas + 1) == load:
            break
        replicas, left = max(replicas + 1, math.ceil(1.02 * replicas)), left - 1
    candidates.tell(f"{setting.name}, confirmed")
    fewest, most = demand.possible_replicas(capacity.amount)
    amount = capacity.amount.value if demand.kind == RATE else whole(capacity.amount.value)
    tokens_per_s = candidates.tokens_per_s(load, measurement.samples["throughput_tokens_per_s"])
    return Deployment(
        setting=setting,
        capacity=capacity,
        replicas=replicas,
        load=load,
        measurement=measurement,
        summary=summary,
        worst=worst,
        gpu_hours_per_million_tokens=gpu_hours(replicas * setting.tensor_parallel, tokens_per_s),
        when_scaled=_when_scaled(candidates, setting, capacity.amount),
        tpot_at_mean_s=_tpot_at_mean_s(candidates, setting, replicas, capacity.requests),
        headroom=amount * replicas / demand.peak - 1,
        possible_replicas=(fewest, max(most, replicas)),
    )


def _when_scaled(candidates: Candidates, setting: Setting, amount: Estimate) -> float | None:
    """GPU-hours for a million tokens if the replicas followed a profile."""
    demand = candidates.demand
    if len(demand.rows) < 2:
        return None
    gpu_s = tokens = 0.0
    for seconds, load in demand.rows:
        replicas = demand.safe_replicas(amount, load) if load else 0
        gpu_s += seconds * replicas * setting.tensor_parallel
        tokens += seconds * load * candidates.tokens_per_request
    return gpu_s / SECONDS_PER_HOUR / tokens * 1e6


def _tpot_at_mean_s(candidates: Candidates, setting: Setting, replicas: int, requests: int) -> float | None:
    """Mean TPOT at the mean of a profile."""
    demand = candidates.demand
    if demand.mean == demand.peak:
        return None
    runs = candidates.runs_at(setting, demand.of_one(replicas, demand.mean), requests)
    return sum(run.figures["tpot_s.mean"] for run in runs) / len(runs)


def work_ratio(candidates: Candidates, plain: Deployment, drafting: Deployment) -> Estimate | None:
    """Tokens per second within the SLO of a GPU with speculation ÷ without.

    The band scales the decodes of the speculative variant, as all comparisons do. None without intervals.
    """
    replica = candidates.replica(drafting.setting)
    search = LoadSearch(replica, candidates.demand.kind, candidates.replications, candidates.band, True)
    assert drafting.capacity.amount is not None
    assert plain.capacity.amount is not None
    amount = search.capacity(drafting.capacity.amount.value).amount
    if amount is None or amount.band is None or amount.ci95 is None or plain.capacity.amount.ci95 is None:
        return None

    def log_work(one: Deployment, load: float, scale: float = 1.0) -> float:
        """ln of the tokens per second and GPU at a load of one replica; at rates those that are asked for."""
        if candidates.demand.kind == RATE:
            return math.log(load / one.setting.tensor_parallel)
        runs = candidates.runs_at(one.setting, max(1, whole(load)), one.capacity.requests, scale)
        tokens = sum(run.figures["throughput_tokens_per_s"] for run in runs) / len(runs)
        return math.log(tokens / one.setting.tensor_parallel)

    here, low, high = (log_work(drafting, load) for load in (amount.value, *amount.ci95))
    lowest = log_work(drafting, amount.band[0], 1 + candidates.band)
    highest = log_work(drafting, amount.band[1], 1 - candidates.band)
    there, least, most = (
        log_work(plain, load) for load in (plain.capacity.amount.value, *plain.capacity.amount.ci95)
    )
    value = here - there

    def around(below: float, above: float) -> tuple[float, float]:
        return (
            math.exp(value - math.hypot(here - below, most - there)),
            math.exp(value + math.hypot(above - here, there - least)),
        )

    return Estimate(math.exp(value), around(low, high), around(lowest, highest))
