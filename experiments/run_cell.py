"""The task of a worker: simulates a cell from the text of its scenario alone.

Neither order nor place can therefore change a result. The first cell imports the simulator; the driver of a
study only passes this function on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from experiments.cell import FAILED, Cell, CellResult, MetricValue
from simulator.errors import InputError


def run_cell(cell: Cell) -> CellResult:
    """Simulate a cell. A scenario with problems makes it FAILED, with the problems in one line."""
    from experiments.measures import measure_cell

    started_s = time.perf_counter()
    metrics: Mapping[str, MetricValue] = {}
    try:
        status, metrics, error = measure_cell(cell)
    except InputError as problem:
        status, error = FAILED, str(problem).replace("\n", "; ")
    return CellResult(cell.key, status, metrics, error, time.perf_counter() - started_s)
