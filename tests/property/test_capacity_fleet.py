"""What a plan supposes of a fleet: replicas behind a router serve their traffic no worse than one that
gets its part of the rate.
"""

from __future__ import annotations

from typing import Any

import pytest

from experiments.capacity.replica import Replica, ReplicaSetting
from experiments.capacity.slo import slo_of
from simulator.results.measure import measure
from simulator.runs.replications import make_traffic, replication_seed
from simulator.runs.variant import CompiledVariant
from tests.plans import tiny
from tests.runs import mean

REPLICAS, SEEDS = 3, 6
RATE_OF_ONE = 150.0


def of_fleet(arrivals: dict[str, Any], seed: int) -> dict[str, float]:
    """Figures of the fleet behind its router."""
    scenario = tiny({"workload.arrivals": arrivals, "hardware.replicas": REPLICAS, "workload.requests": 1600})
    variant = CompiledVariant.compile(scenario, None)
    record = variant.run(make_traffic(scenario, seed), replication_seed(scenario.run.seed, seed))
    return measure(record, replicas=REPLICAS)


@pytest.mark.parametrize(
    "arrivals",
    [
        {"kind": "poisson", "rate_per_s": REPLICAS * RATE_OF_ONE},
        {"kind": "gamma", "rate_per_s": REPLICAS * RATE_OF_ONE, "cv": 2.5},
    ],
    ids=["poisson", "bursts"],
)
def test_a_fleet_is_no_slower_than_one_replica_with_its_part_of_the_rate(arrivals: dict[str, Any]) -> None:
    scenario = tiny({"workload.arrivals": arrivals})
    replica = Replica(scenario, ReplicaSetting(None, 1, "h100-sxm"), slo_of(scenario))
    for path in ("ttft_s.mean", "ttft_s.p95", "tpot_s.mean", "e2e_s.p95"):
        gain = [
            replica.run_at("rate_per_s", RATE_OF_ONE, seed).figures[path] / of_fleet(arrivals, seed)[path]
            for seed in range(SEEDS)
        ]
        result = mean(gain)
        assert result.value > 1 - 2 * result.error, path
