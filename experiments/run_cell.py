"""What a worker does: a cell into its result, from the text of its scenario alone.

So neither order nor place can change a figure. What simulates is imported by the first cell: the driver of a
study hands out this function and never runs it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from experiments.cell import FAILED, Cell, CellResult, Metric
from simulator.errors import InputError


def run_cell(cell: Cell) -> CellResult:
    """Simulate a cell. What is wrong with its scenario makes it FAILED, with the problems in one line."""
    from experiments.measures import measured

    begun = time.perf_counter()
    metrics: Mapping[str, Metric] = {}
    try:
        status, metrics, error = measured(cell)
    except InputError as problem:
        status, error = FAILED, str(problem).replace("\n", "; ")
    return CellResult(cell.key, status, metrics, error, time.perf_counter() - begun)
