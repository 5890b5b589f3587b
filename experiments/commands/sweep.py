"""`decodesim sweep`: the cells of a study, run side by side, into a store that a second run completes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.options import json_option, precision_option, precision_override
from experiments.commands.output import (
    REPORTED_EVERY_S,
    note,
    print_json,
    print_list,
    print_text,
    say_when_compiling,
)

if TYPE_CHECKING:
    from experiments.runner.pools import Pool
    from experiments.store.store import Store
    from experiments.sweep import Best, Standing

_DRAWN_EVERY_S = 0.2


@click.command()
@click.argument("study", type=click.Path(path_type=Path))
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE",
    help="Change one field of the study's scenario, e.g. --set workload.requests=1000.",
)  # fmt: skip
@click.option(
    "--out", metavar="STORE", type=click.Path(path_type=Path),
    help="The store, a file; default: the name of the study's file with .db, here.",
)  # fmt: skip
@click.option("--workers", type=int, metavar="N", help="Worker processes; default: one per core.")
@click.option(
    "--dask", metavar="ADDRESS|local", help="Run on a Dask cluster: tcp://host:8786, or one started here."
)
@precision_option
@click.option("--fresh", is_flag=True, help="Do away with what the store has.")
@click.option("--yes", is_flag=True, help="Run a study of very many cells.")
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
    """Run the cells of STUDY, a file with a scenario and the axes along which it varies, into a store.

    Whatever ends a run, all finished cells are kept; the same command again does only the rest.
    """
    from experiments.store.store import Store
    from experiments.study.load import load_study
    from experiments.sweep import require_few, sweep

    read = load_study(study, (*precision_override(precision), *overrides))
    if not yes:
        require_few(read)
    path = out or Path(f"{study.name.removesuffix('.yaml').removesuffix('.study')}.db")
    with Store.create_or_open(path, read.document, read.sha256, fresh=fresh) as store:
        say_when_compiling()
        try:
            with _pool(dask, workers) as pool, _shown(read.name) as tell:
                standing = sweep(read, store, pool, tell)
        except KeyboardInterrupt:
            note(f"stopped; {path} keeps what is finished, the same command does the rest")
            raise
        document = {
            "store": str(path),
            "cells": standing.cells,
            "done": standing.done,
            "failed": standing.failed,
            "skipped_as_done": standing.skipped,
            "does_not_fit": standing.does_not_fit,
        }
        if as_json:
            print_json(document)
        else:
            _print_end(read.name, path, standing, store)


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
def _shown(title: str) -> Iterator[Callable[[Standing], None]]:
    """Yields what shows the standing on stderr: a bar on a terminal, else a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines().tell
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(20), MofNCompleteColumn())
    with Progress(
        *columns, TextColumn("{task.fields[rest]}", markup=False), console=console, transient=True
    ) as bar:
        task = bar.add_task(title, total=None, rest="")
        drawn_s = 0.0

        def tell(standing: Standing) -> None:
            nonlocal drawn_s
            if time.monotonic() - drawn_s > _DRAWN_EVERY_S:
                drawn_s = time.monotonic()
                bar.update(task, completed=standing.passed, total=standing.cells, rest=_rest(standing))

        yield tell


class _Lines:
    """Says on a line now and then how far a sweep is."""

    def __init__(self) -> None:
        self.said_s = time.monotonic()

    def tell(self, standing: Standing) -> None:
        """Say it, unless that was just done."""
        if time.monotonic() - self.said_s > REPORTED_EVERY_S:
            self.said_s = time.monotonic()
            of = "" if standing.cells is None else f" of {standing.cells:,}"
            note(", ".join(part for part in (f"{standing.passed:,}{of} cells", _rest(standing)) if part))


def _rest(standing: Standing) -> str:
    """Time left, failures, the best cell so far."""
    left_s = standing.left_s
    parts = [
        f"{_about(left_s)} left" if left_s is not None else "",
        f"{standing.failed:,} failed" if standing.failed else "",
        f"best {_best(standing.best)}" if standing.best is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def _about(duration_s: float) -> str:
    """`48 s`, `4 min`, `2.3 h`."""
    if duration_s < 100:
        return f"{duration_s:.0f} s"
    return f"{duration_s / 60:.0f} min" if duration_s < 6000 else f"{duration_s / 3600:.1f} h"


def _best(best: Best) -> str:
    """`eagle3.throughput_speedup 1.84 at draft_length 5, concurrency 1`: settings by their short names."""
    from experiments.conditions import as_column, short_names

    short = {full: name for name, full in short_names(best.settings).items()}
    at = ", ".join(
        f"{short.get(path, path)} {_text(as_column(value))}" for path, value in best.settings.items()
    )
    return f"{best.metric} {best.value:.3g} at {at}"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _print_end(name: str, path: Path, standing: Standing, store: Store) -> None:
    """What the sweep came to, for people."""
    counts = [f"{standing.cells:,} cells", f"{standing.done:,} done now"]
    counts += [f"{standing.skipped:,} done before"] if standing.skipped else []
    counts += [f"{standing.failed:,} failed"] if standing.failed else []
    print_text(f"{name}: {', '.join(counts)}")
    if standing.best is not None:
        print_text(f"Best of those: {_best(standing.best)}")
    print_list("Without figures", [f"{n:,} {status}: {error}" for status, error, n in store.reasons()])
    print_text(f"All of them: decodesim results {path}")
