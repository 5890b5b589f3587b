"""The closed loop's step times: predicted against measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any

from dashboards.figures.equality import draw_lines, draw_points
from dashboards.figures.figure import PageFigure
from dashboards.figures.look import log_ticks, new_figure
from dashboards.table import Column, Table, empty

COLUMNS = (
    Column("kind", "what was timed"),
    Column("point", "batch, draft length, context, drafter"),
    Column("measured", "on this device", "ms"),
    Column("predicted", "by the simulator, from this device's profile", "ms"),
)
WITHIN = 0.10
"""Half-width of the band, on the log scale."""
_ROOM = 1.12


def prepare(document: Mapping[str, Any]) -> Table:
    """Every kind of step of every point."""
    from calibration.closure.tables import step_pairs

    rows = tuple(
        (kind, where, measured_s * 1e3, predicted_s * 1e3)
        for kind, where, measured_s, predicted_s in step_pairs(document)
    )
    return Table(COLUMNS, rows) if rows else empty(COLUMNS, "Nothing was compared.")


def finding(table: Table) -> list[str]:
    """The median error of each kind."""
    errors_by_kind = []
    for kind in table.distinct("kind"):
        rows = table.where(kind=kind)
        errors = [abs(math.log(b / a)) for a, b in zip(rows["measured"], rows["predicted"], strict=True)]
        errors_by_kind.append(f"{kind} {median(errors):.1%}")
    return [f"Median error: {', '.join(errors_by_kind)}. A cycle holds a verify pass and the draft passes."]


def draw(table: Table) -> Any:
    """On log scales; on the line both agree."""
    figure = new_figure(420, "measured, ms (log scale)", "predicted, ms (log scale)", hovermode="closest")
    values = [*table["measured"], *table["predicted"]]
    low, high = min(values) / _ROOM, max(values) * _ROOM
    draw_lines(
        figure, [(low, high, math.exp(off) * low, math.exp(off) * high) for off in (0, -WITHIN, WITHIN)]
    )
    draw_points(figure, table)
    ticks = log_ticks(low, high)
    names, bounds = [f"{tick:g}" for tick in ticks], [math.log10(low), math.log10(high)]
    figure.update_xaxes(type="log", range=bounds, tickvals=ticks, ticktext=names, showgrid=True)
    figure.update_yaxes(type="log", range=bounds, tickvals=ticks, ticktext=names)
    return figure


FIGURE: PageFigure[Mapping[str, Any]] = PageFigure(
    name="closure-steps",
    title="Step times",
    prepare=prepare,
    draw=draw,
    finding=finding,
    caption=lambda _: f"On the line both agree; the dotted lines are {WITHIN:.0%} away.",
)
