"""The largest load that one replica serves within the SLO.

It is the root of a score that rises with the logarithm of the load. The root search uses common random
numbers. Every replication has its own root, and the spread of the roots gives the sampling interval. Searches
with longer and shorter steps carry the cost model's error through to the band.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.capacity.demand import RATE, USERS
from experiments.capacity.replica import FULL, Replica, ReplicaRun
from simulator.breakeven.root_search import ALWAYS, FOUND, UNREACHABLE, Evaluate, Root, RootSearch, ScoredRun
from simulator.numerics.roots import bracketed_root
from simulator.results.estimate import Estimate, mean_estimate

if TYPE_CHECKING:
    from experiments.capacity.slo import LimitCheck

TOLERANCE = 0.03
"""Tolerance of the search, as a fraction of the load."""
_IDLE_SHARE = 0.02
"""Mean number of requests in flight at the smallest load of the search."""
_LEAST_LENGTHENING = 1.5
"""Runs are made longer only if the number of requests grows by at least this factor."""
_BINDING_RATIO = 0.8
_SATURATED_SHARE = 0.85
"""Above this share of the saturation load, a limit whose ratio is below `_BINDING_RATIO` does not bind."""
_SATURATED_SCORE = 5.0
"""Least score of a saturated run."""

SATURATION = "saturation"
"""`limited_by` of a replica that meets the SLO up to saturation."""


@dataclass(frozen=True)
class Capacity:
    """The load that one replica serves. `amount` is None where one request at a time already misses the SLO.

    `saturation_load` is independent of the SLO: the rate of a full engine, or the users that keep it full.
    `limited_by` names the binding limit. `idle` is the worst limit with one request at a time. `requests` is
    the length of the runs. `within_model_error`: `amount` is None, and would not be at an end of the band.
    """

    amount: Estimate | None
    saturation_load: Estimate
    limited_by: str
    idle: LimitCheck
    requests: int
    within_model_error: bool = False


class LoadSearch:
    """The search for one replica. `kind` is the kind of load: RATE or USERS."""

    def __init__(
        self, replica: Replica, kind: str, replications: int, band: float, decodes_only: bool = False
    ) -> None:
        """`band`: relative error of the step times; 0 skips the band, which is quicker.

        `decodes_only`: the error is that of the ratio to plain decoding, which computes the same prompts.
        """
        self.replica, self.kind = replica, kind
        self.replications, self.band, self.decodes_only = replications, band, decodes_only

    def capacity(self, guess: float | None = None) -> Capacity:
        """The largest load within the SLO. The search starts at `guess`."""
        idle, bound = self.replica.run_at(FULL, 1), self._saturation_load(1).value
        low, high = math.log(lowest_load(idle, self.kind, bound)), math.log(bound)
        worst = self.replica.slo.worst(idle.figures)
        requests = self.replica.min_requests
        search = self._search(low, high, requests)
        if high <= low:
            return self._without_root(
                Root(ALWAYS if worst.ratio > 1 else UNREACHABLE), search, worst, requests
            )
        root = search.find(_first_guess(guess, low, high))
        requests_needed = self._requests_needed(root, bound, requests)
        if requests_needed > _LEAST_LENGTHENING * requests:
            requests = requests_needed
            search = self._search(low, high, requests)
            root = search.find(low if root.value is None else root.value.value)
        if root.outcome != FOUND or root.value is None:
            return self._without_root(root, search, worst, requests)
        amount = exponential(root.value)
        load = amount.value if self.kind == RATE else max(1.0, math.floor(amount.value))
        binding = self.replica.slo.worst(self.replica.run_at(self.kind, load, requests=requests).figures)
        is_saturated = amount.value > _SATURATED_SHARE * bound and binding.ratio < _BINDING_RATIO
        limited_by = SATURATION if is_saturated else binding.limit.label
        return Capacity(amount, self._saturation_load(self.replications), limited_by, worst, requests)

    def _requests_needed(self, root: Root, bound: float, requests: int) -> int:
        """Requests that a run at the load of `root` needs. Closed loops are already long enough."""
        if self.kind == USERS or root.outcome == ALWAYS:
            return requests
        load = bound if root.value is None else math.exp(root.value.value)
        return self.replica.requests_needed(self.replica.run_at(RATE, load, requests=requests).in_flight)

    def _without_root(self, root: Root, search: RootSearch, idle: LimitCheck, requests: int) -> Capacity:
        """The capacity where the search found no root."""
        most = self._saturation_load(self.replications)
        if root.outcome == ALWAYS:
            band = root.value.band if root.value is not None else None
            perhaps = band is not None and band[1] > search.low
            return Capacity(None, most, idle.limit.label, idle, requests, perhaps)
        if root.outcome == UNREACHABLE:
            return Capacity(most, most, SATURATION, idle, requests)
        # The score rises with the load by less than its noise, so the root has no interval.
        return Capacity(self._mean_root(search), most, idle.limit.label, idle, requests)

    def _search(self, low: float, high: float, requests: int) -> RootSearch:
        def score(load: float, replication: int, scale: float) -> float:
            run = self.replica.run_at(
                self.kind,
                load,
                replication,
                requests=requests,
                step_scale=scale,
                decodes_only=self.decodes_only,
            )
            slo_score = self.replica.slo.score(run.figures)
            return max(slo_score, _SATURATED_SCORE) if run.saturated else slo_score

        return RootSearch(
            score_by_log_load(self.kind, score),
            self.replications,
            self.band,
            low=low,
            high=high,
            tolerance=TOLERANCE,
        )

    def _saturation_load(self, replications: int) -> Estimate:
        """The load of a full engine: the rate that it serves, or the users that fill it."""
        max_requests = self.replica.max_running_requests
        requests = self.replica.requests_needed(max_requests / 4)
        runs = [self.replica.run_at(FULL, max_requests, i, requests=requests) for i in range(replications)]
        served_loads = [run.figures["request_rate_per_s"] for run in runs]
        if self.kind == USERS:  # pausing users do not run a request: interactive response time law
            pause_s = getattr(self.replica.scenario.workload.arrivals, "think_time_s", 0.0)
            served_loads = [max_requests + math.floor(rate * pause_s) for rate in served_loads]
        estimate = mean_estimate(served_loads)
        assert estimate is not None
        return estimate

    def _mean_root(self, search: RootSearch) -> Estimate:
        def mean_score(x: float) -> float:
            return sum(search.evaluate(x, i, 1.0).score for i in range(self.replications))

        return Estimate(math.exp(bracketed_root(mean_score, search.low, search.high, tolerance=TOLERANCE)))


def score_by_log_load(kind: str, score: Callable[[float, int, float], float]) -> Evaluate:
    """A score of (load, replication, step scale) by ln load, linear between numbers of users."""

    def evaluate(x: float, replication: int, scale: float) -> ScoredRun:
        load = math.exp(x)
        if kind == RATE:
            return ScoredRun(score(load, replication, scale))
        below = max(1, math.floor(load + 1e-9))
        at_below = score(below, replication, scale)
        if load <= below + 1e-9:
            return ScoredRun(at_below)
        share = math.log(load / below) / math.log1p(1 / below)
        return ScoredRun(at_below + (score(below + 1, replication, scale) - at_below) * share)

    return evaluate


def lowest_load(idle: ReplicaRun, kind: str, highest: float) -> float:
    """The lower end of a search: a load at which requests hardly ever overlap."""
    return 1.0 if kind == USERS else min(_IDLE_SHARE / idle.figures["e2e_s.mean"], highest / 10)


def exponential(logarithm: Estimate) -> Estimate:
    """The estimate of e^x."""

    def exp(interval: tuple[float, float] | None) -> tuple[float, float] | None:
        return interval and (math.exp(interval[0]), math.exp(interval[1]))

    return Estimate(math.exp(logarithm.value), exp(logarithm.ci95), exp(logarithm.band))


def _first_guess(guess: float | None, low: float, high: float) -> float:
    return (low + 2 * high) / 3 if guess is None else min(max(math.log(guess), low), high)
