"""What pictures of predicted against measured share: the line of equality, a band, points by kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dashboards.figures.look import PLAIN_COLOUR, QUIET, VARIANT_COLOURS
from dashboards.table import Table

_COLOURS = (PLAIN_COLOUR, *VARIANT_COLOURS)


def draw_lines(figure: Any, ends: Sequence[tuple[float, float, float, float]]) -> None:
    """Lines (x, x, y, y): equality first, then the edges of the band, dotted."""
    import plotly.graph_objects as go

    for number, (x0, x1, y0, y1) in enumerate(ends):
        line = {"color": QUIET, "width": 0.9 if number else 1.4, "dash": "dot" if number else "solid"}
        figure.add_trace(
            go.Scatter(x=[x0, x1], y=[y0, y1], mode="lines", line=line, showlegend=False, hoverinfo="skip")
        )


def draw_points(figure: Any, table: Table) -> None:
    """Columns kind, point, measured, predicted."""
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
                customdata=rows["point"],
                hovertemplate="%{customdata}<br>measured %{x:.3g}, predicted %{y:.3g}<extra></extra>",
            )
        )
