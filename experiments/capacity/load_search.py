"""The largest load that one replica carries within the SLO, and the load up to which speculation pays.

Both are roots of a score that rises with the logarithm of the load, found by the one root search on common
luck: every replication has its own root, their spread is the sampling interval, and the cost model's error is
carried through by searching again with longer and shorter steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.capacity.demand import RATE, USERS
from experiments.capacity.replica import FULL, Replica, Seen
from simulator.breakeven.root_search import ALWAYS, FOUND, UNREACHABLE, Evaluate, Root, RootSearch, ScoredRun
from simulator.numerics.roots import bracketed_root
from simulator.results.estimate import Estimate, mean_estimate

if TYPE_CHECKING:
    from experiments.capacity.slo import Reached

TOLERANCE = 0.03
"""Half-width that the search aims at, as a fraction of the load."""
_IDLE_SHARE = 0.02
"""The smallest load looked at keeps this many requests under way."""
_WORTH_LENGTHENING = 1.5
"""Runs that should be longer by less than this stay as they are."""
_BINDS = 0.8
_NEARLY_FULL = 0.85
"""Close to the most that is served, a limit that is not used up so far is not what ends the load."""
_MISSED = 5.0
"""Score of a run that serves less than is asked."""

SATURATION = "saturation"
"""What limits a replica that keeps the SLO up to the most it can serve."""


@dataclass(frozen=True)
class Capacity:
    """What one replica carries. `amount` is None where the SLO is missed even with one request at a time.

    `most` is the load at which it saturates, whatever the SLO: the rate of a full engine, or the users that
    keep it full. `limited_by` names the limit that binds. `idle` is the worst limit with one request at a
    time, `requests` the length of the runs. `perhaps`: the amount is None only within the cost model's error.
    """

    amount: Estimate | None
    most: Estimate
    limited_by: str
    idle: Reached
    requests: int
    perhaps: bool = False


class LoadSearch:
    """The search for one replica; `kind` is that of the load, rate or users."""

    def __init__(
        self, replica: Replica, kind: str, replications: int, band: float, decodes_only: bool = False
    ) -> None:
        """`band`: relative error of the step times, 0 to leave it out, which is quicker. `decodes_only`: it
        is the error of the ratio to plain decoding, which computes the same prompts.
        """
        self.replica, self.kind = replica, kind
        self.replications, self.band, self.decodes_only = replications, band, decodes_only

    def capacity(self, guess: float | None = None) -> Capacity:
        """The largest load within the SLO; `guess` is where to look first."""
        idle, bound = self.replica.seen(FULL, 1), self._most(1).value
        low, high = math.log(lowest_load(idle, self.kind, bound)), math.log(bound)
        worst = self.replica.slo.worst(idle.figures)
        requests = self.replica.fewest_requests
        search = self._search(low, high, requests)
        if high <= low:
            return self._ends(Root(ALWAYS if worst.ratio > 1 else UNREACHABLE), search, worst, requests)
        root = search.find(_between(guess, low, high))
        wanted = self._requests_wanted(root, bound, requests)
        if wanted > _WORTH_LENGTHENING * requests:
            requests = wanted
            search = self._search(low, high, requests)
            root = search.find(low if root.value is None else root.value.value)
        if root.outcome != FOUND or root.value is None:
            return self._ends(root, search, worst, requests)
        amount = exponential(root.value)
        at = amount.value if self.kind == RATE else max(1.0, math.floor(amount.value))
        binding = self.replica.slo.worst(self.replica.seen(self.kind, at, requests=requests).figures)
        full = amount.value > _NEARLY_FULL * bound and binding.ratio < _BINDS
        limited_by = SATURATION if full else binding.limit.label
        return Capacity(amount, self._most(self.replications), limited_by, worst, requests)

    def _requests_wanted(self, root: Root, bound: float, requests: int) -> int:
        """Requests of a run for the load that was found; a closed loop always has what its users need."""
        if self.kind == USERS or root.outcome == ALWAYS:
            return requests
        load = bound if root.value is None else math.exp(root.value.value)
        return self.replica.enough_requests(self.replica.seen(RATE, load, requests=requests).in_flight)

    def _ends(self, root: Root, search: RootSearch, idle: Reached, requests: int) -> Capacity:
        """The answer where the search found no root."""
        most = self._most(self.replications)
        if root.outcome == ALWAYS:
            band = root.value.band if root.value is not None else None
            perhaps = band is not None and band[1] > search.low
            return Capacity(None, most, idle.limit.label, idle, requests, perhaps)
        if root.outcome == UNREACHABLE:
            return Capacity(most, most, SATURATION, idle, requests)
        # The figure does not rise with the load by more than its noise: the value without an interval.
        return Capacity(self._plainly(search), most, idle.limit.label, idle, requests)

    def _search(self, low: float, high: float, requests: int) -> RootSearch:
        def score(load: float, replication: int, scale: float) -> float:
            seen = self.replica.seen(
                self.kind,
                load,
                replication,
                requests=requests,
                step_scale=scale,
                decodes_only=self.decodes_only,
            )
            missed_by = self.replica.slo.score(seen.figures)
            return max(missed_by, _MISSED) if seen.saturated else missed_by

        return RootSearch(
            over_loads(self.kind, score),
            self.replications,
            self.band,
            low=low,
            high=high,
            tolerance=TOLERANCE,
        )

    def _most(self, replications: int) -> Estimate:
        """The load of a full engine: the rate it then serves, or the users that fill it."""
        seats = self.replica.seats
        requests = self.replica.enough_requests(seats / 4)
        full = [self.replica.seen(FULL, seats, i, requests=requests) for i in range(replications)]
        served = [run.figures["request_rate_per_s"] for run in full]
        if self.kind == USERS:  # who pauses takes no seat: the law of the interactive response time
            pause_s = getattr(self.replica.scenario.workload.arrivals, "think_time_s", 0.0)
            served = [seats + math.floor(rate * pause_s) for rate in served]
        most = mean_estimate(served)
        assert most is not None
        return most

    def _plainly(self, search: RootSearch) -> Estimate:
        def mean_score(x: float) -> float:
            return sum(search.evaluate(x, i, 1.0).score for i in range(self.replications))

        return Estimate(math.exp(bracketed_root(mean_score, search.low, search.high, tolerance=TOLERANCE)))


def over_loads(kind: str, score: Callable[[float, int, float], float]) -> Evaluate:
    """A score of (load, replication, step scale) as one of ln load: between whole numbers of users on the
    straight line.
    """

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


def lowest_load(idle: Seen, kind: str, most: float) -> float:
    """Where searches begin: so low a load that requests hardly meet."""
    return 1.0 if kind == USERS else min(_IDLE_SHARE / idle.figures["e2e_s.mean"], most / 10)


def exponential(logarithm: Estimate) -> Estimate:
    """The estimate of e^x."""

    def exp(interval: tuple[float, float] | None) -> tuple[float, float] | None:
        return interval and (math.exp(interval[0]), math.exp(interval[1]))

    return Estimate(math.exp(logarithm.value), exp(logarithm.ci95), exp(logarithm.band))


def _between(guess: float | None, low: float, high: float) -> float:
    return (low + 2 * high) / 3 if guess is None else min(max(math.log(guess), low), high)
