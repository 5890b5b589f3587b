"""Of 300 intervals that claim 95 %, how many hold the truth? It is known for M/M/1, and from long runs.

The bounds are .90 and .99. All that makes the intervals takes part: the warm-up found in the runs, the
replications, the rule that refuses percentiles, and stopping at a precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from simulator.results.estimate import Estimate, mean_estimate
from simulator.results.summary import VariantMeasurement
from simulator.runs import replications as replications_module
from simulator.runs.replications import Replications, VariantRuns
from simulator.scenario import Scenario
from tests import closed_forms
from tests.queues import SERVICE_S, Queue, queue_scenario, replications
from tests.runs import drafting_variant, small_scenario

STUDIES, FEWER_STUDIES = 300, 150
"""The fewer are for tests whose controls lie far off: half of them know a share of 95 % to 1.8 %."""
LOWEST, HIGHEST = 0.90, 0.99


def studies(
    scenario: Scenario, count: int, cold: int = 0
) -> Iterator[tuple[Replications, VariantMeasurement]]:
    """Studies of a queue, each with random numbers of its own."""
    for seed in range(count):
        study = replications(scenario, seed, cold)
        study.run()
        yield study, study.measurements()[0]


def stated(estimates: Sequence[Estimate | None]) -> list[Estimate]:
    """Those that claim an interval."""
    return [estimate for estimate in estimates if estimate is not None and estimate.ci95 is not None]


def coverage(estimates: Sequence[Estimate | None], truth: float) -> float:
    """The share of the intervals there are that hold the truth."""
    intervals = [estimate.ci95 for estimate in stated(estimates)]
    return sum(low <= truth <= high for low, high in intervals) / len(intervals)


def mean_wait_s(load: float) -> float:
    return closed_forms.mm1_wait_s(load / SERVICE_S, SERVICE_S)


def sojourn_s(load: float, quantile: float) -> float:
    return closed_forms.mm1_sojourn_quantile_s(load / SERVICE_S, SERVICE_S, quantile)


@pytest.mark.parametrize(("load", "requests"), [(0.3, 600), (0.6, 1200)])
def test_intervals_of_means_and_p90_hold_the_truth(load: float, requests: int) -> None:
    summaries = [variant.summary() for _, variant in studies(queue_scenario(load, requests), STUDIES)]
    assert (
        LOWEST <= coverage([variant["queue_s.mean"] for variant in summaries], mean_wait_s(load)) <= HIGHEST
    )
    assert (
        LOWEST <= coverage([variant["e2e_s.p90"] for variant in summaries], sojourn_s(load, 0.9)) <= HIGHEST
    )
    assert len(stated([variant["e2e_s.p90"] for variant in summaries])) > 0.9 * STUDIES


def test_intervals_of_p99_hold_the_truth() -> None:
    tails = [variant.summary()["e2e_s.p99"] for _, variant in studies(queue_scenario(0.3, 4000), STUDIES)]
    assert len(stated(tails)) == STUDIES
    assert LOWEST <= coverage(tails, sojourn_s(0.3, 0.99)) <= HIGHEST


def test_intervals_of_p99_that_are_refused_would_not_have_held_it() -> None:
    """At this load what lies beyond P99, over 20 samples in each replication, is one or two busy spells."""
    load = 0.8
    chosen = [variant for _, variant in studies(queue_scenario(load, 2500), FEWER_STUDIES)]
    summaries = [variant.summary() for variant in chosen]
    assert (
        LOWEST <= coverage([summary["queue_s.mean"] for summary in summaries], mean_wait_s(load)) <= HIGHEST
    )
    assert len(stated([summary["e2e_s.p99"] for summary in summaries])) < 0.02 * FEWER_STUDIES
    refused = [mean_estimate(variant.samples["e2e_s.p99"]) for variant in chosen]
    assert coverage(refused, sojourn_s(load, 0.99)) < LOWEST - 0.03


def test_requests_of_one_run_are_no_independent_samples() -> None:
    """The control: intervals from the waits of one run, taken as independent, miss the truth too often."""
    naive = []
    for seed in range(100):
        study = replications(queue_scenario(0.6, 1000, **{"run.replications": 1}), seed)
        record = Queue(study.scenario).run(study.traffic(study.scenario, 0), seed)
        naive.append(mean_estimate([float(x) for x in (record.admitted_ns - record.arrival_ns)[100:] / 1e9]))
    assert coverage(naive, mean_wait_s(0.6)) < 0.7


def test_a_cold_start_is_left_out() -> None:
    """The first 200 of 1,000 services take three times as long: twice what is usually left out."""
    scenario, truth = queue_scenario(0.3, 1000), mean_wait_s(0.3)
    with_found = list(studies(scenario, FEWER_STUDIES, cold=200))
    assert np.median([study.warm_up for study, _ in with_found]) >= 200
    assert (
        LOWEST <= coverage([variant.summary()["queue_s.mean"] for _, variant in with_found], truth) <= HIGHEST
    )
    usual = [
        study.variants[0].measurement(study.have, warm_up=0, bands=False).summary()["queue_s.mean"]
        for study, _ in with_found
    ]
    assert coverage(usual, truth) < 0.5


def test_stopping_at_a_precision_leaves_the_95_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    precision = 0.12

    class Longer:
        compile = staticmethod(lambda scenario, variant: Queue(scenario))

    monkeypatch.setattr(replications_module, "CompiledVariant", Longer)
    asked = {"run.precision": precision, "run.precision_metric": "queue_s.mean"}
    result, counts = [], []
    for study, variant in studies(queue_scenario(0.5, 600, **asked), FEWER_STUDIES):
        result.append(variant.summary()["queue_s.mean"])
        counts.append(study.have)
    assert all(estimate.relative_half_width <= precision for estimate in stated(result))
    assert len(stated(result)) == FEWER_STUDIES
    assert LOWEST <= coverage(result, mean_wait_s(0.5)) <= HIGHEST
    assert np.mean(counts) > 10


SERVED = small_scenario(
    {
        "workload.arrivals": {"kind": "poisson", "rate_per_s": 15.0},
        "workload.prompt_tokens": {"kind": "lognormal", "median": 200, "p95": 900},
        "workload.output_tokens": {"kind": "lognormal", "median": 30, "p95": 90},
        "workload.ends": "eos",
    }
)
"""A speculative engine with batches, prompts and real steps at a rate of 15 requests/s."""


def test_intervals_of_short_runs_hold_what_long_runs_show() -> None:
    paths = ("ttft_s.mean", "tpot_s.mean", "e2e_s.mean", "itl_s.p90", "throughput_tokens_per_s")
    truth = engine_study(SERVED, requests=20_000, seed=10**6).summary()
    result = [engine_study(SERVED, requests=200, seed=seed).summary() for seed in range(STUDIES)]
    for path in paths:
        exact = truth[path]
        assert exact is not None
        assert LOWEST <= coverage([summary[path] for summary in result], exact.value) <= HIGHEST, path


def engine_study(scenario: Scenario, requests: int, seed: int) -> VariantMeasurement:
    """Five replications of the speculative variant."""
    workload = scenario.workload.model_copy(update={"requests": requests})
    run = scenario.run.model_copy(update={"seed": seed})
    seeded = scenario.model_copy(update={"workload": workload, "run": run})
    variant = drafting_variant(seeded)
    study = Replications(seeded, [VariantRuns(variant, variant.measurement_scope)], bands=False)
    study.run()
    return study.measurements()[0]
