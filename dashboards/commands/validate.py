"""`decodesim validate`: simulates published measurements and reports the errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from experiments.commands.options import json_option
from experiments.commands.output import (
    note,
    note_compilation,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
)

if TYPE_CHECKING:
    from calibration.text_table import TextTable
    from calibration.validation.validate import Validation

_PAGE = Path("validation.html")
_MISSES_SHOWN = 12
_MAX_ROWS = 60


@click.command()
@click.argument("cases", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help=f"The page to write; default {_PAGE}, or none with --json.",
)
@json_option
def command(cases: tuple[Path, ...], html: Path | None, as_json: bool) -> None:
    """Simulate published measurements and report the errors.

    CASES are files of published cases; default: those of decodesim. Cases that cannot be simulated are
    skipped with a reason.
    """
    from calibration.validation.pool import worthwhile_workers
    from calibration.validation.reconstruction.cases import committed_cases, read_cases
    from calibration.validation.validate import validate
    from dashboards.validation_page import write_validation_page

    published_cases = read_cases(cases) if cases else committed_cases()
    note_compilation()
    with progress_bar("validating") as progress:
        validation = validate(published_cases, worthwhile_workers(), progress)
    page = html if html is not None else None if as_json else _PAGE
    if page is not None:
        title = "Published measurements, simulated" if not cases else ", ".join(path.name for path in cases)
        write_validation_page(validation, page, title)
    if as_json:
        print_json(validation.to_json())
    else:
        _print(validation, all_rows=bool(cases))
    if page is not None:
        note(f"wrote {page}: every row, predicted against published; opens offline")


def _print(validation: Validation, all_rows: bool) -> None:
    """Print a summary, and all rows of the user's own cases or else the largest misses."""
    from calibration.validation import tables

    if all_rows:
        _print_table("Every figure", tables.rows_table(validation.rows[:_MAX_ROWS]))
        if len(validation.rows) > _MAX_ROWS:
            print_text(f"… and {len(validation.rows) - _MAX_ROWS:,} more: the page and --json have all")
    else:
        _print_table("Largest misses", tables.largest_errors(validation.rows, _MISSES_SHOWN))
    _print_table("Skipped, and why", tables.reasons_table(validation))
    _print_table("Errors by quantity", tables.quantities_table(validation))
    _print_table("Speedup, compared with simpler models", tables.baselines_table(validation))
    _print_table("Targets", tables.targets_table(validation))
    print_text(f"→ {validation.extent}")
    if all_rows:
        left_out_cases = [f"{case}: {why}" for (_, case), why in validation.coverage.left_out.items()]
        print_list("Cases without a simulated figure", left_out_cases)


def _print_table(title: str, text_table: TextTable) -> None:
    if text_table.rows:
        print_text(title)
        print_table(text_table.columns, text_table.rows)
