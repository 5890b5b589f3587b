"""Throughput against plain decoding over the load and all other axes of a study."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dashboards.figures.figure import PageFigure
from dashboards.figures.heat import add_border, add_cells, axes_of, laid_out, too_many_places
from dashboards.figures.look import DIVERGING
from dashboards.figures.settings import place_text, where_text
from dashboards.figures.study_needed import picture_of
from dashboards.stored import StoredStudy
from dashboards.table import Column, Table, empty
from experiments.maps.study_map import SPEEDUP

COLUMNS = (
    Column("picture", "variant and draft length"),
    Column("variant", "speculative variant"),
    Column("place", "values of the other axes"),
    Column("load", "load"),
    Column("where", "place and load in words"),
    Column("speedup", "throughput ÷ that of plain decoding"),
    Column("low", "lower end of its band"),
    Column("high", "upper end of its band"),
)

_WIDEST = 3.0
"""Speedups beyond this or its reciprocal have the colour of the ends."""


def prepare(study: StoredStudy) -> Table:
    """One row per variant, draft length, place and load. `facts`: `axes_of`."""
    study_map, rows = study.map, []
    if why := too_many_places(study_map):
        return empty(COLUMNS, why)
    for cell in study_map.cells:
        speedup = cell.estimate(SPEEDUP)
        if speedup is not None:
            ends = speedup.band or (None, None)
            name, place = picture_of(cell.variant, cell.draft_length), place_text(cell.place)
            where = where_text(study_map.axes, cell.place, study_map.load, cell.load)
            rows.append((name, cell.variant, place, cell.load, where, speedup.value, *ends))
    if not rows:
        return empty(COLUMNS, "No speedups were measured: the study does not say `measure: simulate`.")
    return Table(COLUMNS, tuple(rows), axes_of(study_map))


def finding(table: Table) -> list[str]:
    """How often each variant pays."""
    return [_finding_of(variant, table.where(variant=variant)) for variant in table.distinct("variant")]


def _finding_of(variant: str, table: Table) -> str:
    rows = table.records()
    pays = sum(row["speedup"] > 1 for row in rows) / len(rows)
    best = max(rows, key=lambda row: float(row["speedup"]))
    most = f"at most × {best['speedup']:.2f} ({best['where']})"
    return f"{variant} is faster than plain decoding in {pays:.0%} of the cells, {most}."


def caption(table: Table) -> str:
    """How to read it."""
    return (
        f"Throughput ÷ that of plain decoding. Rows: {table.facts['place'] or 'one'}. The heavy line is "
        "where speculation stops paying, before the error of the cost model; hover for the band."
    )


def draw(table: Table) -> Any:
    """The map of one variant and draft length."""
    figure, cells = laid_out(table)
    add_cells(
        figure,
        [[None if cell is None else _depth(cell["speedup"]) for cell in row] for row in cells],
        [["" if cell is None else f"{cell['speedup']:.2f}" for cell in row] for row in cells],
        [[_hover(cell) for cell in row] for row in cells],
        DIVERGING,
    )
    sides = [[None if cell is None else cell["speedup"] > 1 for cell in row] for row in cells]
    add_border(figure, sides, "as fast as plain decoding")
    return figure


def _depth(speedup: float) -> float:
    return min(max(math.log(speedup) / math.log(_WIDEST), -1.0), 1.0)


def _hover(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    band = "" if cell["low"] is None else f" [{cell['low']:.2f}, {cell['high']:.2f}]"
    return f"{cell['where']}: × {cell['speedup']:.2f}{band}"


FIGURE = PageFigure("speedup", "Speedup", prepare, draw, finding, caption, by="picture")
