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


_NAMED = 5
"""Columns without room, and reasons, that are named."""


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--where",
    metavar="SQL",
    help="Only the cells that hold this, e.g. \"concurrency <= 64 AND verdict = 'pays'\".",
)
@click.option("--columns", metavar="NAME,…", help="Only these columns, in this order.")
@click.option(
    "--export",
    "target",
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
    target: Path | None,
    scenario: str | None,
    as_json: bool,
) -> None:
    """The cells of STORE: as a table, as JSON with --json, as a file with --export. It may still grow.

    Columns go by their full name, or by the last part of it where that is clear: concurrency, verdict.
    """
    from experiments.store.export import export
    from experiments.store.reader import StoreReader

    with StoreReader(store) as cells:
        if scenario is not None:
            click.echo(json.dumps(json.loads(cells.scenario(scenario)), indent=1, ensure_ascii=False))
            return
        with _place("--columns"):
            chosen = cells.chosen(words(columns) if columns is not None else None)
        with _place("--where"):
            counts = cells.counts(where)
        if target is not None:
            count = export(cells, target, where, [column.name for column in chosen])
            note(f"wrote {target}: {count:,} cells, {len(chosen)} columns")
        if as_json:
            _print_json(cells, counts, where, chosen)
        elif target is None:
            _print_cells(cells, counts, where, None if columns is None else chosen)


@contextmanager
def _place(option: str) -> Iterator[None]:
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
    of = f" of {total:,}" if where is not None else ""
    print_text(f"{name}: {count:,}{of} cell{'' if total == 1 else 's'}{_in_words(counts)}")
    if count:
        _print_table(cells, counts, where, columns)
    reasons = [f"{number:,} {status}: {error}" for status, error, number in cells.reasons(where)]
    more = [f"{len(reasons) - _NAMED:,} more reasons: --where \"status != 'done'\" --columns key,error"]
    print_list("Without figures", reasons if len(reasons) <= _NAMED else reasons[:_NAMED] + more)


def _print_table(
    cells: StoreReader, counts: Mapping[str, int], where: str | None, columns: Sequence[StoreColumn] | None
) -> None:
    from shutil import get_terminal_size

    from experiments.commands.cell_table import cell_table, setting_text, telling

    if columns is None:
        shared = cells.shared(where)
        if shared:
            same = ", ".join(f"{path} {setting_text(value)}" for path, value in shared.items())
            print_text(f"The same in all: {same}")
        zips = cells.study().get("zip", ())
        together = [path for _, *others in zips for path in others if path not in shared]
        if together:
            print_text(f"Not shown, as they go with another axis: {', '.join(together)}")
        columns = telling(cells.columns(), {*shared, *together}, all_done=set(counts) == {DONE})
    headings, rows, left_out = cell_table(cells, where, columns, get_terminal_size((120, 24)).columns)
    print_table(headings, rows)
    count = sum(counts.values())
    if count > len(rows):
        print_text(f"{len(rows)} of {count:,} cells are shown; --where narrows them, --export writes all.")
    if left_out:
        some = ", ".join(left_out[:_NAMED]) + (", …" if len(left_out) > _NAMED else "")
        print_text(f"No room here for {len(left_out)} more columns, {some}: --columns NAME,… chooses.")


def _in_words(counts: Mapping[str, int]) -> str:
    """`, 3 failed, 7 do not fit the memory`."""
    texts = {FAILED: "failed", DOES_NOT_FIT: "do not fit the memory"}
    return "".join(f", {counts[status]:,} {text}" for status, text in texts.items() if counts.get(status))
