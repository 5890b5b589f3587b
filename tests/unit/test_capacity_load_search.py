"""The search for the load that a replica carries, on a replica whose figures are known."""

from __future__ import annotations

from typing import Any, cast

from experiments.capacity.demand import RATE
from experiments.capacity.load_search import SATURATION, TOLERANCE, LoadSearch
from experiments.capacity.replica import FULL, Replica, ReplicaRun
from experiments.capacity.slo import slo_from_text

FULL_RATE_PER_S = 100.0
"""Requests per second of an engine that never waits for one."""


class KnownReplica:
    """A replica whose requests always keep the SLO, and that serves fewer than a full engine does."""

    slo = slo_from_text("e2e_mean=10s")
    max_running_requests = 8
    min_requests = 1000

    def __init__(self, served_per_s: float) -> None:
        self.served_per_s = served_per_s

    def requests_needed(self, in_flight: float) -> int:
        return self.min_requests

    def run_at(self, kind: str, amount: float, replication: int = 0, **settings: Any) -> ReplicaRun:
        rate_per_s = FULL_RATE_PER_S if kind == FULL else min(amount, self.served_per_s)
        figures = {"request_rate_per_s": rate_per_s, "e2e_s.mean": 1.0}
        return ReplicaRun(figures, saturated=kind == RATE and amount > self.served_per_s)


def test_a_load_that_is_not_served_misses_the_slo() -> None:
    """Requests that wait for ever have no latency that could miss a limit: the load itself is too high."""
    served_per_s = 90.0
    replica = cast(Replica, KnownReplica(served_per_s))
    result = LoadSearch(replica, RATE, replications=3, band=0.0).capacity()
    assert result.amount is not None
    assert abs(result.amount.value / served_per_s - 1) <= TOLERANCE
    assert result.saturation_load.value == FULL_RATE_PER_S
    assert result.limited_by == SATURATION
