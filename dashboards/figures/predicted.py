"""Predicted against published: every compared figure of one quantity, by method."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dashboards.figures.equality import draw_lines
from dashboards.figures.look import log_ticks, new_figure, variant_colours
from dashboards.subject import PLAIN
from dashboards.table import Column, Table, empty

if TYPE_CHECKING:
    from calibration.validation.row import ComparisonRow

COLUMNS = (
    Column("method", "speculation method, or plain"),
    Column("published", "what the source says"),
    Column("predicted", "what was simulated"),
    Column("text", "case, GPU, engine, load and the error"),
)

WITHIN = 0.15
"""Half-width of the band that is drawn around equality, on the log scale."""

_ROOM = 1.12


def prepare(rows: Iterable[ComparisonRow], quantity: str, scale: float = 1.0) -> Table:
    """The compared rows of one quantity, × `scale`. `facts`: how many lie within the band, and all methods,
    so that each has one colour in the pictures of all quantities.
    """
    from calibration.validation.groups import method_of
    from calibration.validation.tables import load_of, value_of

    rows = [row for row in rows if row.predicted is not None]
    methods = sorted({method_of(row) for row in rows} - {PLAIN})
    compared = [row for row in rows if row.quantity == quantity]
    if not compared:
        return empty(COLUMNS, "Nothing was compared.")
    found = tuple(
        (
            method_of(row),
            row.published * scale,
            (row.predicted or 0) * scale,
            f"{row.case_id}<br>{row.gpu}, {row.engine}, load {load_of(row)}, acceptance "
            f"{row.acceptance_from}<br>published {value_of(quantity, row.published)}, predicted "
            f"{value_of(quantity, row.predicted or 0)} ({(row.ratio or 0) - 1:+.1%})",
        )
        for row in sorted(compared, key=method_of)
    )
    within = sum(abs(row.log_error) <= WITHIN for row in compared)
    return Table(COLUMNS, found, {"within": within, "methods": methods})


def finding(table: Table) -> str:
    """How many lie close to what was published."""
    count = len(table.rows)
    return f"{table.facts['within']} of {count} figures lie within {WITHIN:.0%} of what was published."


def draw(table: Table, title: str, unit: str) -> Any:
    """One point per figure on log scales; on the line both agree."""
    import plotly.graph_objects as go

    axis = f"published {title}{f', {unit}' if unit else ''} (log scale)"
    figure = new_figure(420, axis, axis.replace("published", "predicted", 1), hovermode="closest")
    values = [*table["published"], *table["predicted"]]
    low, high = min(values) / _ROOM, max(values) * _ROOM
    offsets = (0.0, -WITHIN, WITHIN)
    draw_lines(figure, [(low, high, low * math.exp(by), high * math.exp(by)) for by in offsets])
    colours = variant_colours([PLAIN, *table.facts["methods"]])
    for method in table.distinct("method"):
        rows = table.where(method=method)
        colour = colours[method]
        figure.add_trace(
            go.Scatter(
                x=rows["published"],
                y=rows["predicted"],
                name=method,
                mode="markers",
                marker={"color": colour, "size": 7, "opacity": 0.75},
                fillcolor=colour,
                customdata=rows["text"],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    ticks = log_ticks(low, high)
    names = [f"{tick:g}" for tick in ticks]
    bounds = [math.log10(low), math.log10(high)]
    figure.update_xaxes(type="log", range=bounds, tickvals=ticks, ticktext=names, showgrid=True)
    figure.update_yaxes(type="log", range=bounds, tickvals=ticks, ticktext=names)
    return figure
