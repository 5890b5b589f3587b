"""Kinds of published cases that were once read as something else, with what is right for each."""

from __future__ import annotations

from functools import cache

import pytest

from calibration.validation.predict import predict
from calibration.validation.reconstruction.cases import read_cases
from calibration.validation.reconstruction.published_run import PublishedRun
from calibration.validation.reconstruction.reconstruct import published_runs_of_cases
from calibration.validation.row import ComparisonRow, input_of, rows_of
from tests.published_cases import PLAIN, SPEC, changed, runs_in, the_run
from tests.shared_data import SHARED


@cache
def misread() -> dict[str, PublishedRun]:
    """The runs of the file of misread cases, by case."""
    runs = published_runs_of_cases(read_cases([SHARED / "cases" / "found" / "published_misread.json"]))
    return {run.case.case_id: run for run in runs}


def rows(run: PublishedRun) -> dict[str, ComparisonRow]:
    """The rows of a run by quantity."""
    return {row.quantity: row for row in rows_of(run, predict(input_of(run)))}


def test_a_profile_states_a_rate_and_a_peak_is_no_input():
    run = misread()["r5_rate_in_profile"]
    assert run.plain is not None
    assert run.plain.workload.arrivals.model_dump() == {"kind": "poisson", "rate_per_s": 1.0}
    assert rows(run)["throughput"].ratio == pytest.approx(1, abs=0.05)


def test_sglang_clients_divide_a_gap_by_its_tokens():
    row_by_quantity = rows(misread()["r3_sglang_itl_per_token"])
    assert row_by_quantity["itl_mean"].predicted == pytest.approx(
        row_by_quantity["tpot_mean"].predicted, rel=0.02
    )


def test_tpot_with_ttft_is_skipped_with_its_reason():
    assert rows(misread()["r2_tpot_incl_ttft"])["tpot_mean"].skipped == "TPOT includes TTFT"


def test_a_static_batch_of_research_code_only_decodes():
    assert rows(misread()["r7_static_batch"])["speedup"].ratio == pytest.approx(1, abs=0.12)


def test_a_speedup_at_a_rate_is_one_of_latencies():
    row = rows(misread()["r8_rate_speedup"])["speedup"]
    assert row.predicted is not None
    assert row.predicted > 1.3


def test_a_head_over_a_quarter_of_the_vocabulary_is_cheaper():
    full, pruned = (rows(misread()[name])["speedup"].predicted for name in ("r9_full", "r9_pruned"))
    assert full is not None
    assert pruned is not None
    assert 1.1 * full < pruned < 1.5 * full


def test_equal_figures_at_other_lengths_are_all_compared(tmp_path):
    points = [
        {"isl": isl, "osl": 128, "concurrency": 1, "baseline": {"tpot_mean_ms": ms}}
        for isl, ms in ((128, 7.1), (8000, 7.1), (8000, 7.2))
    ]
    case = {**PLAIN, "load_axis": "isl_osl", "points": points}
    assert [run.published[0].value for run in runs_in(tmp_path, case)] == pytest.approx(
        [7.1e-3, 7.1e-3, 7.2e-3]
    )


def test_an_mtp_layer_of_a_model_without_its_own_has_the_targets_shape(tmp_path):
    run = the_run(
        tmp_path,
        changed(
            SPEC,
            draft={"method": "mtp", "k": 1},
            points=[{"concurrency": 8, "speedup": 1.4, "acceptance_length": 1.8}],
        ),
    )
    assert run.spec is not None
    assert run.spec.speculation[0].method == "eagle"
    assert any("one layer of the target's shape" in choice for choice in run.choices)
