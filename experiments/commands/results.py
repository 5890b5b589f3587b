"""`decodesim results`: the cells of a store, filtered, as a table, as JSON, as a Parquet or CSV file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from experiments.cell import DONE, FAILED
from experiments.commands.options import json_option, words
from experiments.commands.output import note, print_list, print_table, print_text
from simulator.errors import InputError
from simulator.results.verdict import DOES_NOT_FIT

if TYPE_CHECKING:
    from experiments.store.columns import StoreColumn
    from experiments.store.reader import StoreReader


_MAX_NAMES = 5
"""Columns without room, and reasons, that are named."""


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--where",
    metavar="SQL",
    help="Only the cells that meet this condition, e.g. \"concurrency <= 64 AND verdict = 'pays'\".",
)
@click.option("--columns", metavar="NAME,…", help="Only these columns, in this order.")
@click.option(
    "--export",
    "export_path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the cells to FILE.parquet or FILE.csv.",
)
@click.option("--scenario", metavar="KEY", help="Print the scenario of one cell instead, ready for simulate.")
@json_option
def command(
    store: Path,
    where: str | None,
    columns: str | None,
    export_path: Path | None,
    scenario: str | None,
    as_json: bool,
) -> None:
    """List the cells of STORE as a table, as JSON (--json) or as a file (--export).

    A sweep may still be writing to STORE. A column is named in full, or by its last part where that is
    unique: concurrency, verdict.
    """
    from experiments.store.export import export
    from experiments.store.file import undamaged
    from experiments.store.reader import StoreReader

    with undamaged(store), StoreReader(store, one_state=True) as cells:
        if scenario is not None:
            click.echo(json.dumps(json.loads(cells.scenario(scenario)), indent=1, ensure_ascii=False))
            return
        with _errors_at("--columns"):
            selected_columns = cells.columns_named(words(columns) if columns is not None else None)
        with _errors_at("--where"):
            counts = cells.counts(where)
        if export_path is not None:
            count = export(cells, export_path, where, [column.name for column in selected_columns])
            note(f"wrote {export_path}: {count:,} cells, {len(selected_columns)} columns")
        if as_json:
            _print_json(cells, counts, where, selected_columns)
        elif export_path is None:
            _print_cells(cells, counts, where, None if columns is None else selected_columns)


@contextmanager
def _errors_at(option: str) -> Iterator[None]:
    """What is found wrong inside belongs to this option."""
    try:
        yield
    except InputError as error:
        raise error.at(field=option) from error


def _print_json(
    cells: StoreReader, counts: Mapping[str, int], where: str | None, columns: Sequence[StoreColumn]
) -> None:
    """The document, row by row: it may be larger than memory."""
    from simulator.results.result import dump_json

    document = {
        "cells": sum(counts.values()),
        "failed": counts.get(FAILED, 0),
        "does_not_fit": counts.get(DOES_NOT_FIT, 0),
        "columns": [{"name": c.name, "unit": c.unit, "meaning": c.meaning} for c in columns],
        "rows": [],
    }
    before, _, after = dump_json(document).rpartition("]")
    click.echo(before, nl=False)
    for number, row in enumerate(cells.rows(where, [column.name for column in columns])):
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
        click.echo(f"{',' if number else ''}\n  {text}", nl=False)
    click.echo(f"\n ]{after}", nl=False)


def _print_cells(
    cells: StoreReader, counts: Mapping[str, int], where: str | None, columns: Sequence[StoreColumn] | None
) -> None:
    """The answer for people: how many, what they share, the first of them, and why some have no figures."""
    count, total = sum(counts.values()), sum(cells.counts().values())
    name = cells.study().get("name") or cells.path.name
    total_text = f" of {total:,}" if where is not None else ""
    print_text(f"{name}: {count:,}{total_text} cell{'' if total == 1 else 's'}{_counts_text(counts)}")
    if count:
        _print_table(cells, counts, where, columns)
    reasons = [f"{number:,} {status}: {error}" for status, error, number in cells.reasons(where)]
    remaining = [
        f"{len(reasons) - _MAX_NAMES:,} more reasons: --where \"status != 'done'\" --columns key,error"
    ]
    print_list("Without figures", reasons if len(reasons) <= _MAX_NAMES else reasons[:_MAX_NAMES] + remaining)


def _print_table(
    cells: StoreReader, counts: Mapping[str, int], where: str | None, columns: Sequence[StoreColumn] | None
) -> None:
    from shutil import get_terminal_size

    from experiments.commands.cell_table import cell_table, informative_columns, setting_text

    if columns is None:
        shared = cells.shared(where)
        if shared:
            constants = ", ".join(f"{path} {setting_text(value)}" for path, value in shared.items())
            print_text(f"The same in all: {constants}")
        zips = cells.study().get("zip", ())
        zipped_columns = [path for _, *others in zips for path in others if path not in shared]
        if zipped_columns:
            print_text(f"Not shown because they vary together with another axis: {', '.join(zipped_columns)}")
        columns = informative_columns(
            cells.columns(), {*shared, *zipped_columns}, all_done=set(counts) == {DONE}
        )
    headings, rows, left_out = cell_table(cells, where, columns, get_terminal_size((120, 24)).columns)
    print_table(headings, rows)
    count = sum(counts.values())
    if count > len(rows):
        print_text(f"{len(rows)} of {count:,} cells are shown; --where narrows them, --export writes all.")
    if left_out:
        names = ", ".join(left_out[:_MAX_NAMES]) + (", …" if len(left_out) > _MAX_NAMES else "")
        print_text(f"No room here for {len(left_out)} more columns ({names}); choose with --columns NAME,…")


def _counts_text(counts: Mapping[str, int]) -> str:
    """`, 3 failed, 7 do not fit the memory`."""
    texts = {FAILED: "failed", DOES_NOT_FIT: "do not fit the memory"}
    return "".join(f", {counts[status]:,} {text}" for status, text in texts.items() if counts.get(status))
