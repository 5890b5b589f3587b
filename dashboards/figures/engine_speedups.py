"""Speedups on a real serving engine by load: measured points on predicted lines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any

from dashboards.figures.figure import PageFigure
from dashboards.figures.look import QUIET, VARIANT_COLOURS, new_figure
from dashboards.table import Column, Table, empty

COLUMNS = (
    Column("variant", "speculative configuration of the server"),
    Column("clients", "concurrent clients"),
    Column("measured", "TPOT of plain decoding ÷ TPOT of the variant"),
    Column("predicted", "the same, simulated"),
)
_TICKS = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0)


def prepare(document: Mapping[str, Any]) -> Table:
    """Every speculative cell with a number of clients, by load."""
    rows = [
        (row["cell"]["variant"], row["cell"]["clients"], row["measured"], row["predicted"])
        for row in document["speedups"]
        if row["cell"]["clients"]
    ]
    rows.sort(key=lambda row: (row[0], row[1]))
    return Table(COLUMNS, tuple(rows)) if rows else empty(COLUMNS, "Nothing was compared.")


def finding(table: Table) -> list[str]:
    """The median error over all points."""
    pairs = zip(table["measured"], table["predicted"], strict=True)
    return [f"Median error of the speedup: {median(abs(math.log(b / a)) for a, b in pairs):.1%}."]


def draw(table: Table) -> Any:
    """Both axes are logarithmic; above 1 speculation pays."""
    import plotly.graph_objects as go

    figure = new_figure(420, "clients (log scale)", "speedup (log scale)", hovermode="closest")
    for name, colour in zip(table.distinct("variant"), VARIANT_COLOURS * 2, strict=False):
        rows = table.where(variant=name)
        line, marker = {"color": colour, "width": 1.6}, {"color": colour, "size": 9}
        figure.add_trace(
            go.Scatter(x=rows["clients"], y=rows["predicted"], name=name, mode="lines", line=line)
        )
        figure.add_trace(
            go.Scatter(x=rows["clients"], y=rows["measured"], mode="markers", marker=marker, showlegend=False)
        )
    clients = table.distinct("clients")
    figure.add_hline(y=1, line={"color": QUIET, "width": 1, "dash": "dot"})
    figure.update_xaxes(type="log", tickvals=clients, ticktext=[f"{count:g}" for count in clients])
    figure.update_yaxes(type="log", tickvals=_TICKS, ticktext=[f"{tick:g}" for tick in _TICKS])
    return figure


FIGURE: PageFigure[Mapping[str, Any]] = PageFigure(
    name="engine-speedups",
    title="Speedup on the server",
    prepare=prepare,
    draw=draw,
    finding=finding,
    caption=lambda _: (
        "Lines are predictions, points are measurements. Above the dotted line speculation pays."
    ),
)
