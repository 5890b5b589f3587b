"""`decodesim calibrate` as a stranger meets it: a device, an interrupted run, one line for what is wrong."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from calibration.measurements import MeasurementFile, measurements_path, read_measurements
from calibration.microbench import plan
from calibration.microbench.device import open_device
from calibration.microbench.subject import grid_of
from experiments.cli import decodesim
from tests.microbench.tiny import DENSE, tiny_device, written
from tests.processes import eventually, start

SMOL = ("--model", "smollm2-135m-instruct")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(decodesim, ["calibrate", *map(str, arguments)], env={"COLUMNS": "120"})


def refused(*arguments: str | Path) -> str:
    """What is said of wrong arguments: no traceback, exit code 2, nothing on stdout."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    return result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--device: is missing, cuda or cpu; or --from-tables FOLDER --system GPU"),
        (("--device", "cpu"), "--model: is missing"),
        (("--device", "cpu", "--model", "smollm2-135"), "did you mean 'smollm2-135m-instruct'?"),
        (("--device", "cpu", "--model", "nowhere/config.json"), "nowhere/config.json: is not there"),
        (("--device", "cpu", *SMOL, "--draft", "eagle3-llama-3.1-8b"), "hidden_size: does not fit"),
        (("--device", "cpu", *SMOL, "--draft", "eagle3-lama-3.1-8b"), "unknown drafter"),
        (("--device", "cpu", *SMOL, "--tp", "2"), "--tp: does not divide the heads"),
        (("--device", "cpu", *SMOL, "--tp", "0"), "--tp: does not divide the heads"),
        (("--device", "cpu", *SMOL, "--tp", "one"), "--tp: 'one' is not a number"),
        (("--device", "cpu", *SMOL, "--dtype", "bf61"), "did you mean 'bf16'?"),
        (("--device", "cpu", *SMOL, "--dtype", ","), "--dtype: names no weight format"),
        (("--system", "h100-sxm"), "--system: names the GPU of public tables"),
        (("--from-tables", "nowhere"), "--system: is missing"),
        (("--from-tables", "nowhere", "--system", "h100-sxm"), "--from-tables: is not a folder"),
        (("--from-tables", ".", "--system", "h100"), "h100-sxm"),
        (("--from-tables", ".", "--system", "h100-sxm", "--device", "cpu"), "cannot be combined with"),
        (
            ("--from-tables", ".", "--system", "h100-sxm", "--quick"),
            "--quick: does not apply to public tables",
        ),
    ],
)
def test_wrong_flags_are_one_line(tmp_path: Path, arguments: Sequence[str], message: str) -> None:
    text = refused(*arguments, "-o", tmp_path / "p.json")
    assert message in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "message"),
    [("", "is a folder"), ("nowhere/p.json", "is not there"), ("closed/p.json", "cannot be written")],
)
def test_a_place_that_cannot_be_written_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, message: str
) -> None:
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: "closed" not in str(path))  # root may write anywhere
    assert message in refused("--device", "cpu", *SMOL, "-o", tmp_path / output)


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    assert "CUDA is not available" in refused("--device", "cuda", *SMOL, "-o", tmp_path / "p.json")


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    message = refused("--device", "cpu", *SMOL, "-o", tmp_path / "p.json")
    assert "torch is not installed" in message
    assert "decodesim[calibration]" in message


def test_measurements_of_another_device_are_refused(tmp_path: Path) -> None:
    profile = tmp_path / "p.json"
    MeasurementFile.open(measurements_path(profile), tiny_device().notes)
    message = refused("--device", "cpu", *SMOL, "-o", profile)
    assert "p.measurements.csv: holds measurements of another device: cache_bytes 4096 there" in message
    assert "another -o" in message


def arguments(tmp_path: Path, *more: str) -> list[str]:
    config = str(written(DENSE, tmp_path))
    profile = str(tmp_path / "here.json")
    return ["calibrate", "--device", "cpu", "--model", config, "--quick", "-o", profile, *more]


def rows_of(path: Path) -> int:
    return path.read_text("utf-8").count("\n") if path.exists() else 0


def test_an_interrupted_run_is_gone_on_with_and_ends_in_a_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is interrupted as a process of its own, and goes on in this one, to two rounds instead of three."""
    raw = tmp_path / "here.measurements.csv"
    first = start("-m", "experiments", *arguments(tmp_path))
    assert eventually(lambda: rows_of(raw) > 40, within_s=120)
    first.send_signal(signal.SIGINT)
    _, message = first.communicate(timeout=60)
    assert first.returncode == 130, message
    assert "the measurements are kept next to" in message
    assert "Traceback" not in message
    measurements = read_measurements(raw)
    assert measurements.sessions[-1]["how"] == "interrupted"
    counted = {(point.bench, point.op, *point.shape.values()): point.repeats for point in measurements.points}

    monkeypatch.setattr(plan, "grid_of", lambda *kind: replace(grid_of(*kind), rounds=2))
    second = CliRunner().invoke(decodesim, arguments(tmp_path, "--json", "--dtype", "bf16,fp8"))
    answer, message = second.stdout, second.stderr
    complete = read_measurements(raw)
    again = {(point.bench, point.op, *point.shape.values()): point.repeats for point in complete.points}
    assert len(again) > len(counted)
    assert [session["how"] for session in complete.sessions][:2] == ["interrupted", "complete"]
    assert second.exit_code == 2  # this machine has no fp8
    assert "not measured: fp8" in message
    if (tmp_path / "here.json").exists():
        assert "not in the profile: fp8" in message
        check_answer(json.loads(answer), tmp_path / "here.json")
    else:  # other tests run beside this one
        assert "busy" in message, message
        assert answer == ""


def check_answer(document: dict[str, Any], profile: Path) -> None:
    """The keys that the command promises, and a profile that the simulator takes."""
    from simulator.costs.profiles import load_profile

    assert document["profile"] == str(profile)
    assert document["hbm_bandwidth_bytes_per_s"]["value"] > 1e8
    for key in ("batch_response", "draft_pass_s", "verify_overhead"):
        assert document[key]
    statuses = {part["name"]: part["status"] for part in document["parts"]}
    assert statuses["gemm/bf16"] == "measured"
    assert load_profile(str(profile)).statuses == statuses
    provenance = json.loads(profile.read_text("utf-8"))["provenance"]
    assert open_device("cpu").notes.torch in json.dumps(provenance)
