"""Whatever is killed, and whenever: finished cells stay, nobody is left behind, the next run does the rest.

Real processes, SIGKILL at seeded random times.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from experiments.run_cell import run_cell
from experiments.runner.pools import WINDOW
from experiments.runner.runner import TASK_S
from experiments.store.reader import StoreReader
from experiments.study.grid import StudyGrid
from experiments.study.load import load_study
from tests.processes import end, eventually, session_of, start, workers_of
from tests.shared_data import ROOT
from tests.tiny_tasks import figure

MAP = ROOT / "examples" / "break-even-map-70b.study.yaml"
CELLS, CELL_S = 120, 0.01
MOST_KILLS = 4
IN_FLIGHT = 2 * WINDOW * math.ceil(TASK_S / CELL_S)
"""Cells with two workers at once."""


class Sweep:
    """A store, and drivers that are started on it one after the other."""

    def __init__(self, folder: Path) -> None:
        self.store, self.log = folder / "kill.db", folder / "log"

    def start(self, where: str = "here", seconds_s: float = CELL_S) -> subprocess.Popen[str]:
        """A driver; `before` are the cells that it finds."""
        self.before = self.finished()
        return start("-m", "tests.kill_driver", self.store, self.log, str(CELLS), str(seconds_s), where)

    def begun(self) -> list[int]:
        """The cells that were begun, in order, as often as they were."""
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []

    def finished(self) -> set[int]:
        """The cells that the store has."""
        if not self.store.exists() or not self.store.stat().st_size:
            return set()
        with StoreReader(self.store) as store:
            return {number for (number,) in store.values(None, ["concurrency"])} if store.counts() else set()

    def require_whole(self) -> None:
        """Every cell is there, with the figures that its number gives."""
        with StoreReader(self.store) as store:
            result = list(store.values(None, ["concurrency", "plain.throughput_tokens_per_s"]))
            assert store.counts() == {"done": CELLS}
        assert result == [(number, figure(number)) for number in range(CELLS)]


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_drivers_lose_no_finished_cell(sweep: Sweep, seed: int) -> None:
    """Each run is killed at a random time, mostly while cells are stored; the last one is let end."""
    rng = random.Random(seed)
    for number in range(MOST_KILLS + 1):
        seen = len(sweep.begun())
        driver = sweep.start()
        try:
            if number < MOST_KILLS:
                time.sleep(rng.uniform(0.2, 1.2))
                driver.send_signal(signal.SIGKILL)
            driver.communicate(timeout=60)
            assert nobody_is_left_of(driver), "a worker outlives its driver"
        finally:
            end([driver])
        assert sweep.finished() >= sweep.before
        assert not sweep.before & set(sweep.begun()[seen:]), "a cell that was kept is run again"
    assert driver.returncode == 0
    sweep.require_whole()
    begun_in_vain = len(sweep.begun()) - CELLS
    assert begun_in_vain <= MOST_KILLS * IN_FLIGHT


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_workers_cost_only_time(sweep: Sweep, seed: int) -> None:
    """A worker is killed now and then; the driver goes on, and every cell is done, none of them failed."""
    rng = random.Random(seed)
    driver = sweep.start(seconds_s=3 * CELL_S)
    kills = 0
    try:
        while driver.poll() is None:
            time.sleep(rng.uniform(0.4, 1.0))
            workers = workers_of(driver.pid)
            if workers and kills < MOST_KILLS:
                kills += _kill(rng.choice(workers))
        _, errors = driver.communicate(timeout=60)
        assert (driver.returncode, errors) == (0, "")
        assert kills >= 2
        sweep.require_whole()
        assert nobody_is_left_of(driver)
    finally:
        end([driver])


def small_map(folder: Path) -> Path:
    """The study of the break-even map with 12 of its cells, and short runs."""
    data: dict[str, Any] = YAML(typ="safe", pure=True).load(MAP)
    lengths = [f"speculation.{variant}.draft_length" for variant in ("eagle3", "draft-1b")]
    data["axes"] = {"hardware.tensor_parallel": [2, 4], "workload.arrivals.concurrency": [1, 16]}
    data["axes"] |= {path: [1, 3, 7] for path in lengths}
    data["zip"] = [lengths]
    data["scenario"]["workload"] |= {"requests": 60, "output_tokens": {"kind": "fixed", "tokens": 60}}
    path = folder / "map.study.yaml"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


@pytest.mark.parametrize("seed", [1])
def test_a_killed_break_even_map_is_completed_bit_for_bit(tmp_path: Path, seed: int) -> None:
    """`decodesim sweep` on real cells, killed twice; the store ends as one that nobody killed would."""
    rng = random.Random(seed)
    study, place = small_map(tmp_path), tmp_path / "map.db"
    expected = {cell.key: run_cell(cell) for cell in StudyGrid(load_study(study)).cells()}  # compiles, too
    cell_count = 0
    for until in (rng.randint(1, 4), rng.randint(5, 8), None):
        driver = start("-m", "experiments", "sweep", study, "--out", place, "--workers", "2", "--json")
        try:
            if until is not None:
                while cells_in(place) < until and driver.poll() is None:
                    time.sleep(rng.uniform(0.0, 0.3))
                driver.send_signal(signal.SIGKILL)
            out, errors = driver.communicate(timeout=120)
            assert nobody_is_left_of(driver)
        finally:
            end([driver])
        assert cells_in(place) >= max(cell_count, until or 0)
        cell_count = cells_in(place)
    document = json.loads(out)
    assert (driver.returncode, errors, document["failed"], document["cells"]) == (0, "", 0, len(expected))
    assert document["done"] + document["skipped_as_done"] == cell_count == len(expected)
    assert document["skipped_as_done"] >= 5
    with StoreReader(place) as store:
        rows = {row["key"]: row for row in store.rows()}
    for key, result in expected.items():
        figures = {name: rows[key][name] for name in result.metrics}
        assert figures == {
            name: metric["value"] if isinstance(metric, Mapping) else metric
            for name, metric in result.metrics.items()
        }


def cells_in(place: Path) -> int:
    if not place.exists():
        return 0
    with StoreReader(place) as store:
        return sum(store.counts().values())


def nobody_is_left_of(driver: subprocess.Popen[str]) -> bool:
    return eventually(lambda: session_of(driver.pid) == {})


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
