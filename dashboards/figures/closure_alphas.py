"""The closed loop's break-even acceptances: predicted against measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboards.figures.equality import draw_lines, draw_points
from dashboards.figures.figure import PageFigure
from dashboards.figures.look import new_figure
from dashboards.table import Column, Table, empty

COLUMNS = (
    Column("kind", "draft length"),
    Column("point", "batch, draft length, context, drafter"),
    Column("measured", "where the speedup in pairs crosses 1"),
    Column("predicted", "by simulated runs"),
)
WITHIN = 0.06


def prepare(document: Mapping[str, Any]) -> Table:
    """Every point with a break-even on both sides."""
    from calibration.closure.tables import place

    break_evens = sorted(document["summary"]["breakeven"] or (), key=lambda row: int(row["draft_length"]))
    rows = tuple(
        (f"K = {row['draft_length']}", place(row), row["measured_alpha"], row["predicted_alpha"])
        for row in break_evens
    )
    return Table(COLUMNS, rows) if rows else empty(COLUMNS, "No break-even was bracketed.")


def finding(table: Table) -> list[str]:
    """The largest difference."""
    differences = [abs(a - b) for a, b in zip(table["measured"], table["predicted"], strict=True)]
    return [f"The largest of {len(differences)} differences is {max(differences):.3f}."]


def draw(table: Table) -> Any:
    """On the line both agree."""
    figure = new_figure(420, "measured break-even α", "predicted break-even α", hovermode="closest")
    draw_lines(figure, [(0, 1, off, 1 + off) for off in (0, -WITHIN, WITHIN)])
    draw_points(figure, table)
    figure.update_xaxes(range=[0, 1], showgrid=True)
    figure.update_yaxes(range=[0, 1])
    return figure


FIGURE: PageFigure[Mapping[str, Any]] = PageFigure(
    name="closure-alphas",
    title="Break-even acceptance",
    prepare=prepare,
    draw=draw,
    finding=finding,
    caption=lambda _: f"Acceptance was dialled on either side of the break-even; dotted: {WITHIN} away.",
)
