"""Maps over load and acceptance: which loads and acceptances, and what the cells hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.maps.speedup import (
    ALPHAS,
    CONCURRENCIES,
    alphas_with,
    concurrencies,
    speedup_map,
    speedup_map_from_json,
    with_enough_requests,
)
from simulator.errors import InputError
from simulator.memory.report import gpu_memory
from simulator.scenario import Scenario, load_scenario
from tests.subjects import EXAMPLE, SMALL, VARIANT

ONE_GPU = ("hardware.tensor_parallel=1", f"speculation.{VARIANT}.draft_tensor_parallel=1")


def scenario(*changes: str) -> Scenario:
    return load_scenario(EXAMPLE, [*SMALL, *changes])


def loads(of: Scenario) -> tuple[int, ...]:
    return concurrencies(of, of.variant(VARIANT))


def test_loads_have_a_seat_and_the_scenarios_own_is_among_them() -> None:
    assert loads(scenario()) == (1, 4, 8, 16)
    assert loads(scenario("engine.max_num_seqs=256")) == (1, 4, 8, 16, 32, 64, 128, 256)
    assert loads(scenario("hardware.replicas=4")) == (1, 4, 8, 16, 32, 64)
    assert loads(scenario("workload.arrivals.concurrency=100")) == (1, 4, 16, 100)


def test_loads_fit_the_memory() -> None:
    tight = scenario("engine.max_num_seqs=512", "engine.gpu_memory_utilization=0.99", *ONE_GPU)
    room = gpu_memory(tight, tight.variant(VARIANT)).max_concurrency
    assert 0 < room < 64
    assert loads(tight) == tuple(sorted({n for n in CONCURRENCIES if n <= room} | {1, 8}))


def test_loads_of_an_offered_rate_are_the_common_ones() -> None:
    offered = scenario("workload.arrivals={kind: poisson, rate_per_s: 2}")
    assert loads(offered) == (1, 4, 16)


@given(st.floats(0.001, 0.999))
def test_the_scenarios_own_acceptance_is_a_row_and_no_two_are_close(own: float) -> None:
    alphas = alphas_with(own)
    assert own in alphas
    assert list(alphas) == sorted(set(alphas))
    assert all(abs(alpha - own) >= 0.04 for alpha in alphas if alpha != own)
    assert len(alphas) >= len(ALPHAS)


def test_without_an_acceptance_of_its_own_the_rows_are_the_common_ones() -> None:
    assert alphas_with(None) == ALPHAS


def test_enough_requests_are_asked_for_and_never_fewer_than_the_scenario_has() -> None:
    assert with_enough_requests(scenario(), (1, 64)).workload.requests == 12 * 64
    assert with_enough_requests(scenario(), (1, 4)).workload.requests == 300


def test_cells_grow_with_acceptance_and_the_map_survives_json() -> None:
    of = scenario()
    calls: list[tuple[int, int]] = []
    result = speedup_map(
        of, of.variant(VARIANT), (1, 16), (0.0, 0.5, 1.0), lambda done, total, _: calls.append((done, total))
    )
    assert calls == [(1, 2), (2, 2)]
    assert (result.variant, result.draft_length) == (VARIANT, 3)
    for column in zip(*result.speedup, strict=True):
        values = [cell for cell in column if cell is not None]
        assert len(values) == 3
        assert values == sorted(values)
        assert values[0] < 1 < values[-1] < 4
    assert speedup_map_from_json(json.loads(json.dumps(result.to_json()))) == result


def test_what_does_not_fit_is_an_empty_cell() -> None:
    of = scenario("engine.gpu_memory_utilization=0.5", *ONE_GPU)
    assert speedup_map(of, of.variant(VARIANT), (1,), (0.5,)).speedup == ((None,),)


def test_a_load_that_is_none_is_refused() -> None:
    of = scenario()
    with pytest.raises(InputError):
        speedup_map(of, of.variant(VARIANT), (0,), (0.5,))
