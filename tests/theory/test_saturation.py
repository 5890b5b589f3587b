"""The saturation test on queues whose load is known: M/G/1 and M/G/64 by Lindley's recursion."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.results.record import RunRecord
from simulator.results.saturation import saturation
from simulator.step.state import DONE, TIMED_OUT
from tests.records import record_of_requests

MEAN_TOKENS = 100


def queue(load: float, requests: int, seed: int, servers: int = 1, timeout_s: float = np.inf) -> RunRecord:
    """Poisson arrivals at `load` × capacity; a server gives a request 1 s
    on average, by its lognormal length (cv 1).
    """
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / (load * servers), requests))
    service = rng.lognormal(-np.log(2) / 2, np.sqrt(np.log(2)), requests)
    free = np.zeros(servers)
    admitted, ended, status = np.empty(requests), np.empty(requests), np.full(requests, DONE)
    for r in range(requests):
        server = int(free.argmin())
        admitted[r] = max(free[server], arrival[r])
        if admitted[r] - arrival[r] > timeout_s:
            admitted[r], ended[r], status[r] = -1, arrival[r] + timeout_s, TIMED_OUT
        else:
            free[server] = ended[r] = admitted[r] + service[r]
    arrival_ms = (arrival * 1000).tolist()
    empty = record_of_requests(arrival_ms, arrival_ms, [[]] * requests)
    return replace(
        empty,
        admitted_ns=(admitted * 1e9).astype(np.int64),
        ended_ns=(ended * 1e9).astype(np.int64),
        status=status,
        emitted_tokens=np.maximum((service * MEAN_TOKENS).astype(np.int64), 1),
        makespan_ns=int(ended.max() * 1e9),
    )


def share_saturated(
    load: float, requests: int, servers: int = 1, replications: int = 5, tries: int = 12
) -> float:
    result = [
        saturation([queue(load, requests, 100 * i + j, servers) for j in range(replications)])
        for i in range(tries)
    ]
    return sum(answer.saturated for answer in result) / tries


@pytest.mark.parametrize("servers", [1, 64])
@pytest.mark.parametrize("load", [0.5, 0.8, 0.9])
def test_a_rate_below_capacity_is_not_called_saturated(load: float, servers: int) -> None:
    assert share_saturated(load, 1000, servers) == 0


@pytest.mark.parametrize("servers", [1, 64])
@pytest.mark.parametrize(("load", "requests"), [(1.2, 1000), (1.5, 200), (3.0, 200)])
def test_a_rate_above_capacity_is(load: float, requests: int, servers: int) -> None:
    assert share_saturated(load, requests, servers) >= 0.9


@pytest.mark.parametrize("load", [1.2, 1.5, 3.0])
def test_served_fraction_is_one_over_the_load(load: float) -> None:
    answer = saturation([queue(load, 4000, seed, 64) for seed in range(5)])
    assert answer.saturated
    assert answer.served_fraction == pytest.approx(1 / load, rel=0.05)
    assert answer.reason is not None
    assert "backlog grows" in answer.reason


def test_clients_that_give_up_in_the_queue_are_a_rate_not_served() -> None:
    """With patience of 2 s the stay cannot grow, and yet a third of the rate is lost at load 1.5."""
    answer = saturation([queue(1.5, 2000, seed, 8, timeout_s=2.0) for seed in range(3)])
    assert answer.saturated
    assert answer.served_fraction == pytest.approx(2 / 3, rel=0.1)
    assert not saturation([queue(0.7, 2000, seed, 8, timeout_s=2.0) for seed in range(3)]).saturated


def test_more_requests_at_once_than_seats_is_above_capacity_however_short_the_run() -> None:
    """50 requests within 0.1 s, each served for 1 s: 500 at once,
    where 256 can be; all were let in at once.
    """
    arrival_ms = [2.0 * index for index in range(50)]
    record = record_of_requests(arrival_ms, arrival_ms, [[(1000.0, 1)]] * 50)
    assert not saturation([record]).saturated
    assert not saturation([record], running_limit=512).saturated
    answer = saturation([record], running_limit=256)
    assert answer.saturated
    assert answer.reason == "this rate needs 500 running requests, and the limit is 256"


def test_a_run_of_a_few_requests_is_not_judged() -> None:
    assert not saturation([queue(5.0, 10, 1)]).saturated
    assert not saturation([record_of_requests([], [], [])]).saturated
    assert not saturation([record_of_requests([0.0] * 50, [1.0] * 50, [[]] * 50)]).saturated, "a burst"
