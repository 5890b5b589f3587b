"""Sweeps: what the store has is not run again, early ends lose nothing, pools differ in speed alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments import sweep as sweeping
from experiments.cell import FAILED, Cell, CellResult
from experiments.run_cell import run_cell
from experiments.runner.pools import Pool, local_pool
from experiments.store.store import Store
from experiments.study.grid import StudyGrid
from experiments.study.study import Study
from experiments.sweep import SweepProgress, best_of, require_confirmation, sweep
from simulator.errors import InputError
from tests.studies import ALPHA, CONCURRENCY, DRAFT_LENGTH, InlinePool, study

GRID = f"axes:\n  {ALPHA}: [0.3, 0.9]\n  {DRAFT_LENGTH}: [1, 4]\n  {CONCURRENCY}: [1, 8, 64]\n"


def run(read: Study, place: Path, pool: Pool | None = None) -> SweepProgress:
    """A sweep into a store at a place."""
    with Store.create_or_open(place, read.document, read.sha256) as store:
        return sweep(read, store, pool or InlinePool())


def rows_of(place: Path) -> list[tuple[Any, ...]]:
    """All that is in a store but times."""
    with sqlite3.connect(place) as database:
        names = [name for _, name, *_ in database.execute("PRAGMA table_info(cells)") if name != "seconds_s"]
        columns = ", ".join(f'"{name}"' for name in sorted(names))
        return database.execute(f"SELECT {columns} FROM cells ORDER BY key").fetchall()


def test_a_second_run_does_only_the_rest(tmp_path: Path) -> None:
    place = tmp_path / "s.db"
    first = run(study(tmp_path, GRID + "where: alpha < 0.5\n"), place)
    assert (first.cells, first.done, first.skipped, first.failed) == (6, 6, 0, 0)
    pool = InlinePool()
    second = run(study(tmp_path, GRID), place, pool)
    assert (second.cells, second.done, second.skipped, second.failed) == (12, 6, 6, 0)
    assert [cell.settings[ALPHA] for cell in pool.ran] == [0.9] * 6
    third = run(study(tmp_path, GRID), place)
    assert (third.cells, third.done, third.skipped) == (12, 0, 12)


def test_whatever_ends_a_run_loses_nothing_that_was_done(tmp_path: Path) -> None:
    read, place = study(tmp_path, GRID), tmp_path / "s.db"

    def stop(standing: SweepProgress) -> None:
        if standing.done == 5:
            raise KeyboardInterrupt

    with Store.create_or_open(place, read.document, read.sha256) as store, pytest.raises(KeyboardInterrupt):
        sweep(read, store, InlinePool(), stop)
    assert len(rows_of(place)) == 5
    assert run(read, place).skipped == 5
    complete = tmp_path / "whole.db"
    run(read, complete)
    assert rows_of(place) == rows_of(complete)


def test_processes_in_any_order_give_the_same_store(tmp_path: Path) -> None:
    read = study(tmp_path, GRID)
    with local_pool(2) as pool:
        side_by_side = run(read, tmp_path / "two.db", pool)
    run(read, tmp_path / "one.db")
    reverse = tmp_path / "reverse.db"
    with Store.create_or_open(reverse, read.document, read.sha256) as store:
        for cell in reversed(list(StudyGrid(read).cells())):
            store.add(cell, run_cell(cell))
    assert side_by_side.done == 12
    assert rows_of(tmp_path / "two.db") == rows_of(tmp_path / "one.db") == rows_of(reverse)


def test_failures_are_kept_counted_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, place = study(tmp_path, GRID), tmp_path / "s.db"
    shaky = True

    def run_shakily(cell: Cell) -> CellResult:
        if shaky and cell.settings[CONCURRENCY] == 8:
            raise ZeroDivisionError("bad luck")
        return run_cell(cell)

    monkeypatch.setattr(sweeping, "run_cell", run_shakily)
    first = run(read, place)
    assert (first.cells, first.done, first.failed) == (12, 8, 4)
    with Store.create_or_open(place, read.document, read.sha256) as store:
        assert store.reasons() == [(FAILED, "ZeroDivisionError: bad luck", 4)]
    shaky = False
    second = run(read, place)
    assert (second.done, second.failed, second.skipped) == (4, 0, 8)
    assert {row for row in rows_of(place) if FAILED in row} == set()


def test_a_contour_is_run_round_by_round_and_not_again(tmp_path: Path) -> None:
    refined = (
        f"axes:\n  {ALPHA}: {{from: 0.05, to: 0.95, steps: 19}}\n"
        f"  {CONCURRENCY}: {{from: 1, to: 200, steps: 8, scale: log}}\n"
        "refine: {metric: eagle3.throughput_speedup, level: 1.0}\nkeep: [throughput_speedup]\n"
    )
    read, place = study(tmp_path, refined), tmp_path / "s.db"
    first = run(read, place)
    assert first.cells is not None
    assert first.cells == first.done < 0.6 * 19 * 8
    again = run(read, place)
    assert (again.cells, again.done, again.skipped) == (first.cells, 0, first.cells)


def test_the_best_cell_and_the_time_left(tmp_path: Path) -> None:
    read, place = study(tmp_path, GRID), tmp_path / "s.db"
    seen: list[tuple[int, float]] = []

    def tell(standing: SweepProgress) -> None:
        if standing.finished == 0:
            assert standing.cells == 12
            return
        assert standing.best is not None
        assert standing.remaining_s is not None
        seen.append((standing.finished, standing.best.value))

    with Store.create_or_open(place, read.document, read.sha256) as store:
        standing = sweep(read, store, InlinePool(), tell)
        speedups = {row["eagle3.throughput_speedup"] for row in store.rows()}
    assert [passed for passed, _ in seen] == list(range(1, 13))
    assert [value for _, value in seen] == sorted(value for _, value in seen)
    assert standing.best is not None
    assert standing.best.metric == "eagle3.throughput_speedup"
    assert standing.best.value == max(speedups)
    assert standing.remaining_s == 0
    assert SweepProgress(10).remaining_s is None


def test_the_lowest_break_even_is_the_best() -> None:
    best = None
    for n, alpha in enumerate((0.4, 0.2, 0.3)):
        best = best_of(best, {"n": n}, {"a.break_even_alpha": {"value": alpha, "ci95": None, "band": None}})
    assert best == ("a.break_even_alpha", 0.2, {"n": 1})


@pytest.mark.parametrize(("steps", "message"), [((150, 133), None), ((201, 100), "20,100 cells")])
def test_very_many_cells_want_to_be_confirmed(
    tmp_path: Path, steps: Sequence[int], message: str | None
) -> None:
    read = study(
        tmp_path,
        f"axes:\n  {ALPHA}: {{from: 0, to: 1, steps: {steps[0]}}}\n"
        f"  workload.requests: {{from: 101, to: 301, steps: {steps[1]}}}\n",
    )
    if message is None:
        require_confirmation(read)
        return
    with pytest.raises(InputError, match=rf"small.study.yaml:12:1: axes: multiply to {message}, --yes"):
        require_confirmation(read)
