"""Waits, sojourns and numbers in the system against queueing theory;
tolerances from independent replications.

With one seat and steps of constant length an engine is a queue with one server: M/D/1 when every request asks
one token, M/G/1 with geometric lengths, which are exponential but for the grain of a token.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from simulator.results.record import RunRecord
from simulator.runs.variant import CompiledVariant
from simulator.traffic.streams import stream
from tests import closed_forms
from tests.runs import (
    Measured,
    constant_steps,
    drafting_variant,
    mean,
    plain_variant,
    run,
    small_scenario,
    traffic,
)

SIGMAS = 3.0
STEP_NS = 1_000_000
STEP_S = STEP_NS / 1e9
REPLICATIONS, REQUESTS, WARM_UP = 40, 3000, 500
TOKENS = 200


def single_seat(load: float, step_ns: int, **changes: object) -> CompiledVariant:
    """Plain decoding, one request at a time, offered `load` servers' worth of one-token requests."""
    scenario = small_scenario(
        {
            "engine.max_num_seqs": 1,
            "workload.arrivals": {"kind": "poisson", "rate_per_s": load / STEP_S},
            "workload.requests": REQUESTS,
            "workload.prompt_tokens.tokens": 1,
            "workload.output_tokens.tokens": 1,
            **changes,
        }
    )
    return constant_steps(plain_variant(scenario), step_ns)


def waits_s(record: RunRecord) -> npt.NDArray[np.float64]:
    """From arrival to admission, after the warm-up."""
    return (record.admitted_ns - record.arrival_ns)[WARM_UP:] / 1e9


def sojourns_s(record: RunRecord) -> npt.NDArray[np.float64]:
    return (record.ended_ns - record.arrival_ns)[WARM_UP:] / 1e9


@cache
def constant_service(load: float) -> tuple[RunRecord, ...]:
    variant = single_seat(load, STEP_NS)
    return tuple(run(variant, seed) for seed in range(REPLICATIONS))


@cache
def geometric_service(load: float) -> tuple[RunRecord, ...]:
    """Outputs of `TOKENS` tokens in the mean, each token a step of a `TOKENS`-th of the service."""
    variant = single_seat(load, STEP_NS // TOKENS)
    records = []
    for seed in range(REPLICATIONS):
        lengths = stream(seed, "test of queues").geometric(1 / TOKENS, REQUESTS).astype(np.int64)
        records.append(variant.run(traffic(variant.scenario, seed)._replace(output_tokens=lengths), seed))
    return tuple(records)


def mean_wait(records: tuple[RunRecord, ...]) -> Measured:
    return mean([waits_s(record).mean() for record in records])


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_constant_service_waits_as_m_d_1(load: float) -> None:
    result = mean_wait(constant_service(load))
    assert result.score(closed_forms.md1_wait_s(load / STEP_S, STEP_S)) < SIGMAS
    # Twice that is M/M/1: a check that could not tell them apart would be worth nothing.
    assert result.score(closed_forms.mm1_wait_s(load / STEP_S, STEP_S)) > 3 * SIGMAS


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_exponential_service_waits_as_m_m_1(load: float) -> None:
    result = mean_wait(geometric_service(load))
    variation = np.sqrt(1 - 1 / TOKENS)  # of a geometric length: 1 in the limit of many tokens
    assert result.score(closed_forms.mg1_wait_s(load / STEP_S, STEP_S, float(variation))) < SIGMAS
    assert result.score(closed_forms.mm1_wait_s(load / STEP_S, STEP_S)) < SIGMAS
    assert result.score(closed_forms.md1_wait_s(load / STEP_S, STEP_S)) > 3 * SIGMAS


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99])
def test_sojourns_of_m_m_1_are_exponential(quantile: float) -> None:
    load = 0.6
    limit = closed_forms.mm1_sojourn_quantile_s(load / STEP_S, STEP_S, quantile)
    below = mean([(sojourns_s(record) <= limit).mean() for record in geometric_service(load)])
    assert below.score(quantile) < SIGMAS


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_an_arrival_waits_with_the_probability_of_a_busy_server(load: float) -> None:
    waited = mean([(waits_s(record) > 0).mean() for record in constant_service(load)])
    assert waited.score(load) < SIGMAS


@pytest.mark.parametrize("load", [0.6, 0.8])
def test_arrivals_see_the_time_average_of_the_number_in_the_system(load: float) -> None:
    """PASTA with Little's law: the mean number an arrival finds is rate × sojourn, run by run."""
    for records, wait in (
        (constant_service(load), closed_forms.md1_wait_s(load / STEP_S, STEP_S)),
        (geometric_service(load), closed_forms.mm1_wait_s(load / STEP_S, STEP_S)),
    ):
        result = mean([record.in_system_at_arrival[WARM_UP:].mean() for record in records])
        assert result.score(closed_forms.in_system(load / STEP_S, wait + STEP_S)) < SIGMAS
        assert (
            result.score(closed_forms.in_system(load / STEP_S, wait)) > SIGMAS
        )  # without the one in service


@pytest.mark.parametrize("preset", ["vllm-0.10", "vllm-0.33", "sglang-0.5"])
def test_littles_law_on_real_prices(preset: str) -> None:
    """A speculative variant with batches, prompts and real steps:
    what arrivals find against rate × sojourn of the same run."""
    scenario = small_scenario(
        {
            "engine.preset": preset,
            "workload.arrivals": {"kind": "poisson", "rate_per_s": 12.0},
            "workload.requests": 600,
            "workload.prompt_tokens": {"kind": "lognormal", "median": 300, "p95": 1200},
            "workload.output_tokens": {"kind": "lognormal", "median": 60, "p95": 200},
        }
    )
    variant = drafting_variant(scenario)
    excess, wrong = [], []
    for seed in range(12):
        record = run(variant, seed)
        sojourn_ns = record.ended_ns - record.arrival_ns
        window = slice(60, 540)
        span_ns = record.arrival_ns[540] - record.arrival_ns[60]
        start, end = record.arrival_ns[60], record.arrival_ns[540]
        inside = np.clip(record.ended_ns, start, end) - np.clip(record.arrival_ns, start, end)
        seen = record.in_system_at_arrival[window].mean()
        excess.append(seen - inside.sum() / span_ns)
        wrong.append(seen - 1 - (480 / span_ns) * sojourn_ns[window].mean())
    assert mean(excess).score(0.0) < SIGMAS
    assert mean(wrong).score(0.0) > SIGMAS


def test_a_busy_engine_serves_one_request_per_service() -> None:
    """Beyond capacity the server never rests: the makespan of a burst is exactly n services."""
    record = run(single_seat(0.5, STEP_NS, **{"workload.arrivals": {"kind": "burst"}}))
    assert record.makespan_ns == REQUESTS * STEP_NS
    assert (np.sort(record.admitted_ns) == np.arange(REQUESTS) * STEP_NS).all()
    assert record.totals["busy_ns"] == record.makespan_ns
