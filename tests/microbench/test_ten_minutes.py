"""The ten-minute script: what it measures on a GPU, in which order, and that it runs on a CPU."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calibration.closure.closure import MODES
from calibration.measurements import read_measurements
from calibration.microbench import plan
from calibration.microbench.subject import grid_of
from experiments.ten_minutes import _BUSY, _INCOMPLETE, MEASURING_S, _plan, command, is_weak
from simulator.costs.profiles import load_profile
from tests.microbench.test_plan import cuda_device

BUSY = "the device is busy"
MISFIT = re.compile(r": median error ([\d.]+) % \(.+\), more than the limit of ([\d.]+) %")
"""A part that misses its limit, with both figures."""


def test_on_a_gpu_it_measures_an_8b_model_and_the_shards_of_a_70b_model_in_time() -> None:
    plan = _plan(cuda_device(), quick=False)
    assert plan.left_out == ()
    assert [line.partition(",")[0] for line in plan.uncovered] == ["layers in place"]  # of the fp8 shards
    linear = {
        (p.shape["n"], p.shape["k"], p.dtype)
        for p in plan.points
        if p.bench == "linear" and p.op == "gate_up"
    }
    assert {(28672, 4096, "bf16"), (28672, 4096, "fp8")} <= linear
    assert {(57344 // ranks, 8192, "fp8") for ranks in (1, 2, 4, 8)} <= linear
    # Replays take what they take; capturing and setting up a point take some hundredths of a second more.
    assert plan.visits_s(cuda_device()) + 0.03 * plan.grid.rounds * len(plan.points) < MEASURING_S


def test_what_public_tables_are_weakest_at_comes_first() -> None:
    weak = [point for point in _plan(cuda_device(), quick=False).points if is_weak(point)]
    fp8 = {p.shape["m"] for p in weak if p.bench == "linear"}
    assert {p.dtype for p in weak if p.bench == "linear"} == {"fp8"}
    assert fp8 == {96, 128, 129, 160, 192, 256, 257, 320}
    assert {p.shape["queries"] for p in weak if p.bench == "attention"} == {2, 4, 6, 8, 16}
    assert {p.bench for p in weak} == {"linear", "attention", "layer", "stack"}


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds instead of three, and short visits: medians of fewer repeats, over the same shapes."""
    monkeypatch.setattr(plan, "grid_of", lambda *kind: replace(grid_of(*kind), rounds=2))
    monkeypatch.setitem(MODES, True, replace(MODES[True], outcomes=8, visit_s=0.3, limit_s=90.0))


@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("brief")
def test_on_a_cpu_all_of_it_runs(tmp_path: Path) -> None:
    """A real calibration and a real closed loop of this machine, or why it has none.

    It runs alone because beside other work all points vary too much, and the run ends before the fit.

    A machine that others share may be too busy, or jump between points that are quiet each: then no part is
    made up. It gets a second try, which keeps the points that were quiet. `tests/unit/test_fit.py` has the
    fit of devices that are known exactly.
    """
    folder = tmp_path / "run"
    code, message = run_quick(folder)
    if code == _INCOMPLETE:
        code, message = run_quick(folder)
    raw = read_measurements(folder / "cpu.measurements.csv")
    assert {"linear", "attention", "layer", "stack"} <= {point.bench for point in raw.points}
    closure = folder / "closure.json"
    if code == _INCOMPLETE:
        misfits = MISFIT.findall(message)
        assert misfits or BUSY in message, message
        assert all(float(error) < 3 * float(limit) for error, limit in misfits), message
    else:
        check_profile(folder)
        assert closure.exists()
    if closure.exists():
        check_closure(json.loads(closure.read_text("utf-8")), folder / "loop.json")


def run_quick(folder: Path) -> tuple[int, str]:
    """Exit code and stderr of the script."""
    done = CliRunner().invoke(command, ["--device", "cpu", "--quick", "-o", str(folder)])
    assert "Traceback" not in done.stderr
    assert done.exit_code in (0, _INCOMPLETE, _BUSY), done.stderr
    return done.exit_code, done.stderr


def check_profile(folder: Path) -> None:
    """What the operators gave."""
    compared = json.loads((folder / "against-public-tables.json").read_text("utf-8"))
    assert compared["rows"]
    assert all(row["ratio"] > 1 for row in compared["rows"])  # an H100 is faster, whatever it does
    assert load_profile(str(folder / "cpu.json")).statuses["elementwise"] == "measured"


def check_closure(document: dict[str, Any], profile: Path) -> None:
    """The loop closed, or the machine was busy and no figure stands there."""
    assert document["texts_equal"] is True
    summary = document["summary"]
    if summary["step_median_abs_log_error"] is None:
        assert document["notes"][0].startswith("machine busy")
        assert set(summary.values()) == {None}
        return
    assert profile.exists()
    # The full loop on quiet cores meets tighter limits; a simulator that is wrong meets none of these.
    assert summary["step_median_abs_log_error"] < 0.15
    assert summary["ratio_median_abs_log_error"] < 0.12
    assert summary["speedup_median_abs_log_error"] < 0.15
    assert len(summary["breakeven"]) >= 2
    for row in summary["breakeven"]:
        assert 0 < row["measured_alpha"] < 1
        assert row["predicted_alpha"] == pytest.approx(row["measured_alpha"], abs=0.18)
    for row in document["points"]:
        assert row["measured_step_s"] > row["measured_verify_s"] > 0
        assert row["measured_speedup"] * row["measured_step_s"] == pytest.approx(
            row["measured_tokens_per_cycle"] * row["measured_plain_step_s"], rel=0.25
        )  # medians of pairs, not a ratio of medians
