"""Runs a study: sends its cells to the workers, stores their results, and reports progress.

Cells in the store are not run again, except failures. An interrupted run keeps all finished cells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.cell import FAILED, SEED, Cell, CellResult, MetricValue
from experiments.run_cell import run_cell
from experiments.runner.runner import run_tasks
from experiments.study.grid import MAX_CELLS, StudyGrid
from simulator.errors import InputError, Problem
from simulator.results.verdict import DOES_NOT_FIT

if TYPE_CHECKING:
    from experiments.runner.pools import Pool
    from experiments.store.store import Store
    from experiments.study.study import Study

_BEST = (("throughput_speedup", max), ("break_even_alpha", min))
"""Metrics that define the best cell, with their direction: the first one that is kept."""


class BestCell(NamedTuple):
    """The best cell so far: `metric` (`ARM.PATH`), its value, and where: the settings that vary."""

    metric: str
    value: float
    settings: Mapping[str, Any]


@dataclass
class SweepProgress:
    """The progress of a sweep. `cells`: the number of cells of the study; None until it is known."""

    cells: int | None = None
    done: int = 0
    does_not_fit: int = 0
    """Of those done."""
    failed: int = 0
    skipped: int = 0
    """Done in an earlier run."""
    best: BestCell | None = None
    begun_s: float = field(default_factory=time.monotonic)

    @property
    def finished(self) -> int:
        """Cells that are finished."""
        return self.done + self.failed + self.skipped

    @property
    def remaining_s(self) -> float | None:
        """Remaining time at the pace so far, s; None before the first cell."""
        cells_run = self.done + self.failed
        if self.cells is None or cells_run == 0:
            return None
        return (time.monotonic() - self.begun_s) / cells_run * (self.cells - self.finished)


def require_confirmation(study: Study) -> None:
    """Raises InputError for a study of more than MAX_CELLS cells, which wants to be confirmed."""
    count = StudyGrid(study).count(MAX_CELLS + 1)
    if count > MAX_CELLS:
        exact = f"{StudyGrid(study).points:,}" if not study.where else f"more than {MAX_CELLS:,}"
        message = f"multiply to {exact} cells"
        raise InputError(
            Problem(
                *study.place,
                field="axes",
                message=message,
                allowed=f"--yes to run more than {MAX_CELLS:,}, or fewer values",
            )
        )


def sweep(
    study: Study, store: Store, pool: Pool, report: Callable[[SweepProgress], None] = lambda progress: None
) -> SweepProgress:
    """Run the cells of a study that the store does not have. Raises InputError.

    `report` is called after every cell. A study with `refine` runs the cells along its contour, in rounds.
    """
    from experiments.refine import run_refined

    runs_all_cells = study.refine is None
    sweep_run = _SweepRun(study, store, pool, report)
    if runs_all_cells:
        sweep_run.progress.cells = StudyGrid(study).count(10**9)
        report(sweep_run.progress)
        sweep_run.run(StudyGrid(study).cells())
    else:
        sweep_run.progress.cells = run_refined(study, store, sweep_run.run)
    return sweep_run.progress


class _SweepRun:
    def __init__(
        self, study: Study, store: Store, pool: Pool, report: Callable[[SweepProgress], None]
    ) -> None:
        self.store, self.pool, self.report, self.progress = store, pool, report, SweepProgress()
        self.varied = {axis.path for axis in study.axes if len(axis.values) > 1}
        self.varied |= {SEED} if study.seeds > 1 else set()
        self.failed_before = {key for (key,) in store.values(f"status = '{FAILED}'", ["key"])}

    def run(self, cells: Iterable[Cell]) -> None:
        """Run the cells that the store does not have."""
        run_tasks(run_cell, self._missing_cells(cells), self.pool, self._on_result, self._on_failure)

    def _missing_cells(self, cells: Iterable[Cell]) -> Iterator[Cell]:
        for cell in cells:
            if cell.key in self.store and cell.key not in self.failed_before:
                self.progress.skipped += 1
                self.report(self.progress)
            else:
                yield cell

    def _on_result(self, cell: Cell, result: CellResult) -> None:
        self.store.add(cell, result)
        if result.status == FAILED:
            self.progress.failed += 1
        else:
            self.progress.done += 1
            self.progress.does_not_fit += result.status == DOES_NOT_FIT
            varied = {path: value for path, value in cell.settings.items() if path in self.varied}
            self.progress.best = best_of(self.progress.best, varied, result.metrics)
        self.report(self.progress)

    def _on_failure(self, cell: Cell, reason: str) -> None:
        self._on_result(cell, CellResult(cell.key, FAILED, error=reason))


def best_of(
    best: BestCell | None, settings: Mapping[str, Any], metrics: Mapping[str, MetricValue]
) -> BestCell | None:
    """The better one of `best` and a cell with these figures."""
    for name, choose in _BEST:
        if best is not None and not best.metric.endswith(f".{name}"):
            continue
        for metric, value in metrics.items():
            if metric.endswith(f".{name}") and isinstance(value, Mapping):
                candidate = BestCell(metric, value["value"], settings)
                best = candidate if best is None else choose(best, candidate, key=lambda cell: cell.value)
    return best
