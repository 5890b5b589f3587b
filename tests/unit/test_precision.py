"""`run.precision`: what it may be asked of, how it is met, and what is said where it is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from experiments.cli import decodesim
from simulator.errors import InputError
from simulator.results.precision import FEWEST_REPLICATIONS, Precision
from simulator.results.result import Result
from simulator.simulation import simulate
from tests.runs import small_scenario

ENOUGH = {"workload.requests": 200, "workload.output_tokens": {"kind": "uniform", "low": 20, "high": 60}}


def result_of(**changes: Any) -> Result:
    return simulate(small_scenario(ENOUGH | changes), keep_requests=False)


def test_percent_and_fraction_are_the_same() -> None:
    assert small_scenario({"run.precision": "1%"}).run.precision == 0.01
    assert small_scenario({"run.precision": "2.5 %"}) == small_scenario({"run.precision": 0.025})


@pytest.mark.parametrize("value", ["one percent", "%", "0%", "150%", "nan%", 0, 1])
def test_what_is_no_precision_is_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"run\.precision"):
        small_scenario({"run.precision": value})
    done = CliRunner().invoke(decodesim, ["simulate", "--model", "x", "--precision", str(value)])
    assert done.exit_code == 2


@pytest.mark.parametrize(
    "metric", ["throughput", "tpot_mean", "e2e_s.p90", "speedup", "eagle3.tpot_mean_speedup"]
)
def test_the_figure_asked_for_is_known_that_well(metric: str) -> None:
    precision = 0.004
    loose = result_of()
    result = result_of(**{"run.precision": precision, "run.precision_metric": metric})
    width = widest(result, metric)
    assert width <= precision < widest(loose, metric)
    assert result.provenance.replications >= FEWEST_REPLICATIONS
    assert not any("is not reached" in note for note in result.notes)


def widest(result: Result, metric: str) -> float:
    paths = {"throughput": "throughput_tokens_per_s", "tpot_mean": "tpot_s.mean"}
    if metric in ("speedup", "eagle3.tpot_mean_speedup"):
        name = "throughput_speedup" if metric == "speedup" else "tpot_mean_speedup"
        ratio = result.comparison["eagle3"].ratios[name]
        assert ratio is not None
        return ratio.relative_half_width
    estimates = [variant[paths.get(metric, metric)] for variant in result.variants.values()]
    return max(estimate.relative_half_width for estimate in estimates if estimate is not None)


def test_acceptance_is_asked_of_the_variants_that_draft() -> None:
    result = result_of(**{"run.precision": 0.01, "run.precision_metric": "mean_acceptance_length"})
    length = result.variants["eagle3"]["mean_acceptance_length"]
    assert length is not None
    assert length.relative_half_width <= 0.01


def test_a_percentile_gets_runs_long_enough_for_it() -> None:
    result = result_of(**{"run.precision": 0.2, "run.precision_metric": "e2e_s.p99"})
    assert (result.provenance.requests or 0) >= 1600
    assert any("runs have 1,600 requests instead of 200" in note for note in result.notes)
    for variant in result.variants.values():
        tail = variant["e2e_s.p99"]
        assert tail is not None
        assert tail.relative_half_width <= 0.2


def test_what_cannot_be_reached_is_said() -> None:
    burst = {"workload.arrivals": {"kind": "burst"}, "run.precision": 0.1}
    notes = result_of(**burst, **{"run.precision_metric": "tpot_p99"}).notes
    message = (
        "the precision asked for, 0.1 of tpot_p99, is not reached: no interval at 10 replications of 200"
    )
    assert f"{message} requests" in notes


@pytest.mark.parametrize(
    ("metric", "problem"),
    [
        ("thruput", "unknown metric, did you mean 'throughput'?"),
        ("eagle3.tpot_p42", "unknown metric, did you mean 'tpot_p99'?"),
        ("42", "; or a path of the results, such as tpot_s.p99"),
        ("plain.throughput_speedup", "needs a speculative variant"),
    ],
)
def test_an_unknown_figure_is_refused(metric: str, problem: str) -> None:
    with pytest.raises(InputError) as error:
        result_of(**{"run.precision": 0.1, "run.precision_metric": metric})
    assert str(error.value).startswith("run.precision_metric: ")
    assert problem in str(error.value)


def test_the_number_of_replications_is_foreseen() -> None:
    precision = Precision(0.01)
    assert precision.replications(0.01, 10) == 10
    assert precision.replications(0.03, 10) == 90
    assert Precision(1e-302).replications(0.1, 10) > 1_000_000


def test_the_option_sets_the_field() -> None:
    flags = "--model llama-3.1-8b-instruct --concurrency 4 --json --precision 5%"
    done = CliRunner().invoke(decodesim, ["simulate", *flags.split(), "--set", "workload.requests=120"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["scenario"]["run"]["precision"] == 0.05
