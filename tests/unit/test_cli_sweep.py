"""`decodesim sweep` as a stranger meets it: what it prints, its one JSON document, and bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from experiments.store.reader import StoreReader
from tests.processes import end, eventually, start
from tests.studies import ALPHA, CONCURRENCY, DRAFT_LENGTH, study_file
from tests.unit.test_cli import bad, run

GRID = f"axes:\n  {ALPHA}: [0.3, 0.9]\n  {CONCURRENCY}: [1, 8]\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_one_document_then_only_the_rest_then_all_anew(tmp_path: Path) -> None:
    study_file(tmp_path, GRID)
    command = ("sweep", "small.study.yaml", "--json", "--workers", "1")
    first, second, anew = (run(*command, *more) for more in ([], [], ["--fresh"]))
    text = json.loads(first.stdout)
    assert list(text)[:5] == ["store", "cells", "done", "failed", "skipped_as_done"]
    assert text == {
        "store": "small.db", "cells": 4, "done": 4, "failed": 0, "skipped_as_done": 0, "does_not_fit": 0,
    }  # fmt: skip
    assert json.loads(second.stdout) == text | {"done": 0, "skipped_as_done": 4}
    assert json.loads(anew.stdout) == text
    rows = json.loads(run("results", "small.db", "--where", "alpha > 0.5", "--json").stdout)["rows"]
    assert [row[CONCURRENCY] for row in rows] == [1, 8]


def test_what_a_person_reads(tmp_path: Path) -> None:
    study_file(tmp_path, GRID + "  hardware.tensor_parallel: [1, 4]\nname: Four loads\n")
    message = run("sweep", "small.study.yaml", "--out", "here.db", "--workers", "1")
    assert message.exit_code == 0, message.stderr
    lines = message.stdout.splitlines()
    assert lines[0] == "Four loads: 8 cells, 8 done now"
    assert lines[1].startswith("Best of those: eagle3.throughput_speedup ")
    assert "alpha 0.9" in lines[1]
    assert "4 does-not-fit: eagle3: 67.7 GiB weights" in message.stdout
    assert lines[-1] == "All of them: decodesim results here.db"
    assert (tmp_path / "here.db").is_file()


def test_a_study_that_asks_for_a_precision(tmp_path: Path) -> None:
    """Replications are added until the interval of each throughput is so narrow."""
    study_file(tmp_path, f"axes:\n  {DRAFT_LENGTH}: [3]\nkeep: [throughput_tokens_per_s]\n")
    run("sweep", "small.study.yaml", "--precision", "0.4%", "--workers", "1")
    with StoreReader("small.db") as store:
        (row,) = store.rows()
        assert store.study()["scenario"]["run"] == {"replications": 2, "precision": 0.004}
    for name in ("plain.throughput_tokens_per_s", "eagle3.throughput_tokens_per_s"):
        assert (row[f"{name}.ci95_high"] - row[f"{name}.ci95_low"]) / 2 <= 0.004 * row[name]


BAD = {
    "no file": (["nowhere.yaml"], "nowhere.yaml: no such file or directory"),
    "no folder for the store": (["small.study.yaml", "--out", "no/where.db"], "no/where.db: "),
    "no store at all": (["small.study.yaml", "--out", "small.study.yaml"], "is not a store of decodesim"),
    "no precision": (
        ["small.study.yaml", "--precision", "1,5"],
        "--precision: is not a precision",
    ),
    "no share": (["small.study.yaml", "--precision", "150%"], "--precision: is not a precision (got '150%')"),
    "no workers": (["small.study.yaml", "--workers", "0"], "--workers: is out of range (got 0)"),
    "workers of a cluster": (
        ["small.study.yaml", "--dask", "tcp://127.0.0.1:1", "--workers", "2"], "--workers: cannot be",
    ),
    "nobody answers": (["small.study.yaml", "--dask", "tcp://127.0.0.1:1"], "no Dask scheduler answers"),
    "a typo in --set": (["small.study.yaml", "--set", "workload.request=1"], "did you mean requests?"),
    "a set axis": (["small.study.yaml", "--set", f"{CONCURRENCY}=1"], "sets what the axis"),
}  # fmt: skip
"""What is wrong → (arguments, part of the one line that says so)."""


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    study_file(tmp_path, GRID)
    (line,) = [line for line in bad("sweep", *arguments) if not line.startswith("compiling")]
    assert message in line


def test_another_studys_store_and_a_grid_too_large_are_refused(tmp_path: Path) -> None:
    study_file(tmp_path, GRID)
    assert run("sweep", "small.study.yaml", "--workers", "1").exit_code == 0
    study_file(tmp_path, GRID + f"  {DRAFT_LENGTH}: [1, 2]\n")
    (line,) = bad("sweep", "small.study.yaml")
    assert line.startswith("small.db: is the store of another study")
    assert "--fresh" in line
    study_file(tmp_path, f"axes:\n  {ALPHA}: {{from: 0, to: 1, steps: 9999}}\nseeds: 9\n")
    (line,) = bad("sweep", "small.study.yaml", "--out", "large.db")
    assert line.startswith("small.study.yaml:12:1: axes: multiply to 89,991 cells, --yes ")
    assert not (tmp_path / "large.db").exists()


def test_an_interrupted_sweep_keeps_what_is_done(tmp_path: Path) -> None:
    sweep, store = started(tmp_path, cells=2000)
    try:
        assert eventually(lambda: done(store) > 0, within_s=120)
        sweep.send_signal(signal.SIGINT)
        _, message = sweep.communicate(timeout=60)
    finally:
        end([sweep])
    assert sweep.returncode == 130
    assert "small.db keeps the finished cells, and the same command runs the rest" in message
    assert "Traceback" not in message
    assert 0 < done(store) < 2000


def test_a_sweep_in_the_background_goes_on_when_another_program_is_interrupted(tmp_path: Path) -> None:
    """Ctrl-C reaches all processes of a terminal. A shell script starts `decodesim … &` with it ignored."""
    sweep, store = started(tmp_path, cells=100, background=True)
    try:
        assert eventually(lambda: done(store) > 0, within_s=120)
        assert done(store) < 100
        os.killpg(sweep.pid, signal.SIGINT)
        _, message = sweep.communicate(timeout=60)
    finally:
        end([sweep])
    assert (sweep.returncode, done(store)) == (0, 100), message


def started(folder: Path, cells: int, background: bool = False) -> tuple[subprocess.Popen[str], Path]:
    """A sweep in a process of its own, and its store."""
    study = study_file(folder, f"axes:\n  {ALPHA}: {{from: 0, to: 1, steps: {cells}}}\n")
    store = folder / "small.db"
    arguments = ("sweep", study, "--out", store, "--workers", "1")
    return start("-m", "experiments", *arguments, background=background), store


def done(store: Path) -> int:
    """Cells in a store that may be under way."""
    try:
        with StoreReader(store) as reader:
            return sum(reader.counts().values())
    except Exception:
        return 0
