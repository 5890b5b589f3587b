"""Throughput against plain decoding, over acceptance and the clients at work at once."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from dashboards.figures.figure import PageFigure
from dashboards.figures.look import DIVERGING, INK, clients, draft_lengths, new_figure
from dashboards.subject import ReportedResult, varying_variants
from dashboards.table import Column, Table, empty

COLUMNS = (
    Column("variant", "speculative variant"),
    Column("draft_length", "drafts a round (K)", "tokens"),
    Column("concurrency", "clients at work at once", "requests"),
    Column("alpha", "acceptance α"),
    Column("speedup", "throughput ÷ that of plain decoding"),
)

_WIDEST = 3.0
"""Speedups beyond this or its reciprocal have the colour of the ends."""

Speedups = Sequence[float | None]


def prepare(subject: ReportedResult) -> Table:
    """One row per variant, load and acceptance. `facts`: own, variant → the scenario's (concurrency,
    α); varying.
    """
    rows = [
        (variant, speedup_map.draft_length, load, alpha, speedup_map.speedup[i][j])
        for variant, speedup_map in subject.study.speedup.items()
        for i, alpha in enumerate(speedup_map.alpha)
        for j, load in enumerate(speedup_map.concurrency)
    ]
    if not rows:
        problem = " ".join(subject.study.notes) or subject.scenario_problem
        return empty(
            COLUMNS, problem or "The scenario has no speculative variant, so there is nothing to compare."
        )
    load = subject.result.scenario["workload"]["arrivals"].get("concurrency")
    own_cells = {
        variant: (load, document["rows"][0]["scenario_alpha"])
        for variant, document in subject.study.break_even.items()
    }
    return Table(COLUMNS, tuple(rows), {"own": own_cells, "varying": varying_variants(subject)})


def finding(table: Table) -> list[str]:
    """What a better drafter is worth at the scenario's own load."""
    return [_finding_of(table.where(variant=variant)) for variant in table.distinct("variant")]


def _finding_of(table: Table) -> str:
    variant = table["variant"][0]
    rows = [row for row in table.records() if row["speedup"]]
    if not rows:
        return f"{variant} does not fit the memory at these loads."
    own_load, own_alpha = table.facts["own"].get(variant, (None, None))
    column = [row for row in rows if row["concurrency"] == own_load]
    if own_alpha is not None and len(column) > 1:
        index = min(max(bisect_left([row["alpha"] for row in column], own_alpha), 0), len(column) - 2)
        below, above = column[index], column[index + 1]
        tenths = (above["alpha"] - below["alpha"]) / 0.1
        gain = (above["speedup"] / below["speedup"]) ** (1 / tenths) - 1
        return (
            f"At {clients(own_load)}, 0.1 more of acceptance is worth {gain:.1%} of throughput to {variant}."
        )
    best = max(rows, key=lambda row: float(row["speedup"]))
    best_place = f"{clients(best['concurrency'])} and α {best['alpha']:.2f}"
    return f"{variant} gains most at {best_place}: × {best['speedup']:.2f}."


def caption(table: Table) -> str:
    """How to read it."""
    lengths = draft_lengths(table, table.facts["varying"])
    framed = any(load in table.distinct("concurrency") for load, _ in table.facts["own"].values())
    frame = " The frame is the scenario's own point." if framed else ""
    return (
        f"Throughput ÷ that of plain decoding, {lengths}. Every cell is simulated: one closed-loop run "
        "of each variant on common random numbers, to about 1 %. Above the heavy line speculation pays, "
        "before the "
        f"error of the cost model.{frame}"
    )


def draw(table: Table) -> Any:
    """One heat map: loads from left to right, acceptance from below; figures in the cells."""
    import plotly.graph_objects as go

    loads, alphas = table.distinct("concurrency"), table.distinct("alpha")
    cells = {(row["alpha"], row["concurrency"]): row["speedup"] for row in table.records()}
    grid = [[cells.get((alpha, load)) for load in loads] for alpha in alphas]
    figure = new_figure(60 + 36 * len(alphas), "clients at work at once", "acceptance α", showlegend=False)
    figure.add_trace(
        go.Heatmap(
            z=[[_depth(speedup) for speedup in row] for row in grid],
            text=[["" if cell is None else f"{cell:.2f}" for cell in row] for row in grid],
            texttemplate="%{text}",
            textfont={"size": 12},
            customdata=[[[load, alpha] for load in loads] for alpha in alphas],
            zmin=-1,
            zmax=1,
            colorscale=[list(stop) for stop in DIVERGING],
            showscale=False,
            xgap=1,
            ygap=1,
            hovertemplate="%{customdata[0]} clients, α %{customdata[1]:.2f}: × %{text}<extra></extra>",
            x=list(range(len(loads))),
            y=list(range(len(alphas))),
        )
    )
    x, y = boundary(grid)
    line = {"color": INK, "width": 2.5}
    figure.add_trace(go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip"))
    _frame_scenario_cell(figure, table, loads, alphas)
    bare = {"showline": False, "ticks": "", "showgrid": False}
    names = [f"{load:,g}" for load in loads]
    figure.update_xaxes(
        tickvals=list(range(len(loads))), ticktext=names, range=[-0.5, len(loads) - 0.5], **bare
    )
    names = [f"{round(alpha, 2):g} " for alpha in alphas]
    figure.update_yaxes(
        tickvals=list(range(len(alphas))), ticktext=names, range=[-0.5, len(alphas) - 0.5], **bare
    )
    return figure


def _depth(speedup: float | None) -> float | None:
    """Where a speedup lies on the colour scale, −1 to 1: its logarithm."""
    if speedup is None or speedup <= 0:
        return None
    return min(max(math.log(speedup) / math.log(_WIDEST), -1.0), 1.0)


def boundary(grid: Sequence[Speedups]) -> tuple[list[float], list[float | None]]:
    """The line between cells below and above 1, along their edges: x and y in cells, acceptance rising.

    In a column it lies under the cells from which on all are at least 1; one without figures has a gap.
    """
    x: list[float] = []
    y: list[float | None] = []
    for j in range(len(grid[0])):
        column = [row[j] for row in grid]
        speedups = [speedup for speedup in column if speedup is not None]
        below = next((i + 1 for i in reversed(range(len(speedups))) if speedups[i] < 1), 0)
        height = below - 0.5 if len(speedups) == len(column) else None
        x += [j - 0.5, j + 0.5]
        y += [height, height]
    return x, y


def _frame_scenario_cell(figure: Any, table: Table, loads: Sequence[int], alphas: Sequence[float]) -> None:
    """A frame around the cell of the scenario's own load and acceptance."""
    load, alpha = table.facts["own"].get(table["variant"][0], (None, None))
    if load not in loads or alpha not in alphas:
        return
    x, y = loads.index(load), alphas.index(alpha)
    for inset, colour, width in ((0.47, "white", 5), (0.47, INK, 2)):
        corners = {"x0": x - inset, "x1": x + inset, "y0": y - inset, "y1": y + inset}
        figure.add_shape(type="rect", **corners, line={"color": colour, "width": width})


FIGURE = PageFigure(
    "speedup-map", "Speedup by load and acceptance", prepare, draw, finding, caption, by="variant"
)
