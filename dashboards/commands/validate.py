"""`decodesim validate`: published measurements, simulated and compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from experiments.commands.options import json_option
from experiments.commands.output import (
    note,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
    say_when_compiling,
)

if TYPE_CHECKING:
    from calibration.text_table import TextTable
    from calibration.validation.validate import Validation

_PAGE = Path("validation.html")
_MISSES = 12
_MOST_ROWS = 60


@click.command()
@click.argument("cases", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help=f"The page; default {_PAGE}, and none with --json.",
)
@json_option
def command(cases: tuple[Path, ...], html: Path | None, as_json: bool) -> None:
    """Published measurements, simulated and compared: those of CASES, or the ones that come with decodesim.

    CASES are files of published cases; what cannot be simulated is skipped with its reason.
    """
    from calibration.validation.pool import worthwhile_workers
    from calibration.validation.reconstruction.cases import committed_cases, read_cases
    from calibration.validation.validate import validate
    from dashboards.validation_page import write_validation_page

    read = read_cases(cases) if cases else committed_cases()
    say_when_compiling()
    with progress_bar("validating") as progress:
        validation = validate(read, worthwhile_workers(), progress)
    page = html if html is not None else None if as_json else _PAGE
    if page is not None:
        title = "Published measurements, simulated" if not cases else ", ".join(path.name for path in cases)
        write_validation_page(validation, page, title)
    if as_json:
        print_json(validation.to_json())
    else:
        _print(validation, every_row=bool(cases))
    if page is not None:
        note(f"wrote {page}: every row, predicted against published; opens offline")


def _print(validation: Validation, every_row: bool) -> None:
    """Summary first; rows one by one where somebody brought their own, else the largest misses."""
    from calibration.validation import tables

    if every_row:
        _print_table("Every figure", tables.rows_table(validation.rows[:_MOST_ROWS]))
        if len(validation.rows) > _MOST_ROWS:
            print_text(f"… and {len(validation.rows) - _MOST_ROWS:,} more: the page and --json have all")
    else:
        _print_table("Largest misses", tables.largest_errors(validation.rows, _MISSES))
    _print_table("Skipped, and why", tables.reasons_table(validation))
    _print_table("Errors by quantity", tables.quantities_table(validation))
    _print_table("Speedup, beside what is simpler", tables.baselines_table(validation))
    _print_table("Targets", tables.targets_table(validation))
    print_text(f"→ {validation.extent}")
    if every_row:
        left = [f"{case}: {why}" for (_, case), why in validation.coverage.left_out.items()]
        print_list("Cases without a simulated figure", left)


def _print_table(title: str, shown: TextTable) -> None:
    if shown.rows:
        print_text(title)
        print_table(shown.columns, shown.rows)
