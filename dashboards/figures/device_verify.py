"""What verifying K drafts adds to a plain step on a device, by batch."""

from __future__ import annotations

from typing import Any

from dashboards.figures.device_response import Numbers, add_band
from dashboards.figures.figure import PageFigure
from dashboards.figures.look import VARIANT_COLOURS, new_figure
from dashboards.table import Column, Table, empty

MAX_LINES = 5
COLUMNS = (
    Column("batch", "sequences"),
    Column("draft_length", "drafts verified, K"),
    Column("time", "verify step ÷ plain step"),
    Column("low", "lower end of the 95 % interval"),
    Column("high", "upper end of the 95 % interval"),
)


def prepare(numbers: Numbers) -> Table:
    """A row per batch and K; K = 0 is the plain step itself."""
    overhead = numbers["verify_overhead"]
    if not overhead:
        return empty(COLUMNS, "There are no steps.")
    batches = sorted({row["batch"] for row in overhead})
    rows: list[tuple[Any, ...]] = [(batch, 0, 1.0, 1.0, 1.0) for batch in batches]
    rows += [
        (row["batch"], row["draft_length"], row["ratio"]["value"], *row["ratio"]["ci95"]) for row in overhead
    ]
    return Table(COLUMNS, tuple(sorted(rows)))


def finding(table: Table) -> list[str]:
    """The ends."""
    last = max(table["draft_length"])
    ends = [
        table.where(batch=batch, draft_length=last) for batch in (min(table["batch"]), max(table["batch"]))
    ]
    return [
        "; ".join(
            f"at batch {rows['batch'][0]} verifying {last} drafts takes {rows['time'][0]:.2f} × a plain step"
            for rows in ends
        ).capitalize()
        + "."
    ]


def caption(table: Table) -> str:
    """How to read it."""
    return (
        "A pass that scores K drafts of every sequence and one token more, ÷ a pass of one token each; "
        "shaded: 95 %, a part's error counted half as shared by both passes. At 1 verification is free; the "
        "slope is what every further draft costs."
    )


def draw(table: Table) -> Any:
    """A line per batch."""
    figure = new_figure(380, "drafts verified, K", "verify ÷ plain step")
    batches = sorted(set(table["batch"]))
    step = max(1, -(-(len(batches) - 1) // (MAX_LINES - 1)))
    batches_drawn = sorted({*batches[::step], batches[-1]})
    for number, batch in enumerate(batches_drawn):
        colour = VARIANT_COLOURS[number % len(VARIANT_COLOURS)]
        add_band(figure, table.where(batch=batch), "draft_length", f"batch {batch}", colour, 1.0)
    figure.update_xaxes(dtick=1)
    figure.update_yaxes(rangemode="tozero")
    return figure


FIGURE = PageFigure("device-verify", "What verification adds", prepare, draw, finding, caption)
