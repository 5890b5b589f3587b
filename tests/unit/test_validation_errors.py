"""Errors of rows, their groups and the baselines: by arithmetic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from calibration.validation.baselines import CLOSED_FORM, CONSTANT, SIMULATED, against_baselines
from calibration.validation.errors import errors_of, quantile
from calibration.validation.groups import RESEARCH, band_of, engine_of, gpu_of, method_of
from calibration.validation.row import ComparisonRow
from calibration.validation.speedup_check import speedups_by_source
from calibration.validation.targets import judged, serving, targets_of


def row(published: float, predicted: float | None, **fields: Any) -> ComparisonRow:
    """A row of one case; `fields` replace what it says."""
    known_fields: dict[str, Any] = {
        "case_id": "case",
        "point": 0,
        "variant": "both",
        "source": "one",
        "gpu": "H100",
        "engine": "vLLM 0.10",
        "method": "eagle3",
        "batch": 8.0,
        "quantity": "speedup",
        "acceptance_from": "given",
        "skipped": None if predicted is not None else "for a reason",
        **fields,
    }
    ratio = None if predicted is None else predicted / published
    return ComparisonRow(published=published, predicted=predicted, ratio=ratio, **known_fields)


def test_medians_are_of_absolute_logs_and_no_source_counts_more_than_another() -> None:
    rows = [row(1.0, math.exp(error)) for error in (0.1, -0.3, 0.2)]
    rows += [row(1.0, math.exp(0.5), source="two"), row(1.0, None)]
    summary = errors_of(rows)
    assert (summary.n, summary.sources, summary.skipped) == (4, 2, 1)
    assert summary.median_abs_log_error == pytest.approx(0.25)
    assert summary.median_of_sources == pytest.approx((0.2 + 0.5) / 2)
    assert summary.bias == pytest.approx((0.1 - 0.3 + 0.2 + 0.5) / 4)
    assert summary.p90_abs_log_error == pytest.approx(np.quantile([0.1, 0.3, 0.2, 0.5], 0.9))


def test_a_factor_too_high_is_as_wrong_as_the_same_too_low() -> None:
    high, low = errors_of([row(1.0, 1.25)]), errors_of([row(1.25, 1.0)])
    assert high.median_abs_log_error == pytest.approx(low.median_abs_log_error)
    assert high.bias == pytest.approx(-(low.bias or 0))
    assert (high.bias or 0) > 0


def test_nothing_compared_has_no_errors() -> None:
    summary = errors_of([row(1.0, None)])
    assert (summary.n, summary.skipped, summary.median_abs_log_error) == (0, 1, None)


def test_a_plain_run_counts_once_however_often_its_source_repeats_it() -> None:
    run = {"variant": "plain", "quantity": "tpot_mean", "load": "concurrency 4"}
    same = [row(1.0, 1.5, **run), row(1.0, 1.5, case_id="another", **run)]
    assert errors_of(same).n == 1
    others = ({"source": "two"}, {"load": "concurrency 8"}, {"quantity": "itl_mean"}, {"variant": "spec"})
    for other in others:
        assert errors_of([*same, row(1.0, 1.5, **run | other)]).n == 2, other
    assert errors_of([*same, row(1.0, 1.4, **run), row(1.1, 1.5, **run)]).n == 3
    assert errors_of([*same, row(1.0, None, **run)]).skipped == 1
    assert errors_of([row(1.0, 1.5), row(1.0, 1.5)]).n == 2, "speedups are of two variants"


@pytest.mark.parametrize("share", [0.0, 0.31, 0.9, 1.0])
def test_quantiles_are_numpys(share: float) -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    assert quantile(values, share) == pytest.approx(float(np.quantile(values, share)))


def test_balanced_accuracy_weighs_few_losses_as_much_as_many_gains() -> None:
    gains = [row(1.5, 1.4) for _ in range(9)]
    always_faster = [*gains, row(0.8, 1.1), row(1.0, 0.2)]  # the last is neither gain nor loss
    summary = errors_of(always_faster)
    assert (summary.below, summary.above) == (1, 9)
    assert (summary.losses_called, summary.gains_called) == (0, 9)
    assert summary.sign_balanced_accuracy == 0.5
    assert errors_of([*gains, row(0.8, 0.9)]).sign_balanced_accuracy == 1.0


def test_shares_of_a_step_are_also_judged_by_their_difference() -> None:
    summary = errors_of([row(0.02, 0.04, quantity="cost_share"), row(0.6, 0.54, quantity="cost_share")])
    assert summary.median_abs_difference == pytest.approx(0.04)
    assert summary.sign_balanced_accuracy is None


def test_baselines_answer_for_the_rows_that_were_simulated() -> None:
    rows = [row(1.0, 1.1, closed_form=1.3), row(2.0, 2.2, closed_form=2.6), row(9.0, None, closed_form=9.0)]
    verdicts = against_baselines(rows)
    assert verdicts[SIMULATED].median_abs_log_error == pytest.approx(math.log(1.1))
    assert verdicts[CLOSED_FORM].median_abs_log_error == pytest.approx(math.log(1.3))
    assert verdicts[CONSTANT].median_abs_log_error == pytest.approx((math.log(1.5) + math.log(2 / 1.5)) / 2)
    assert {errors.n for errors in verdicts.values()} == {2}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"gpu": "NVIDIA H200 SXM"}, ("H200", "vLLM", "eagle3", "2–8")),
        ({"engine": "TensorRT-LLM 1.0", "batch": 1.0}, ("H100", "TensorRT-LLM", "eagle3", "1")),
        ({"engine": "sglang", "batch": 129.0}, ("H100", "SGLang", "eagle3", "129 and more")),
        ({"engine": "HF", "batch": None, "load": "burst"}, ("H100", RESEARCH, "eagle3", "burst")),
        ({"gpu": "RTX 3090", "variant": "plain", "batch": 32.0}, ("other", "vLLM", "plain", "9–32")),
    ],
)
def test_groups(fields: dict[str, Any], expected: tuple[str, ...]) -> None:
    judged_row = row(1.0, 1.0, **fields)
    assert (gpu_of(judged_row), engine_of(judged_row), method_of(judged_row), band_of(judged_row)) == expected


def test_targets_are_judged_on_good_rows_with_known_acceptance() -> None:
    good = row(1.0, 1.02)
    bad = [
        row(1.0, 3.0, acceptance_from="prior"),
        row(1.0, 3.0, gates=False),
        row(1.0, 3.0, gpu="RTX 3090"),
        row(1.0, 3.0, engine="authors' code"),
        row(1.0, 3.0, source="specforge:spec_bundle"),
    ]
    assert [judged(row) and serving(row) for row in (good, *bad)] == [True, *[False] * 5]
    first, *_ = targets_of([good, *bad], [])
    assert (first.name, first.n, first.met) == ("speedup", 1, True)


def test_losses_bias_and_the_closed_form_are_targets_of_their_own() -> None:
    rows = [row(0.8, 0.9, closed_form=1.1), row(0.9, 1.1, closed_form=1.3), row(1.5, 1.6, closed_form=1.7)]
    targets = {(target.name, target.statistic): target for target in targets_of(rows, [])}
    losses = targets["losses", "predicted as losses"]
    assert (losses.value, losses.n, losses.met) == (0.5, 2, False)
    bias = targets["speedup", "bias, either way"]
    assert bias.value == pytest.approx(math.log(0.9 / 0.8 * 1.1 / 0.9 * 1.6 / 1.5) / 3)
    share = targets["speedup", "median, as a share of the closed form's"]
    assert share.value == pytest.approx(math.log(0.9 / 0.8) / math.log(1.1 / 0.8))


def test_the_table_by_source_keeps_the_halves_apart() -> None:
    rows = [
        row(0.8, 0.9, closed_form=1.1, source="arxiv:2601.11580"),
        row(0.9, 1.1, closed_form=1.2, source="of no fit"),
        row(0.9, None, source="of no fit"),
    ]
    table = speedups_by_source(rows)
    called = table.columns.index("losses called")
    assert [(line[0], line[1], line[2], line[called]) for line in table.rows] == [
        ("arxiv:2601.11580", "fit", "1", "1 of 1"),
        ("of no fit", "held out", "1", "0 of 1"),
        ("all", "fit", "1", "1 of 1"),
        ("all", "held out", "1", "0 of 1"),
    ]


def test_a_crossing_that_was_not_predicted_counts_as_outside() -> None:
    rows = [
        row(40.0, 50.0, quantity="crossover_batch", interval=(36.0, 72.0)),
        row(40.0, None, quantity="crossover_batch"),
    ]
    inside, width = targets_of([], rows)[-2:]
    assert (inside.value, inside.met) == (0.5, False)
    assert (width.value, width.met) == (2.0, False)
