"""`decodesim closure`: the quick closed loop of this machine, and what is said where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from experiments.cli import decodesim

_BUSY = 3


@pytest.mark.timeout(500)
def test_quick_loop_closes_or_says_that_the_machine_is_busy(tmp_path: Path) -> None:
    page, profile = tmp_path / "closure.html", tmp_path / "here.json"
    command = [sys.executable, "-m", "experiments", "closure", "--device", "cpu", "--quick", "--json"]
    options = ["--html", str(page), "-o", str(profile)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=480)
    assert done.returncode in (0, _BUSY), done.stderr
    assert "Traceback" not in done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["texts_equal"] is True
    assert page.stat().st_size > 1_000_000
    summary = document["summary"]
    if done.returncode == _BUSY:
        assert document["notes"][0].startswith("machine busy")
        assert set(summary.values()) == {None}
        return
    assert profile.exists()
    assert len(summary["breakeven"]) >= 2
    assert all(0 < row["measured_alpha"] < 1 for row in summary["breakeven"])
    for row in document["points"]:
        assert row["measured_step_s"] > row["measured_verify_s"] > 0
        assert row["measured_speedup"] * row["measured_step_s"] == pytest.approx(
            row["measured_tokens_per_cycle"] * row["measured_plain_step_s"], rel=0.25
        )  # medians of pairs, not a ratio of medians


def test_cuda_that_is_not_there_is_said_in_one_line() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("CUDA is there")
    done = CliRunner().invoke(decodesim, ["closure", "--device", "cuda", "--json"])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("--device: CUDA is not there")


def test_weights_that_are_not_there_are_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from calibration.decoder import weights

    monkeypatch.setattr(weights, "_PACKAGE", "no_such_package")
    done = CliRunner().invoke(decodesim, ["closure", "--device", "cpu", "--json"])
    assert done.exit_code == 2
    assert "the weights of SmolLM2-135M are not installed" in done.stderr
