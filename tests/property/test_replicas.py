"""Replicas behind a router: each request is served once, by the replica that the policy names."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.acceptance import Geometric
from simulator.drivers.pipeline import TimelineStage
from simulator.drivers.routing import ROUTERS
from simulator.results.record import RunRecord
from simulator.runs.variant import CompiledVariant
from simulator.step.state import DONE, State
from tests.balance import check_balance
from tests.random_runs import random_variant, serves_any
from tests.runs import differences, drafting_variant, run, small_scenario, traffic

SESSIONS: dict[str, Any] = {
    "workload.requests": 90,
    "workload.arrivals": {"kind": "poisson", "rate_per_s": 30.0},
    "workload.sessions": {"turns": 3, "gap_s": 0.2, "shared_prefix_tokens": 0},
    "workload.prompt_tokens.tokens": 200,
    "workload.output_tokens": {"kind": "uniform", "low": 5, "high": 60},
}


def routed(router: str, replicas: int, **changes: Any) -> RunRecord:
    return run(
        drafting_variant(
            small_scenario({**changes, "hardware.router": router, "hardware.replicas": replicas})
        )
    )


def served_by(states: list[State]) -> dict[int, int]:
    """Request → replica."""
    return {
        int(request): replica
        for replica, state in enumerate(states)
        for request in state.arrived[: int(state.engine[0]["arrived_count"])]
    }


@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("replicas", [2, 3])
def test_everybody_is_served_once(router: str, replicas: int, states: list[State]) -> None:
    record = routed(router, replicas, **SESSIONS)
    assert record.driver == "fast_forward"
    assert record.driver_reason is None
    assert (record.status == DONE).all()
    assert len(states) == replicas
    counts = [int(state.engine[0]["arrived_count"]) for state in states]
    assert sum(counts) == len(served_by(states)) == 90
    assert min(counts) > 0
    assert differences(record, routed(router, replicas, **SESSIONS)) == []


RANDOM_SCENARIOS = 24


def servable(seed: int, folder: Path) -> tuple[int, CompiledVariant]:
    """The first of every 24th seed whose variant can serve some of its requests."""
    for candidate in count(seed, RANDOM_SCENARIOS):
        variant = random_variant(candidate, folder)
        if serves_any(variant, traffic(variant.scenario, candidate)):
            return candidate, variant
    raise AssertionError


@pytest.mark.parametrize("seed", range(RANDOM_SCENARIOS))
def test_requests_and_blocks_balance_over_random_scenarios(
    seed: int, tmp_path: Path, states: list[State]
) -> None:
    seed, variant = servable(seed, tmp_path)
    scenario = variant.scenario.model_copy(
        update={
            "hardware": variant.scenario.hardware.model_copy(
                update={"replicas": 2 + seed % 2, "router": list(ROUTERS)[seed % len(ROUTERS)]}
            )
        }
    )
    requests = traffic(scenario, seed)
    several = type(variant)(**{**vars(variant), "scenario": scenario})
    record = several.run(requests, seed)
    assert record.driver == "fast_forward"
    check_balance(several, requests, record, states, f"seed {seed}")
    assert len({id(state.requests) for state in states}) == 1
    watched: list[TimelineStage] = []
    assert differences(record, several.run(requests, seed, timeline=watched)) == []
    assert bool(watched) == (record.totals["steps"] > 0)


@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_a_round_robin_gives_everybody_the_same(replicas: int, states: list[State]) -> None:
    routed("round-robin", replicas, **{**SESSIONS, "workload.requests": 30 * replicas})
    assert set(Counter(served_by(states).values()).values()) == {30}


def test_a_round_robin_goes_round_in_order_of_arrival(states: list[State]) -> None:
    record = routed("round-robin", 3, **{"workload.arrivals": {"kind": "poisson", "rate_per_s": 20.0}})
    by_arrival = np.argsort(record.arrival_ns, kind="stable")
    homes = served_by(states)
    assert [homes[int(request)] for request in by_arrival] == [turn % 3 for turn in range(40)]


def test_a_session_stays_where_it_began(states: list[State]) -> None:
    routed("session", 3, **SESSIONS)
    homes = served_by(states)
    of_session = [{homes[first + turn] for turn in range(3)} for first in range(0, 90, 3)]
    assert all(len(replicas) == 1 for replicas in of_session)
    assert len(set.union(*of_session)) == 3
    routed("round-robin", 3, **SESSIONS)
    homes = served_by(states)
    assert any(len({homes[first + turn] for turn in range(3)}) > 1 for first in range(0, 90, 3))


def test_following_the_prefix_finds_more_of_it() -> None:
    scattered = routed("round-robin", 3, **SESSIONS).totals["prefix_hit_tokens"]
    together = routed("session", 3, **SESSIONS).totals["prefix_hit_tokens"]
    followed = routed("prefix", 3, **SESSIONS).totals["prefix_hit_tokens"]
    alone = routed("round-robin", 1, **SESSIONS).totals["prefix_hit_tokens"]
    assert 0 < scattered < together
    assert followed == together == alone


def test_the_least_loaded_replica_is_taken(states: list[State]) -> None:
    """In a closed loop with as many clients on each, every follow-up returns to where one has just ended."""
    routed("least-loaded", 2, **{"workload.arrivals.concurrency": 8, "workload.requests": 200})
    counts = Counter(served_by(states).values())
    assert abs(counts[0] - counts[1]) < 20
    assert all(int(state.engine[0]["in_system"]) == 0 for state in states)


@pytest.mark.parametrize("router", ["least-loaded", "session", "prefix"])
def test_of_replicas_with_the_same_load_the_first_is_taken(router: str, states: list[State]) -> None:
    """Seven requests at once find three empty replicas, then three with one request each, then with two."""
    routed(router, 3, **{"workload.arrivals": {"kind": "burst"}, "workload.requests": 7})
    homes = served_by(states)
    assert [homes[request] for request in range(7)] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_run_side_by_side(replicas: int) -> None:
    """Equal requests with certain acceptance: n replicas serve n times as many in exactly the same time."""

    def served(count: int, replicas: int) -> RunRecord:
        scenario = small_scenario(
            {
                "workload.requests": count,
                "workload.arrivals": {"kind": "burst"},
                "hardware.replicas": replicas,
                "hardware.router": "round-robin",
            }
        )
        return run(drafting_variant(scenario), acceptance=[Geometric(1.0)])

    single, several = served(20, 1), served(20 * replicas, replicas)
    assert several.makespan_ns == single.makespan_ns
    assert several.totals["emitted_tokens"] == replicas * single.totals["emitted_tokens"]
    assert several.totals["busy_ns"] == replicas * single.totals["busy_ns"]
    assert (several.ended_ns.reshape(20, replicas) == single.ended_ns[:, None]).all()
