"""The closed loop: predicted against measured step times, speedups and break-even acceptances."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dashboards.figures.look import ARM_COLOURS, PLAIN_COLOUR, QUIET, log_ticks, new_figure
from dashboards.table import Column, Table, empty

COLUMNS = (
    Column("kind", "what was timed"),
    Column("measured", "on this device"),
    Column("predicted", "by the simulator, from this device's profile"),
    Column("text", "the point and the error"),
)
WITHIN = 0.10
"""Half-width of the band of step times, on the log scale."""
WITHIN_ALPHA = 0.06
_ROOM = 1.12
_COLOURS = (PLAIN_COLOUR, *ARM_COLOURS)


def prepare_steps(document: Mapping[str, Any]) -> Table:
    """Every kind of step of every point, in ms."""
    from calibration.closure.tables import step_pairs

    rows = tuple(
        (
            kind,
            mine * 1e3,
            its * 1e3,
            f"{kind}, {where}<br>{mine * 1e3:.3g} ms measured, {its / mine - 1:+.1%}",
        )
        for kind, where, mine, its in step_pairs(document)
    )
    return Table(COLUMNS, rows) if rows else empty(COLUMNS, "Nothing was compared.")


def prepare_alphas(document: Mapping[str, Any]) -> Table:
    """Every break-even acceptance."""
    from calibration.closure.tables import place

    found = document["summary"]["breakeven"] or ()
    rows = tuple(
        (
            f"K = {row['draft_length']}",
            row["measured_alpha"],
            row["predicted_alpha"],
            f"{place(row)}<br>{row['measured_alpha']:.3f} measured, {row['predicted_alpha']:.3f} predicted",
        )
        for row in sorted(found, key=lambda row: int(row["draft_length"]))
    )
    return Table(COLUMNS, rows) if rows else empty(COLUMNS, "No break-even was bracketed.")


def draw_steps(table: Table) -> Any:
    """Step times on log scales; on the line both agree."""
    figure = new_figure(420, "measured, ms (log scale)", "predicted, ms (log scale)", hovermode="closest")
    values = [*table["measured"], *table["predicted"]]
    low, high = min(values) / _ROOM, max(values) * _ROOM
    _lines(
        figure,
        [(low, high, math.exp(offset) * low, math.exp(offset) * high) for offset in (0, -WITHIN, WITHIN)],
    )
    _points(figure, table)
    ticks = log_ticks(low, high)
    names, bounds = [f"{tick:g}" for tick in ticks], [math.log10(low), math.log10(high)]
    figure.update_xaxes(type="log", range=bounds, tickvals=ticks, ticktext=names, showgrid=True)
    figure.update_yaxes(type="log", range=bounds, tickvals=ticks, ticktext=names)
    return figure


def draw_alphas(table: Table) -> Any:
    """Break-even acceptances; on the line both agree."""
    figure = new_figure(420, "measured break-even α", "predicted break-even α", hovermode="closest")
    _lines(figure, [(0, 1, offset, 1 + offset) for offset in (0, -WITHIN_ALPHA, WITHIN_ALPHA)])
    _points(figure, table)
    figure.update_xaxes(range=[0, 1], showgrid=True)
    figure.update_yaxes(range=[0, 1])
    return figure


def _lines(figure: Any, ends: list[tuple[float, float, float, float]]) -> None:
    """The line of equality, and the band around it."""
    import plotly.graph_objects as go

    for (x0, x1, y0, y1), dash in zip(ends, ("solid", "dot", "dot"), strict=True):
        line = {"color": QUIET, "width": 1.4 if dash == "solid" else 0.9, "dash": dash}
        figure.add_trace(
            go.Scatter(x=[x0, x1], y=[y0, y1], mode="lines", line=line, showlegend=False, hoverinfo="skip")
        )


def _points(figure: Any, table: Table) -> None:
    import plotly.graph_objects as go

    for kind, colour in zip(table.distinct("kind"), _COLOURS, strict=False):
        rows = table.where(kind=kind)
        figure.add_trace(
            go.Scatter(
                x=rows["measured"],
                y=rows["predicted"],
                name=kind,
                mode="markers",
                marker={"color": colour, "size": 8, "opacity": 0.8},
                fillcolor=colour,
                customdata=rows["text"],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
