"""A store of 100,000 cells: written, filtered and exported, in CPU seconds and in memory."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from experiments.cell import Cell, CellResult, MetricValue
from experiments.run_cell import run_cell
from experiments.store.export import export
from experiments.store.reader import StoreReader
from experiments.store.store import Store
from experiments.study.grid import StudyGrid
from experiments.study.load import load_study
from tests.shared_data import ROOT

CELLS = 100_000
STUDY = """\
scenario: {examples}/textbook-h100.yaml
axes: {{workload.requests: [400]}}
"""
MOST_EXPORT_S = 5.0
MOST_ADD_S = 1e-3
"""A tenth of the simulation of a small cell."""
MOST_MEMORY = 1.5
WHERE = "alpha > 0.5 AND concurrency <= 64"


def varied(metric: MetricValue, rng: random.Random) -> MetricValue:
    """A figure like this one, with all its digits."""
    if isinstance(metric, Mapping):
        ends = {name: pair and [rng.random(), rng.random()] for name, pair in metric.items()}
        return {**ends, "value": rng.random()}
    return rng.choice(["pays", "loses", "undecided"]) if isinstance(metric, str) else rng.random()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 acceptances × 8 draft lengths × 10 loads × 63 seeds, with the usual metrics of a real cell."""
    folder = tmp_path_factory.mktemp("store")
    path, study = folder / "large.db", folder / "small.study.yaml"
    study.write_text(STUDY.format(examples=ROOT / "examples"), encoding="utf-8")
    real = next(iter(StudyGrid(load_study(study)).cells()))
    like = run_cell(real).metrics
    rng, spent_s = random.Random(0), 0.0
    with Store.create_or_open(path, {"name": "large"}, "sha") as store_of_study:
        for number in range(CELLS):
            settings = {
                "speculation.eagle3.acceptance.alpha": (1 + number % 20) / 20,
                "speculation.eagle3.draft_length": 1 + number // 20 % 8,
                "workload.arrivals.concurrency": 2 ** (number // 160 % 10),
                "seed": number // 1600,
            }
            cell = Cell(settings, f"{real.scenario} {number}")
            metrics = {name: varied(metric, rng) for name, metric in like.items()}
            result = CellResult(f"{number:064x}", "done", metrics)
            begun_s = time.process_time()
            store_of_study.add(cell, result)
            spent_s += time.process_time() - begun_s
    print(f"\n{path.stat().st_size / CELLS:,.0f} bytes and {spent_s / CELLS * 1e6:.0f} µs of CPU a cell")
    assert spent_s / CELLS < MOST_ADD_S
    return path


def cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    begun_s = time.process_time()
    work()
    return time.process_time() - begun_s


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("where", [WHERE, None], ids=["filtered", "all"])
def test_filter_and_export(store: Path, tmp_path: Path, ending: str, where: str | None) -> None:
    with StoreReader(store) as reader:
        columns = len(reader.columns())
        count = sum(reader.counts(where).values())
        spent_s = cpu_s(lambda: export(reader, tmp_path / f"cells.{ending}", where))
    print(f"\n{ending}: {count:,} of {CELLS:,} cells, {columns} columns: {spent_s:.2f} s of CPU")
    assert count == (CELLS if where is None else 35_120)
    assert spent_s < MOST_EXPORT_S


def test_memory_does_not_grow_with_the_cells(store: Path, tmp_path: Path) -> None:
    peaks = []
    with StoreReader(store) as reader:
        for where in ("seed < 13", None):
            tracemalloc.start()
            export(reader, tmp_path / "cells.parquet", where)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    print(f"\npeak for a fifth of the cells {peaks[0] / 1e6:.1f} MB, for all {peaks[1] / 1e6:.1f} MB")
    assert peaks[1] < MOST_MEMORY * peaks[0]
