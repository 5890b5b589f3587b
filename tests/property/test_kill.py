"""Whatever is killed, and whenever: finished cells stay, nobody is left behind, the next run does the rest.

Real processes, SIGKILL at seeded random times.
"""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from experiments.pools import WINDOW
from experiments.runner import TASK_S
from experiments.store_reader import StoreReader
from tests.processes import end, eventually, session_of, start, workers_of
from tests.tiny_tasks import figure

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
        self.before = self.kept()
        return start("-m", "tests.kill_driver", self.store, self.log, str(CELLS), str(seconds_s), where)

    def begun(self) -> list[int]:
        """The cells that were begun, in order, as often as they were."""
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []

    def kept(self) -> set[int]:
        """The cells that the store has."""
        if not self.store.exists() or not self.store.stat().st_size:
            return set()
        with StoreReader(self.store) as store:
            return {number for (number,) in store.values(None, ["concurrency"])} if store.counts() else set()

    def require_whole(self) -> None:
        """Every cell is there, with the figures that its number gives."""
        with StoreReader(self.store) as store:
            found = list(store.values(None, ["concurrency", "plain.throughput_tokens_per_s"]))
            assert store.counts() == {"done": CELLS}
        assert found == [(number, figure(number)) for number in range(CELLS)]


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_drivers_lose_no_finished_cell(sweep: Sweep, seed: int) -> None:
    """Each run is killed at a random time, mostly while cells are stored; the last one is let end."""
    luck = random.Random(seed)
    for number in range(MOST_KILLS + 1):
        seen = len(sweep.begun())
        driver = sweep.start()
        try:
            if number < MOST_KILLS:
                time.sleep(luck.uniform(0.2, 1.2))
                driver.send_signal(signal.SIGKILL)
            driver.communicate(timeout=60)
            assert nobody_is_left_of(driver), "a worker outlives its driver"
        finally:
            end([driver])
        assert sweep.kept() >= sweep.before
        assert not sweep.before & set(sweep.begun()[seen:]), "a cell that was kept is run again"
    assert driver.returncode == 0
    sweep.require_whole()
    begun_in_vain = len(sweep.begun()) - CELLS
    assert begun_in_vain <= MOST_KILLS * IN_FLIGHT


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_workers_cost_only_time(sweep: Sweep, seed: int) -> None:
    """A worker is killed now and then; the driver goes on, and every cell is done, none of them failed."""
    luck = random.Random(seed)
    driver = sweep.start(seconds_s=3 * CELL_S)
    kills = 0
    try:
        while driver.poll() is None:
            time.sleep(luck.uniform(0.4, 1.0))
            workers = workers_of(driver.pid)
            if workers and kills < MOST_KILLS:
                kills += _kill(luck.choice(workers))
        _, errors = driver.communicate(timeout=60)
        assert (driver.returncode, errors) == (0, "")
        assert kills >= 2
        sweep.require_whole()
        assert nobody_is_left_of(driver)
    finally:
        end([driver])


def nobody_is_left_of(driver: subprocess.Popen[str]) -> bool:
    return eventually(lambda: session_of(driver.pid) == {})


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
