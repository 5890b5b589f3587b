"""A cell says what `simulate` and `breakeven` say of its scenario, wherever and whenever it runs."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.cell import DONE, FAILED, Cell, CellResult, MetricValue, code_version
from experiments.metrics import AGAINST_PLAIN, BREAK_EVENS, OF_A_VARIANT, KeptMetrics, is_metric, keep_problem
from experiments.run_cell import run_cell
from experiments.store.columns import METRIC, REAL, column_with_meaning
from experiments.study.grid import StudyGrid
from simulator.breakeven.breakeven import breakeven
from simulator.results.estimate import Estimate
from simulator.results.verdict import DOES_NOT_FIT
from simulator.scenario import scenario_from_data
from simulator.simulation import simulate
from tests.shared_data import ROOT
from tests.studies import ALPHA, CONCURRENCY, DRAFT_LENGTH, SCENARIO, study

TWO_VARIANTS = SCENARIO.replace(
    "  workload:",
    "    - {name: small.1b, method: draft_model, draft: llama-3.2-1b-instruct, draft_length: 4, "
    "acceptance: {model: geometric, alpha: 0.6}}\n  workload:",
)
SIMULATED = (*OF_A_VARIANT, *AGAINST_PLAIN, "conditional_acceptance.1", "acceptance_rate_at.3")
EVERYTHING = (*SIMULATED, *BREAK_EVENS, "speedup_at.0.5")


def one_cell(folder: Path, rest: str = "", scenario: str = SCENARIO) -> Cell:
    """The only cell of a study."""
    (cell,) = StudyGrid(study(folder, rest, scenario)).cells()
    return cell


def without_time(results: Sequence[CellResult]) -> dict[str, tuple[Any, ...]]:
    """Key → what is the same for the same cell."""
    return {result.key: (result.status, result.metrics, result.error) for result in results}


def as_json(estimates: Mapping[str, Estimate | None]) -> dict[str, MetricValue]:
    """The figures that there are, as a cell has them."""
    return {name: estimate.to_json() for name, estimate in estimates.items() if estimate is not None}


def test_a_cell_says_what_simulate_says(tmp_path: Path) -> None:
    cell = one_cell(tmp_path, f"keep: {json.dumps(SIMULATED)}\n", TWO_VARIANTS)
    result = run_cell(cell)
    simulated = simulate(scenario_from_data(json.loads(cell.scenario)), keep_requests=False)
    expected: dict[str, MetricValue] = {}
    for variant, summary in simulated.variants.items():
        figures = {path: value for path, value in summary.estimates.items() if path in SIMULATED}
        expected |= {f"{variant}.{path}": value for path, value in as_json(figures).items()}
        expected[f"{variant}.saturated"] = 0.0
    for variant, comparison in simulated.comparison.items():
        assert comparison.verdict.outcome is not None
        ratios = {**as_json(comparison.ratios), "verdict": comparison.verdict.outcome}
        expected |= {f"{variant}.{path}": value for path, value in ratios.items()}
        expected[f"{variant}.reason"] = comparison.verdict.sentence
    assert result.status == DONE
    assert result.metrics == expected
    assert len(expected) > 80


def test_a_cell_says_what_breakeven_says(tmp_path: Path) -> None:
    cell = one_cell(
        tmp_path,
        "measure: breakeven\nkeep: [break_even_alpha, overhead, geometric_alpha, break_even_verdict]\n",
        TWO_VARIANTS,
    )
    result = run_cell(cell).metrics
    for variant in ("eagle3", "small.1b"):
        (row,) = breakeven(scenario_from_data(json.loads(cell.scenario)), variant=variant).rows
        assert row.simulated_alpha is not None
        assert result[f"{variant}.break_even_alpha"] == row.simulated_alpha.to_json()
        assert result[f"{variant}.overhead"] == row.overhead
        assert result[f"{variant}.geometric_alpha"] == row.geometric_alpha
        assert result[f"{variant}.break_even_verdict"] == row.verdict
    assert len(result) == 8


def test_neither_order_nor_company_nor_process_changes_a_figure(tmp_path: Path) -> None:
    rest = (
        f"measure: [simulate, breakeven]\naxes:\n  {CONCURRENCY}: [1, 8]\n  {DRAFT_LENGTH}: [1, 4]\n"
        f"  {ALPHA}: [0.4, 0.8]\nwhere: concurrency = 1 OR draft_length = 4 AND alpha > 0.5\n"
    )
    cells = list(StudyGrid(study(tmp_path, rest)).cells())
    ahead, back = [run_cell(cell) for cell in cells], [run_cell(cell) for cell in reversed(cells)]
    assert {result.status for result in ahead} == {DONE}
    assert without_time(back) == without_time(ahead)
    alone = tmp_path / "cell.pickle"
    alone.write_bytes(pickle.dumps(cells[3]))
    code = (
        "import pickle, sys\nfrom experiments.run_cell import run_cell\n"
        "cell = pickle.load(open(sys.argv[1], 'rb'))\n"
        "sys.stdout.buffer.write(pickle.dumps(run_cell(cell)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, alone], cwd=ROOT, capture_output=True, check=True, timeout=120
    )
    assert without_time([pickle.loads(done.stdout)]) == without_time([ahead[3]])


def test_what_is_left_out_of_keep_is_not_there(tmp_path: Path) -> None:
    cell = one_cell(tmp_path, "keep: [small.1b.verdict, plain.tpot_s.mean, mean_batch]\n", TWO_VARIANTS)
    assert set(run_cell(cell).metrics) == {
        "small.1b.verdict",
        "plain.tpot_s.mean",
        "plain.mean_batch",
        "eagle3.mean_batch",
        "small.1b.mean_batch",
    }


def test_bands_are_run_for_verdicts_only(tmp_path: Path) -> None:
    """Without them a band would hold sampling only, and is left out."""
    without = run_cell(one_cell(tmp_path, "keep: [throughput_speedup]\n")).metrics[
        "eagle3.throughput_speedup"
    ]
    with_them = run_cell(one_cell(tmp_path, "keep: [throughput_speedup, verdict]\n")).metrics
    assert isinstance(without, Mapping)
    assert without["band"] is None
    banded = with_them["eagle3.throughput_speedup"]
    assert isinstance(banded, Mapping)
    assert banded == {**without, "band": banded["band"]}
    assert banded["band"][0] < without["ci95"][0] < without["ci95"][1] < banded["band"][1]


def test_one_replication_has_values_without_intervals(tmp_path: Path) -> None:
    scenario = SCENARIO.replace("replications: 2", "replications: 1")
    result = run_cell(one_cell(tmp_path, "", scenario)).metrics
    assert result["eagle3.verdict"] == "undecided"
    speedup = result["eagle3.throughput_speedup"]
    assert isinstance(speedup, Mapping)
    assert (speedup["ci95"], speedup["band"]) == (None, None)


def test_classes_of_traffic_with_their_own_acceptance(tmp_path: Path) -> None:
    """Plain decoding knows no variants, and so no acceptance of theirs."""
    classes = (
        "    classes: [{name: code, share: 0.5, acceptance: {eagle3: {model: geometric, alpha: 0.9}}}]\n"
    )
    scenario = SCENARIO.replace("  run:", f"{classes}  run:")
    result = run_cell(one_cell(tmp_path, "keep: [classes.code.tpot_s.mean, eagle3.verdict]\n", scenario))
    assert result.status == DONE, result.error
    assert set(result.metrics) == {
        "plain.classes.code.tpot_s.mean",
        "eagle3.classes.code.tpot_s.mean",
        "eagle3.verdict",
    }


def test_memory_that_is_too_small_is_an_answer(tmp_path: Path) -> None:
    result = run_cell(
        one_cell(tmp_path, "axes:\n  hardware.tensor_parallel: [1]\n  target.weights: [bf16]\n")
    )
    assert result.status == DOES_NOT_FIT
    assert result.metrics == {}
    assert result.error is not None
    assert "the smallest tensor parallelism that fits is" in result.error


def test_one_variant_may_not_fit_where_others_do(tmp_path: Path) -> None:
    """70 GB of weights on one GPU of 80 GB leave room for requests, and none for a drafter of 3 GB."""
    rest = "axes:\n  hardware.tensor_parallel: [1]\nkeep: [verdict, plain.steps]\n"
    lookup = "{name: lookup, method: ngram, acceptance: {model: geometric, alpha: 0.4}}"
    both = SCENARIO.replace("  workload:", f"    - {lookup}\n  workload:")
    alone, with_lookup = run_cell(one_cell(tmp_path, rest)), run_cell(one_cell(tmp_path, rest, both))
    assert alone.metrics["eagle3.verdict"] == with_lookup.metrics["eagle3.verdict"] == DOES_NOT_FIT
    assert alone.metrics["plain.steps"] == with_lookup.metrics["plain.steps"]
    assert with_lookup.metrics["lookup.verdict"] in ("pays", "loses", "undecided")
    assert (alone.status, with_lookup.status) == (DOES_NOT_FIT, DONE)
    assert alone.error is not None
    assert alone.error.startswith("eagle3: ")


def test_a_combination_that_is_wrong_is_a_failed_cell(tmp_path: Path) -> None:
    rest = "axes:\n  hardware.tensor_parallel: [2, 4]\n  speculation.eagle3.draft_tensor_parallel: [2, 4]\n"
    results = [run_cell(cell) for cell in StudyGrid(study(tmp_path, rest)).cells()]
    assert [result.status for result in results].count(FAILED) == 2
    errors = {result.error for result in results if result.status == FAILED}
    assert all(error and "is neither 1 nor the target's" in error and "\n" not in error for error in errors)


def test_the_key_follows_all_that_the_figures_follow_from() -> None:
    cells = [
        Cell({}, "{}"),
        Cell({}, "{} "),
        Cell({}, "{}", ("breakeven",)),
        Cell({}, "{}", keep=("verdict",)),
        Cell({}, "{}", files="x"),
    ]
    assert len({cell.key for cell in cells}) == len(cells)
    assert Cell({"seed": 1}, "{}").key == Cell({"seed": 2}, "{}").key
    assert "+" in code_version()


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_metric_is_documented(name: str) -> None:
    column = column_with_meaning(f"eagle3.{name}", METRIC, REAL)
    assert is_metric(name)
    assert keep_problem(name, ()) is None
    assert keep_problem(f"plain.{name}", ("plain",)) is None
    assert column.meaning.removeprefix("eagle3: ") not in ("", name.replace("_", " "))


def test_acceptances_are_asked_for_by_keeping_them() -> None:
    assert KeptMetrics(["speedup_at.0.7", "eagle3.speedup_at.0.55", "verdict"]).alphas == (0.55, 0.7)
    assert KeptMetrics([]).alphas == ()
    assert KeptMetrics([]).verdicts
    assert KeptMetrics(["a.verdict"]).verdicts
    assert not KeptMetrics(["throughput_speedup"]).verdicts
