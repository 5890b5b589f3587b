"""A figure as a section of a page: heading, what it says, pictures, how to read them, and the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dashboards.markup import Html, table, tag
from dashboards.page import Drawings, legend_of

if TYPE_CHECKING:
    from dashboards.figures import Figure
    from dashboards.figures.figure import Of
    from dashboards.table import Table

_MOST_ROWS = 30
"""Tables up to this length stand under their figure, folded."""


def rows_of(figures: Sequence[Figure[Of]]) -> list[tuple[str, list[Figure[Of]]]]:
    """The figures in order, half_widths that follow each other in one row: (class, figures)."""
    return [
        ("half_widths" if half else "whole", list(group))
        for half, group in groupby(figures, lambda one: one.half)
    ]


def figure_section(found: Table, figure: Figure[Any], identity: str, drawings: Drawings) -> Html:
    """The section of one figure, from the table that it prepared."""
    if not found.rows:
        return tag("section", tag("h2", figure.title), tag("p", found.missing, cls="missing"))
    pictures = [(title, figure.draw(part)) for title, part in figure.pictures(found)]
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
        *(tag("p", line, cls="finding") for line in figure.finding(found)),
        legends[0] if common else "",
        tag("div", *places, cls="several" if len(pictures) > 1 else None),
        tag("p", figure.caption(found), cls="caption"),
        *_numbers(found),
        id=f"{identity}-section",
    )


def _numbers(found: Table) -> list[Html]:
    if len(found.rows) > _MOST_ROWS:
        return []
    headings = [f"{column.name}, {column.unit}" if column.unit else column.name for column in found.columns]
    rows = [[_number(cell) for cell in row] for row in found.rows]
    shown = table(headings, rows)
    return [tag("details", tag("summary", "The numbers"), shown)]


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
