"""A study run: its cells to the workers, what comes back into the store, and how far it is.

What the store has is not run again, failures excepted. A run that ends early, however it does, has lost
nothing that was finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.cell import FAILED, SEED, Cell, CellResult, Metric
from experiments.run_cell import run_cell
from experiments.runner.runner import run_tasks
from experiments.study.grid import MOST_CELLS, Grid
from simulator.errors import InputError, Problem
from simulator.results.verdict import DOES_NOT_FIT

if TYPE_CHECKING:
    from experiments.runner.pools import Pool
    from experiments.store.store import Store
    from experiments.study.study import Study

_BEST = (("throughput_speedup", max), ("break_even_alpha", min))
"""What the best cell has the most or the least of: the first that is kept."""


class Best(NamedTuple):
    """The best cell so far: `metric` (`ARM.PATH`), its value, and where: the settings that vary."""

    metric: str
    value: float
    settings: Mapping[str, Any]


@dataclass
class Standing:
    """How far a sweep is. `cells`: all that the study has; None where that shows on the way."""

    cells: int | None = None
    done: int = 0
    does_not_fit: int = 0
    """Of those done."""
    failed: int = 0
    skipped: int = 0
    """Done in an earlier run."""
    best: Best | None = None
    begun_s: float = field(default_factory=time.monotonic)

    @property
    def passed(self) -> int:
        """Cells that are over."""
        return self.done + self.failed + self.skipped

    @property
    def left_s(self) -> float | None:
        """Seconds to go at the pace so far; None before there is one."""
        run = self.done + self.failed
        if self.cells is None or run == 0:
            return None
        return (time.monotonic() - self.begun_s) / run * (self.cells - self.passed)


def require_few(study: Study) -> None:
    """Raises InputError for a study of more than MOST_CELLS cells, which wants to be confirmed."""
    count = Grid(study).count(MOST_CELLS + 1)
    if count > MOST_CELLS:
        exact = f"{Grid(study).points:,}" if not study.where else f"more than {MOST_CELLS:,}"
        message = f"multiply to {exact} cells"
        raise InputError(
            Problem(
                *study.place,
                field="axes",
                message=message,
                allowed=f"--yes to run more than {MOST_CELLS:,}, or fewer values",
            )
        )


def sweep(
    study: Study, store: Store, pool: Pool, tell: Callable[[Standing], None] = lambda standing: None
) -> Standing:
    """Run what the store does not have yet of a study; `tell` hears of every cell. Raises InputError.

    A study that refines runs the cells along its contour, round by round.
    """
    from experiments.refine import run_refined

    known = study.refine is None
    running = _Running(study, store, pool, tell)
    if known:
        running.standing.cells = Grid(study).count(10**9)
        tell(running.standing)
        running.run(Grid(study).cells())
    else:
        running.standing.cells = run_refined(study, store, running.run)
    return running.standing


class _Running:
    def __init__(self, study: Study, store: Store, pool: Pool, tell: Callable[[Standing], None]) -> None:
        self.store, self.pool, self.tell, self.standing = store, pool, tell, Standing()
        self.varied = {axis.path for axis in study.axes if len(axis.values) > 1}
        self.varied |= {SEED} if study.seeds > 1 else set()
        self.failed_before = {key for (key,) in store.values(f"status = '{FAILED}'", ["key"])}

    def run(self, cells: Iterable[Cell]) -> None:
        """Run those that the store does not have."""
        run_tasks(run_cell, self._left(cells), self.pool, self._on_result, self._on_failure)

    def _left(self, cells: Iterable[Cell]) -> Iterator[Cell]:
        for cell in cells:
            if cell.key in self.store and cell.key not in self.failed_before:
                self.standing.skipped += 1
                self.tell(self.standing)
            else:
                yield cell

    def _on_result(self, cell: Cell, result: CellResult) -> None:
        self.store.add(cell, result)
        if result.status == FAILED:
            self.standing.failed += 1
        else:
            self.standing.done += 1
            self.standing.does_not_fit += result.status == DOES_NOT_FIT
            varied = {path: value for path, value in cell.settings.items() if path in self.varied}
            self.standing.best = better(self.standing.best, varied, result.metrics)
        self.tell(self.standing)

    def _on_failure(self, cell: Cell, reason: str) -> None:
        self._on_result(cell, CellResult(cell.key, FAILED, error=reason))


def better(best: Best | None, settings: Mapping[str, Any], metrics: Mapping[str, Metric]) -> Best | None:
    """The best so far when a cell with these figures comes."""
    for name, which in _BEST:
        if best is not None and not best.metric.endswith(f".{name}"):
            continue
        for metric, value in metrics.items():
            if metric.endswith(f".{name}") and isinstance(value, Mapping):
                here = Best(metric, value["value"], settings)
                best = here if best is None else which(best, here, key=lambda one: one.value)
    return best
