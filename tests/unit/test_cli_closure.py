"""`decodesim closure`: what it prints, its page, its exit codes (a real run: test_ten_minutes.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from experiments.cli import decodesim

POINT = (
    *("batch", "draft_length", "alpha", "measured_step_s", "predicted_step_s"),
    *("measured_speedup", "predicted_speedup"),
)
SUMMARY = ("step_median_abs_log_error", "speedup_median_abs_log_error", "breakeven")


def run_of(busy: str | None) -> Any:
    """A run of two points: one breaks even, the other never does."""
    from calibration.closure.closure import Closure
    from calibration.closure.compared_point import ComparedPoint
    from calibration.closure.measured_point import MeasuredPoint, StepPair
    from calibration.closure.points import LoopPoint
    from calibration.closure.predicted_point import PredictedPoint
    from calibration.closure.reference import Reference
    from calibration.closure.text_check import TextCheck
    from calibration.measurements import DeviceNotes

    def pair(alpha: float, tokens: float) -> StepPair:
        return StepPair(alpha, tokens, 0.01, 0.001, 0.012, 0.001, (0.004, 0.003), 262, 262)

    pays = MeasuredPoint(LoopPoint(2, 2, 256, 1), (pair(0.4, 1.56), pair(0.6, 1.96)))
    never = MeasuredPoint(LoopPoint(1, 2, 256, 27, temperature=1.0), (pair(1.0, 1.5),))
    result = PredictedPoint(0.0112, 0.0101, 0.0118, 0.0035, 0.0201, "found", 0.52, {0.4: 0.87, 0.6: 1.09})
    none = PredictedPoint(0.0112, 0.0101, 0.0118, 0.0035, 0.0201, "unreachable", None, {1.0: 0.84})
    device = DeviceNotes("cpu", "a CPU", None, 1, 1, 1, 2, "", "2.13", "")
    compared = () if busy else (ComparedPoint(pays, result), ComparedPoint(never, none))
    return Closure(device, compared, Reference.of([[0.01] * 8] * 2), TextCheck(True, 0.4), 1, 12.0, busy)


def closure(monkeypatch: pytest.MonkeyPatch, busy: str | None, *options: str) -> Result:
    """The command with a run that was made already."""
    monkeypatch.setattr("calibration.closure.closure.close_loop", lambda *_: run_of(busy))
    return CliRunner().invoke(decodesim, ["closure", "--device", "cpu", *options])


def test_json_has_the_keys_of_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    done = closure(monkeypatch, None, "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert all(set(POINT) <= row.keys() for row in document["points"])
    assert [row["alpha"] for row in document["points"]] == [0.4, 0.6, 1.0]
    assert set(SUMMARY) <= document["summary"].keys()
    (row,) = document["summary"]["breakeven"]
    assert (row["batch"], row["draft_length"], row["predicted_alpha"]) == (2, 2, 0.52)
    assert 0.4 < row["measured_alpha"] < 0.6
    (other,) = document["summary"]["no_breakeven"]
    assert (other["measured"], other["predicted"], other["agree"]) == ("unreachable", "unreachable", True)


def test_text_and_page_show_both_sides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "closure.html"
    done = closure(monkeypatch, None, "--html", str(page))
    assert done.exit_code == 0, done.stderr
    assert "B 2, K 2, 256 tokens, 1 layer" in done.stdout
    assert "equals that of plain greedy decoding" in done.stdout
    text = page.read_text("utf-8")
    assert "closure-steps" in text
    assert "closure-alphas" in text


def test_a_busy_machine_ends_with_3_and_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    why = "machine busy: others work here"
    done = closure(monkeypatch, why, "--json", "--html", str(tmp_path / "closure.html"))
    assert done.exit_code == 3
    document = json.loads(done.stdout)
    assert document["notes"] == [document["busy"]] == [why]
    assert set(document["summary"].values()) == {None}
    assert why in closure(monkeypatch, why).stdout


def test_cuda_that_is_not_there_is_said_in_one_line() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("CUDA is there")
    done = CliRunner().invoke(decodesim, ["closure", "--device", "cuda", "--json"])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("--device: CUDA is not available")


def test_weights_that_are_not_there_are_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from calibration.decoder import weights

    monkeypatch.setattr(weights, "_PACKAGE", "no_such_package")
    done = CliRunner().invoke(decodesim, ["closure", "--device", "cpu", "--json"])
    assert done.exit_code == 2
    assert "the weights of SmolLM2-135M are not installed" in done.stderr


def test_a_place_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    for option in ("-o", "--html"):
        target = str(tmp_path / "nowhere" / "file")
        done = CliRunner().invoke(decodesim, ["closure", "--device", "cpu", option, target])
        assert done.exit_code == 2
        assert "is not there" in done.stderr
