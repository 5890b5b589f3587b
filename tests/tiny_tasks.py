"""Tasks for the runner that are small, and some that end badly; importable by any worker process."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

from experiments.cell import Cell, CellResult

RAISES, EXITS, KILLS, CANNOT_BE_SENT = 13, 19, 17, 23
"""What `temperamental` does at these numbers."""


def figure(number: int) -> float:
    """A figure that follows from the number alone, with all its digits."""
    digest = hashlib.sha256(str(number).encode()).digest()
    return int.from_bytes(digest[:7]) / 3.0


def temperamental(number: int) -> object:
    """`figure`, after a moment, except where it ends badly."""
    time.sleep(0.002)
    if number == RAISES:
        raise ValueError("an unlucky\nnumber")
    if number == EXITS:
        sys.exit(3)
    if number == KILLS:
        os.kill(os.getpid(), signal.SIGKILL)
    return threading.Lock() if number == CANNOT_BE_SENT else figure(number)


def about_worker(_: int) -> tuple[int, int, str | None, bool]:
    """Process, its parent, its threads for numeric libraries, whether it leaves Ctrl-C to the driver."""
    ignores = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    time.sleep(0.05)
    return os.getpid(), os.getppid(), os.environ.get("OMP_NUM_THREADS"), ignores


def cell_of(number: int, log: Path | None = None, seconds_s: float = 0.0) -> Cell:
    """A cell whose result is cheap; it appends its number to the log when it begins."""
    settings = {"workload.arrivals.concurrency": number, "seed": 0}
    return Cell(settings, f'{{"log": "{log or ""}", "number": {number}, "seconds_s": {seconds_s}}}')


def result_of(cell: Cell) -> CellResult:
    """What `run_tiny` makes of a cell."""
    value = figure(cell.settings["workload.arrivals.concurrency"])
    estimate = {"value": value, "ci95": [value - 1.0, value + 1.0], "band": None}
    metrics = {"plain.throughput_tokens_per_s": estimate, "eagle3.verdict": "pays"}
    return CellResult(cell.key, "done", metrics)


def run_tiny(cell: Cell) -> CellResult:
    """The result of a cell of `cell_of`, after its time."""
    import json

    scenario = json.loads(cell.scenario)
    if scenario["log"]:
        with open(scenario["log"], "a", encoding="utf-8") as log:
            log.write(f"{scenario['number']}\n")
    time.sleep(scenario["seconds_s"])
    return result_of(cell)
