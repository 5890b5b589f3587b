"""`decodesim sweep`: runs the cells of a study in parallel into a store. A second run completes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.options import json_option, precision_option, precision_override
from experiments.commands.output import (
    NOTED_EVERY_S,
    note,
    note_compilation,
    print_json,
    print_list,
    print_text,
)

if TYPE_CHECKING:
    from experiments.runner.pools import Pool
    from experiments.store.store import Store
    from experiments.sweep import BestCell, SweepProgress

_UPDATED_EVERY_S = 0.2


@click.command()
@click.argument("study", type=click.Path(path_type=Path))
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE",
    help="Change one field of the study's scenario, e.g. --set workload.requests=1000.",
)  # fmt: skip
@click.option(
    "--out", metavar="STORE", type=click.Path(path_type=Path),
    help="The store file; default: the study's name with .db, in the current folder.",
)  # fmt: skip
@click.option("--workers", type=int, metavar="N", help="Worker processes; default: one per core.")
@click.option(
    "--dask", metavar="ADDRESS|local", help="Run on a Dask cluster: tcp://host:8786, or one started here."
)
@precision_option
@click.option("--fresh", is_flag=True, help="Delete the existing store first.")
@click.option("--yes", is_flag=True, help="Confirm a study of very many cells.")
@json_option
def command(
    study: Path,
    overrides: tuple[str, ...],
    out: Path | None,
    workers: int | None,
    dask: str | None,
    precision: str | None,
    fresh: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Run all cells of STUDY, a file with a scenario and the axes along which it varies, into a store.

    Finished cells are kept if the run is interrupted. The same command then runs only the remaining cells.
    """
    from experiments.store.store import Store
    from experiments.study.load import load_study
    from experiments.sweep import require_confirmation, sweep

    loaded_study = load_study(study, (*precision_override(precision), *overrides))
    if not yes:
        require_confirmation(loaded_study)
    path = out or Path(f"{study.name.removesuffix('.yaml').removesuffix('.study')}.db")
    with Store.create_or_open(path, loaded_study.document, loaded_study.sha256, fresh=fresh) as store:
        note_compilation()
        try:
            with _pool(dask, workers) as pool, _progress_display(loaded_study.name) as report:
                progress = sweep(loaded_study, store, pool, report)
        except KeyboardInterrupt:
            note(f"stopped; {path} keeps the finished cells, and the same command runs the rest")
            raise
        document = {
            "store": str(path),
            "cells": progress.cells,
            "done": progress.done,
            "failed": progress.failed,
            "skipped_as_done": progress.skipped,
            "does_not_fit": progress.does_not_fit,
        }
        if as_json:
            print_json(document)
        else:
            _print_end(loaded_study.name, path, progress, store)


@contextmanager
def _pool(dask: str | None, workers: int | None) -> Iterator[Pool]:
    """The workers asked for. Raises InputError."""
    if dask is None:
        from experiments.runner.pools import local_pool

        with local_pool(workers) as local:
            yield local
        return
    from experiments.runner.dask_pool import dask_pool

    with dask_pool(dask, workers) as cluster:
        yield cluster


@contextmanager
def _progress_display(title: str) -> Iterator[Callable[[SweepProgress], None]]:
    """Yields what shows the standing on stderr: a bar on a terminal, else a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _ProgressLines().report
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(20), MofNCompleteColumn())
    with Progress(
        *columns, TextColumn("{task.fields[rest]}", markup=False), console=console, transient=True
    ) as bar:
        task = bar.add_task(title, total=None, rest="")
        updated_s = 0.0

        def report(progress: SweepProgress) -> None:
            nonlocal updated_s
            if time.monotonic() - updated_s > _UPDATED_EVERY_S:
                updated_s = time.monotonic()
                bar.update(
                    task, completed=progress.finished, total=progress.cells, rest=_progress_text(progress)
                )

        yield report


class _ProgressLines:
    """Says on a line now and then how far a sweep is."""

    def __init__(self) -> None:
        self.noted_s = time.monotonic()

    def report(self, progress: SweepProgress) -> None:
        """Say it, unless that was just done."""
        if time.monotonic() - self.noted_s > NOTED_EVERY_S:
            self.noted_s = time.monotonic()
            total_text = "" if progress.cells is None else f" of {progress.cells:,}"
            note(
                ", ".join(
                    part
                    for part in (f"{progress.finished:,}{total_text} cells", _progress_text(progress))
                    if part
                )
            )


def _progress_text(progress: SweepProgress) -> str:
    """Time left, failures, the best cell so far."""
    left_s = progress.remaining_s
    parts = [
        f"{_duration_text(left_s)} left" if left_s is not None else "",
        f"{progress.failed:,} failed" if progress.failed else "",
        f"best {_best_text(progress.best)}" if progress.best is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def _duration_text(duration_s: float) -> str:
    """`48 s`, `4 min`, `2.3 h`."""
    if duration_s < 100:
        return f"{duration_s:.0f} s"
    return f"{duration_s / 60:.0f} min" if duration_s < 6000 else f"{duration_s / 3600:.1f} h"


def _best_text(best: BestCell) -> str:
    """`eagle3.throughput_speedup 1.84 at draft_length 5, concurrency 1`: settings by their short names."""
    from experiments.conditions import as_column, short_names

    short = {full: name for name, full in short_names(best.settings).items()}
    at = ", ".join(
        f"{short.get(path, path)} {_text(as_column(value))}" for path, value in best.settings.items()
    )
    return f"{best.metric} {best.value:.3g} at {at}"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _print_end(name: str, path: Path, progress: SweepProgress, store: Store) -> None:
    """What the sweep came to, for people."""
    counts = [f"{progress.cells:,} cells", f"{progress.done:,} done now"]
    counts += [f"{progress.skipped:,} done before"] if progress.skipped else []
    counts += [f"{progress.failed:,} failed"] if progress.failed else []
    print_text(f"{name}: {', '.join(counts)}")
    if progress.best is not None:
        print_text(f"Best of those: {_best_text(progress.best)}")
    print_list("Without figures", [f"{n:,} {status}: {error}" for status, error, n in store.reasons()])
    print_text(f"All of them: decodesim results {path}")
