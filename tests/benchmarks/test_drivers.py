"""How fast the drivers are, in bare SimPy timeouts of the same minute:
ratios, because machines differ and are noisy.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import simpy

from simulator.runs.replications import replication_seed, traffic_of
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario, scenario_from_data

CONCURRENCIES = (1, 16, 64, 256)
ROUNDS = 7
TIMEOUTS = 50_000


def scenario(concurrency: int, backend: str = "auto", requests: int = 4000) -> Scenario:
    """Closed loop, about 200 output tokens, prefill and KV limit on:
    Llama-3.3-70B FP8 with EAGLE-3 on four H100.
    """
    return scenario_from_data(
        {
            "target": {"model": "llama-3.3-70b-instruct", "weights": "fp8", "kv_cache": "fp8"},
            "hardware": {"gpu": "h100-sxm", "tensor_parallel": 4},
            "speculation": [
                {
                    "name": "eagle3-k3",
                    "method": "eagle3",
                    "draft": "eagle3-llama-3.3-70b",
                    "draft_length": 3,
                    "acceptance": {"model": "geometric", "alpha": 0.7},
                }
            ],
            "workload": {
                "arrivals": {"kind": "closed", "concurrency": concurrency},
                "requests": requests,
                "prompt_tokens": {"kind": "lognormal", "median": 300, "p95": 900},
                "output_tokens": {"kind": "uniform", "low": 100, "high": 300},
            },
            "run": {"backend": backend},
        }
    )


def bare_timeout_s() -> float:
    """Seconds of one bare SimPy timeout, now."""
    env = simpy.Environment()

    def process() -> object:
        for _ in range(TIMEOUTS):
            yield env.timeout(1)

    env.process(process())  # type: ignore[arg-type]
    start = time.perf_counter()
    env.run()
    return (time.perf_counter() - start) / TIMEOUTS


def seconds(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@pytest.mark.parametrize(("variant_index", "least"), [(None, 10), (0, 20)], ids=["plain", "eagle3-k3"])
@pytest.mark.parametrize("concurrency", CONCURRENCIES)
def test_output_tokens_per_bare_timeout(concurrency: int, variant_index: int | None, least: float) -> None:
    case = scenario(concurrency)
    variant = CompiledVariant.compile(
        case, None if variant_index is None else case.speculation[variant_index]
    )
    requests, seed = traffic_of(case, 0), replication_seed(0, 0)
    tokens = variant.run(requests, seed).totals["emitted_tokens"]
    timeout_s, run_s = [], []
    for _ in range(ROUNDS):
        timeout_s.append(bare_timeout_s())
        run_s.append(seconds(lambda: variant.run(requests, seed)))
    ratio = min(timeout_s) / (min(run_s) / tokens)
    print(f"\n{variant.name}, concurrency {concurrency}: {ratio:.1f} output tokens per bare timeout")
    assert ratio >= least


def test_bare_timeouts_per_pipeline_step() -> None:
    case = scenario(16, "pipeline", requests=400)
    variant = CompiledVariant.compile(case, case.speculation[0])
    requests, seed = traffic_of(case, 0), replication_seed(0, 0)
    steps = variant.run(requests, seed).totals["steps"]
    timeout_s, run_s = [], []
    for _ in range(ROUNDS):
        timeout_s.append(bare_timeout_s())
        run_s.append(seconds(lambda: variant.run(requests, seed)))
    ratio = min(run_s) / steps / min(timeout_s)
    print(f"\npipeline, concurrency 16: {ratio:.1f} bare timeouts per step")
    assert ratio <= 25


@pytest.mark.parametrize("concurrency", [1, 16, 64])
def test_two_replicas_cost_little_more_than_one_engine(concurrency: int) -> None:
    """Clients are processes then, and no engine may overtake another one through a client."""
    case = scenario(concurrency)
    hardware = case.hardware.model_copy(update={"replicas": 2})
    several = case.model_copy(update={"hardware": hardware})
    single, two = (CompiledVariant.compile(each, each.speculation[0]) for each in (case, several))
    requests, seed = traffic_of(case, 0), replication_seed(0, 0)
    single.run(requests, seed)
    two.run(requests, seed)
    timeout_s, one_s, two_s = [], [], []
    for _ in range(ROUNDS):
        timeout_s.append(bare_timeout_s())
        one_s.append(seconds(lambda: single.run(requests, seed)))
        two_s.append(seconds(lambda: two.run(requests, seed)))
    budget_s = 1.5 * min(one_s) + 12 * min(timeout_s) * len(requests.arrival_ns)
    print(f"\ntwo replicas, concurrency {concurrency}: {min(two_s) / budget_s:.2f} of what they may take")
    assert min(two_s) <= budget_s
