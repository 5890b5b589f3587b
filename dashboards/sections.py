"""A figure as a section of a page: heading, what it says, pictures, how to read them, and the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dashboards.markup import Html, table, tag
from dashboards.page import Drawings, legend_of

if TYPE_CHECKING:
    from dashboards.figures import PageFigure
    from dashboards.figures.figure import FigureData
    from dashboards.table import Table

_MAX_ROWS = 30
"""Tables up to this length stand under their figure, folded."""


def rows_of(figures: Sequence[PageFigure[FigureData]]) -> list[tuple[str, list[PageFigure[FigureData]]]]:
    """The figures in order, halves that follow each other in one row: (class, figures)."""
    return [
        ("halves" if half else "whole", list(group))
        for half, group in groupby(figures, lambda figure: figure.half)
    ]


def figure_section(figure_table: Table, figure: PageFigure[Any], identity: str, drawings: Drawings) -> Html:
    """The section of one figure, from the table that it prepared."""
    if not figure_table.rows:
        return tag("section", tag("h2", figure.title), tag("p", figure_table.missing, cls="missing"))
    pictures = [(title, figure.draw(part)) for title, part in figure.pictures(figure_table)]
    legends = [legend_of(picture) for _, picture in pictures]
    common = len(set(legends)) == 1
    places = []
    for at, (title, picture) in enumerate(pictures):
        above = [tag("h3", title)] if len(pictures) > 1 else []
        above += [] if common else [legends[at]]
        label = f"{figure.title}{f', {title}' if title else ''}"
        place = drawings.place(f"{identity}-{at}" if len(pictures) > 1 else identity, picture, label)
        places.append(tag("figure", *above, place))
    return tag(
        "section",
        tag("h2", figure.title),
        *(tag("p", line, cls="finding") for line in figure.finding(figure_table)),
        legends[0] if common else "",
        tag("div", *places, cls="several" if len(pictures) > 1 else None),
        tag("p", figure.caption(figure_table), cls="caption"),
        *_numbers(figure_table),
        id=f"{identity}-section",
    )


def _numbers(figure_table: Table) -> list[Html]:
    if len(figure_table.rows) > _MAX_ROWS:
        return []
    headings = [
        f"{column.name}, {column.unit}" if column.unit else column.name for column in figure_table.columns
    ]
    rows = [[_number(cell) for cell in row] for row in figure_table.rows]
    html_table = table(headings, rows)
    return [tag("details", tag("summary", "The numbers"), html_table)]


def _number(cell: Any) -> str:
    from simulator.units import format_number

    if cell is None:
        return "–"
    return (
        format_number(cell)
        if isinstance(cell, float)
        else f"{cell:,}"
        if isinstance(cell, int)
        else str(cell)
    )
