"""Trials simulated: what a client would report, skipped variants, curves, and several processes."""

from __future__ import annotations

import math
import os
from dataclasses import fields, replace

import numpy as np
import pytest

from calibration.validation.client import client_figures
from calibration.validation.compare import compare_runs, results_of
from calibration.validation.curve_prediction import NO_CROSSING, UNREACHABLE, CurveInput, predict_curve
from calibration.validation.pool import worker_pool
from calibration.validation.predict import DOES_NOT_FIT, Alteration, PredictionInput, predict
from calibration.validation.reconstruction.published_run import PublishedFigure
from calibration.validation.row import input_of
from calibration.validation.speedup_curves import crossing_of, curves_of
from calibration.validation.validate import validate_runs
from simulator.errors import InputError
from simulator.results.measure import measure
from simulator.runs.replications import make_traffic
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario
from tests.published_runs import case, run, scenario

SPEEDUP = PublishedFigure("speedup", "both", 1.5)
TPOT = PublishedFigure("tpot_mean", "plain", 0.007)
LOOKUP = {
    "name": "spec",
    "method": "ngram",
    "draft_length": 3,
    "acceptance": {"model": "geometric", "alpha": 0.5},
}


def test_a_question_holds_nothing_that_was_published() -> None:
    kinds = {field.name: field.type for field in fields(PredictionInput)}
    assert set(kinds) == {"plain", "spec", "sent", "mean_tokens", "p99", "runs"}
    first, other = (input_of(run([PublishedFigure("speedup", "both", value)])) for value in (1.2, 2.4))
    assert first == other


def test_predicted_figures_are_those_of_both_variants() -> None:
    both = scenario(16)
    result = predict(PredictionInput(both, both))
    plain, spec = result.figures["plain"], result.figures["spec"]
    speedup = spec["throughput_tokens_per_s"] / plain["throughput_tokens_per_s"]
    rows = compare_runs([run([SPEEDUP, TPOT], both, batch=16)])
    assert rows[0].predicted == speedup > 1.2
    assert rows[1].predicted == plain["tpot_s.mean"]
    assert rows[0].acceptance_from == "given"
    assert rows[1].acceptance_from == "none"
    assert result.closed_form == pytest.approx(speedup, rel=0.1)


def test_speedup_is_that_of_the_figure_the_source_names() -> None:
    about = case(speedup_of="tpot_mean")
    both = scenario(16)
    result = predict(PredictionInput(both, both)).figures
    [row] = compare_runs([run([SPEEDUP], both, about=about, batch=16)])
    assert row.predicted == result["plain"]["tpot_s.mean"] / result["spec"]["tpot_s.mean"]


def test_a_client_that_sent_few_requests_divides_by_its_whole_duration() -> None:
    both = scenario(8)
    variant = CompiledVariant.compile(both, None)
    requests = make_traffic(both, 0)
    record = variant.run(requests, 0)
    result = client_figures(record)
    tokens = requests.output_tokens.sum()
    assert result["throughput_tokens_per_s"] == pytest.approx(tokens / (record.makespan_ns / 1e9))
    spans = (record.last_ns - record.first_ns) / 1e9
    assert result["tpot_s.mean"] == pytest.approx(float(np.mean(spans / (requests.output_tokens - 1))))
    lengths = {"kind": "uniform", "low": 100, "high": 300}
    workload = {**both.workload.model_dump(), "output_tokens": lengths}
    both = scenario(8, workload=workload)
    throughput = predict(PredictionInput(both, both, sent=24)).figures["plain"]["throughput_tokens_per_s"]
    steady = predict(PredictionInput(both, both)).figures["plain"]["throughput_tokens_per_s"]
    assert 0.8 < throughput / steady < 0.995, "filling and draining three rounds of clients costs some of it"


def test_replicas_are_one_of_them_with_its_share_of_the_load() -> None:
    engine = {"preset": "vllm-0.10", "host": {"request_latency_s": 0, "request_s": 0, "prompt_token_s": 0}}
    alone = scenario(8, engine=engine)  # all in step, so that each window has the same edges
    two = scenario(16, engine=engine, hardware={"gpu": "h100-sxm", "replicas": 2})
    first, both = (predict(PredictionInput(of, of)).figures for of in (alone, two))
    for variant in ("plain", "spec"):
        assert both[variant]["throughput_tokens_per_s"] == 2 * first[variant]["throughput_tokens_per_s"]
        assert both[variant]["tpot_s.mean"] == first[variant]["tpot_s.mean"]
    variant = CompiledVariant.compile(two, None)
    together = measure(variant.run(make_traffic(two, 0), 0), replicas=2)
    assert both["plain"]["throughput_tokens_per_s"] == pytest.approx(together["throughput_tokens_per_s"])


def test_a_variant_that_cannot_be_simulated_leaves_the_other() -> None:
    about = [SPEEDUP, TPOT]
    no_variant = run(about, spec=None, skipped={"spec": "no such method"})
    speedup, tpot = compare_runs([no_variant])
    assert (speedup.predicted, speedup.skipped) == (None, "no such method")
    assert tpot.predicted is not None
    too_large = scenario(8, target={"model": "llama-3.3-70b-instruct"}, speculation=[])
    [row] = compare_runs([run([TPOT], plain=too_large, spec=None)])
    assert row.skipped == DOES_NOT_FIT


def test_what_a_trial_does_not_survive_is_its_own_reason() -> None:
    [row] = compare_runs([run([TPOT])], alter=broken)
    assert row.skipped == "failed: RuntimeError: a bug"


def test_offered_rates_above_capacity_have_a_rate_and_no_latency() -> None:
    open_loop = scenario(
        workload={
            "arrivals": {"kind": "poisson", "rate_per_s": 900},
            "prompt_tokens": {"kind": "fixed", "tokens": 200},
            "output_tokens": {"kind": "fixed", "tokens": 200},
            "requests": 2000,
        }
    )
    throughput = PublishedFigure("throughput", "plain", 10_000.0)
    rate, tpot = compare_runs([run([throughput, TPOT], open_loop, batch=None)])
    assert rate.predicted is not None
    assert rate.predicted < 900 * 200
    assert tpot.predicted is None


def test_two_processes_give_the_rows_of_one_in_order() -> None:
    some = [run([SPEEDUP, TPOT], batch=batch) for batch in (1, 4, 8, 2, 3, 6)] * 6
    with worker_pool(2) as pool:
        assert compare_runs(some, pool) == compare_runs(some)


def test_a_killed_worker_is_said_in_one_line() -> None:
    with (
        pytest.raises(InputError, match=r"^a worker process was killed.*run it again"),
        worker_pool(2) as pool,
    ):
        results_of(os._exit, [1], str, pool)


def published_curve(of: Scenario, batches: tuple[int, ...]) -> list[float]:
    """What the simulation itself says of these batches."""
    return [
        row.predicted or math.nan
        for batch in batches
        for row in compare_runs([run([SPEEDUP], scenario(batch, alpha=0.55), batch=batch)])
    ]


@pytest.fixture(scope="module")
def curve() -> CurveInput:
    """A curve that was 'published' by the simulation at α 0.55, asked about with another α."""
    batches = (1, 32, 256)
    values = published_curve(scenario(), batches)
    about = case([{"batch_size": batch} for batch in batches])
    runs = [
        run(
            [PublishedFigure("speedup", "both", value)],
            scenario(batch, alpha=0.9),
            about=about,
            point=at,
            batch=batch,
        )
        for at, (batch, value) in enumerate(zip(batches, values, strict=True))
    ]
    [result] = curves_of(runs)
    return replace(CurveInput.of(result), crosses=False)


def test_the_shape_of_a_curve_needs_no_acceptance_but_that_of_its_first_point(curve: CurveInput) -> None:
    answer = predict_curve(curve)
    expected = published_curve(scenario(), (32, 256))
    assert answer.shape == pytest.approx(expected, rel=0.005)
    assert len(answer.closed_form) == 2


def test_a_first_point_beyond_all_acceptance_has_no_shape(curve: CurveInput) -> None:
    answer = predict_curve(replace(curve, anchor=5.0))
    assert (answer.shape, answer.missing) == ((), UNREACHABLE)


def broken(variant: CompiledVariant) -> CompiledVariant:
    raise RuntimeError("a bug")


@pytest.mark.parametrize(
    ("target", "alter", "reason"),
    [
        ({"model": "llama-3.3-70b-instruct"}, None, DOES_NOT_FIT),
        ({"model": "llama-3.1-8b-instruct"}, broken, "failed: RuntimeError: a bug"),
    ],
)
def test_a_curve_that_crosses_and_cannot_be_simulated_is_skipped_with_its_reason(
    target: dict[str, str], alter: Alteration | None, reason: str
) -> None:
    batches, published = (1, 64, 256), (1.3, 1.1, 0.8)
    about = case([{"batch_size": batch} for batch in batches])
    runs = [
        run(
            [PublishedFigure("speedup", "both", value)],
            scenario(batch, target=target, speculation=[LOOKUP]),
            about=about,
            point=at,
            batch=batch,
        )
        for at, (batch, value) in enumerate(zip(batches, published, strict=True))
    ]
    result = validate_runs([about], runs, alter=alter)
    rows = (*result.rows, *result.shape)
    assert [row.quantity for row in rows].count("crossover_batch") == 2
    assert {(row.predicted, row.ratio, row.skipped) for row in rows} == {(None, None, reason)}


def test_points_of_one_curve_differ_in_nothing_but_their_load() -> None:
    about = case([{"batch_size": 1, "k": 3}, {"batch_size": 8, "k": 3}, {"batch_size": 1, "k": 5}])
    runs = [run([SPEEDUP], about=about, point=at, batch=batch) for at, batch in enumerate((1.0, 8.0, 1.0))]
    [result] = curves_of(runs)
    assert result.batches == (1.0, 8.0)
    assert [simulated_run.point for simulated_run in result.runs] == [0, 1]


@pytest.mark.parametrize(
    ("batches", "speedups", "crossing"),
    [
        ((1, 4, 16), (1.6, 1.25, 0.8), 8.0),
        ((16, 64), (0.8, 1.25), 32.0),
        ((1, 4), (1.6, 1.25), None),
        ((1, 4, 16), (1.6, 0.9, 1.2), None),
    ],
)
def test_curves_cross_between_their_points_on_log_scales(
    batches: tuple[float, ...], speedups: tuple[float, ...], crossing: float | None
) -> None:
    result = crossing_of(batches, speedups)
    assert result == (None if crossing is None else pytest.approx(crossing))


def test_the_crossing_lies_in_its_interval_and_the_interval_narrows_with_the_slope() -> None:
    """A curve of low acceptance falls through 1; one of full acceptance does not."""
    batches = (1, 64, 256)
    about = case([{"batch_size": batch} for batch in batches])

    def ask(alpha: float) -> CurveInput:
        runs = [
            run(
                [PublishedFigure("speedup", "both", value)],
                scenario(batch, alpha=alpha),
                about=about,
                point=at,
                batch=batch,
            )
            for at, (batch, value) in enumerate(zip(batches, (1.3, 1.1, 0.8), strict=True))
        ]
        [result] = curves_of(runs)
        return CurveInput.of(result)

    crossing = predict_curve(ask(0.3)).crossing
    assert crossing.batch is not None
    assert crossing.interval is not None
    assert crossing.interval[0] <= crossing.batch <= crossing.interval[1]
    assert crossing.interval[0] < crossing.interval[1]
    never = predict_curve(ask(0.99))
    assert never.crossing.missing == NO_CROSSING
    assert never.shape_crossing == predict_curve(ask(0.3)).shape_crossing
