"""How a plain step and a draft pass of a device grow with the batch, with what is not known of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dashboards.figures.figure import PageFigure
from dashboards.figures.look import ORANGE, PLAIN_COLOUR, faded, new_figure
from dashboards.table import Column, Table, empty
from simulator.units import format_seconds

Numbers = Mapping[str, Any]
"""The four numbers, as `calibrate --json` prints them."""

PLAIN, DRAFT = "plain step", "draft pass"
COLUMNS = (
    Column("curve", "plain step or draft pass"),
    Column("batch", "sequences"),
    Column("time", "predicted from the parts of the profile", "s"),
    Column("low", "lower end of the 95 % interval", "s"),
    Column("high", "upper end of the 95 % interval", "s"),
)


def prepare(numbers: Numbers) -> Table:
    """A row per batch, of the step and of the draft pass. `facts`: `context`."""
    rows = [
        (curve, row["batch"], row["value"], *row["ci95"])
        for curve, key in ((PLAIN, "batch_response"), (DRAFT, "draft_pass_s"))
        for row in numbers[key]
    ]
    if not rows:
        return empty(COLUMNS, "There are no steps.")
    return Table(COLUMNS, tuple(rows), {"context": numbers["batch_response"][0]["context"]})


def finding(table: Table) -> list[str]:
    """From the smallest batch to the largest."""
    plain, draft = (table.where(curve=curve) for curve in (PLAIN, DRAFT))
    batches, times = plain["batch"], plain["time"]
    return [
        f"A plain step takes {format_seconds(times[0])} at batch {batches[0]}, {format_seconds(times[-1])} "
        f"at batch {batches[-1]}, {times[-1] / times[0]:.1f} × as long for {batches[-1] / batches[0]:.0f} × "
        f"the tokens. A draft pass takes {draft['time'][0] / times[0]:.0%} of the one and "
        f"{draft['time'][-1] / times[-1]:.0%} of the other."
    ]


def caption(table: Table) -> str:
    """How to read it."""
    return (
        f"One pass at {table.facts['context']:,} tokens of context a sequence, without host time, summed "
        "from the operators of the profile; shaded: 95 %, from how well each part predicts points that were "
        "left out of its fit. Flat: weights are read once for all. Rising: arithmetic, and KV for each."
    )


def draw(table: Table) -> Any:
    """Two lines with bands on logarithmic axes."""
    figure = new_figure(360, "batch, sequences", "time, ms")
    for curve, colour in ((PLAIN, PLAIN_COLOUR), (DRAFT, ORANGE)):
        add_band(figure, table.where(curve=curve), "batch", curve, colour, 1e3)
    batches = table.where(curve=PLAIN)["batch"]
    figure.update_xaxes(type="log", tickvals=batches, ticktext=[str(b) for b in batches])
    decades = range(math.floor(math.log10(min(table["low"]))), math.ceil(math.log10(max(table["high"]))) + 1)
    ticks = [step * 10.0 ** (decade + 3) for decade in decades for step in (1, 2, 5)]
    figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    return figure


def add_band(figure: Any, rows: Table, x: str, name: str, colour: str, scale: float) -> None:
    """A line of `time` over `x` and the band between `low` and `high`."""
    import plotly.graph_objects as go

    positions = list(rows[x])
    low, high = ([value * scale for value in rows[end]] for end in ("low", "high"))
    band = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    figure.add_trace(go.Scatter(x=positions, y=high, **band))
    figure.add_trace(go.Scatter(x=positions, y=low, fill="tonexty", fillcolor=faded(colour, 0.18), **band))
    figure.add_trace(
        go.Scatter(
            x=positions,
            y=[value * scale for value in rows["time"]],
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={"size": 6, "color": colour},
            customdata=[f"{low_ms:.3g} to {high_ms:.3g}" for low_ms, high_ms in zip(low, high, strict=True)],
            hovertemplate=f"{name}, %{{x}}: %{{y:.3g}} (95 %: %{{customdata}})<extra></extra>",
        )
    )


FIGURE = PageFigure("device-response", "Batch and draft cost", prepare, draw, finding, caption)
