"""What commands print: one JSON document or tables on stdout; notes and progress on stderr."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from simulator.units import format_number

if TYPE_CHECKING:
    from simulator.runs.replications import Progress

BAR_AFTER_S = 1.0
"""The progress bar appears after this time."""
NOTED_EVERY_S = 30.0
"""Without a terminal, a line reports the progress at this interval."""
_WIDTH_WITHOUT_TERMINAL = 120
_GAP, _NARROW_GAP = 3, 2
"""Between the columns of a table, and of one that is too wide for the terminal."""
_UNBROKEN = 16
"""A word of a table longer than this, a path or a key, may be cut."""
NOTHING = "–"


def print_json(document: Mapping[str, Any]) -> None:
    """The one document of `--json`, on stdout."""
    from simulator.results.result import dump_json

    click.echo(dump_json(document), nl=False)


def give_markdown(document: Mapping[str, Any], output: Path | None, as_json: bool) -> None:
    """Give a document that holds its text for people as `markdown`: to a file, as JSON, or on stdout."""
    if output is not None:
        output.write_text(document["markdown"], encoding="utf-8")
        note(f"wrote {output}")
    if as_json:
        print_json(document)
    elif output is None:
        click.echo(document["markdown"], nl=False)


def note(text: str) -> None:
    """Print a line on stderr, apart from the answer."""
    click.echo(text, err=True)


def print_text(text: str = "") -> None:
    """A paragraph of the answer, on stdout, wrapped to the terminal."""
    import textwrap

    for line in textwrap.wrap(text, terminal_width()) or [""]:
        click.echo(line)


def print_list(title: str, lines: Sequence[str]) -> None:
    """A list under a title; nothing when it is empty."""
    import textwrap

    if not lines:
        return
    click.echo(f"\n{title}")
    for line in lines:
        click.echo(textwrap.fill(line, terminal_width(), initial_indent="  - ", subsequent_indent="    "))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """A table on stdout: the first column to the left, figures to the right.

    Cells wrap between words. Where those alone need more than the terminal has, columns move together, then
    lines become longer than it: a figure cut in two is worse.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = terminal_width()
    cells_by_column = [[cell for cell in cells if cell] or [""] for cells in zip(columns, *rows, strict=True)]
    words = [
        max(cell_len(word) for cell in cells for word in cell.split() or [""]) for cells in cells_by_column
    ]
    min_widths = [min(word, _UNBROKEN) for word in words]
    gap = _GAP if sum(min_widths) + _GAP * len(min_widths) < width else _NARROW_GAP
    widths = [max(cell_len(line) for cell in cells for line in cell.split("\n")) for cells in cells_by_column]
    gaps_width = gap * len(widths)
    while sum(widths) + gaps_width > width and widths != min_widths:
        shrinks = [number for number in range(len(widths)) if widths[number] > min_widths[number]]
        widths[max(shrinks, key=widths.__getitem__)] -= 1
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=gap < _GAP
    )
    for number, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(
            Text(column), justify=justify, width=widths[number], overflow="fold", vertical="bottom"
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(file=sys.stdout, width=max(width, sum(widths) + gaps_width), highlight=False).print(table)


def terminal_width() -> int:
    import shutil

    return shutil.get_terminal_size((_WIDTH_WITHOUT_TERMINAL, 24)).columns


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Yields a progress callback.

    It shows a bar on a terminal's stderr, and a line now and then elsewhere.
    """
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    bar = Bar(*columns, *times, console=console, transient=True)
    task = bar.add_task(title, total=None)
    started_s, is_shown = time.monotonic(), False
    noted_s = started_s

    def progress(done: int, total: int, what: str) -> None:
        nonlocal is_shown, noted_s
        if not console.is_terminal and time.monotonic() - noted_s > NOTED_EVERY_S:
            noted_s = time.monotonic()
            note(f"{title}{f': {what}' if what else ''}, {done:,} of {total:,} done")
        bar.update(task, completed=done, total=total, description=f"{title}: {what}")
        if not is_shown and console.is_terminal and time.monotonic() - started_s > BAR_AFTER_S:
            is_shown = True
            bar.start()

    try:
        yield progress
    finally:
        if is_shown:
            bar.stop()


def note_compilation() -> None:
    """Print a note if this run has to compile the simulation first."""
    from simulator.numerics.compiled import is_compiled, kept_in

    if not is_compiled():
        when = "once after an install" if kept_in() else "at every run, as no cache folder can be written"
        note(f"compiling the simulation to machine code: about half a minute, {when}")


def estimate_text(estimate: Mapping[str, Any] | None, scale: float = 1.0) -> str:
    """An estimate of a JSON document as `12.3 ± 0.4`; the interval is that of sampling."""
    if estimate is None:
        return NOTHING
    text = format_number(estimate["value"] * scale)
    ci95 = estimate.get("ci95")
    half = (ci95[1] - ci95[0]) / 2 * scale if ci95 else 0.0
    return f"{text} ± {_two_digits(half)}" if half > 0 else text


def _two_digits(value: float) -> str:
    """A positive number to two significant digits."""
    return f"{value:,.{max(0, 1 - math.floor(math.log10(value)))}f}"


def interval_text(interval: Sequence[float] | None) -> str:
    """`1.33 to 1.51`."""
    return NOTHING if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"
