"""Sobol indices: the share of an answer's spread that each input makes, alone and with the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dashboards.figures.look import BARE_TICKS, DEEP_BLUE, MAX_BARS, PALE_BLUE, new_figure
from dashboards.table import Column, Table

if TYPE_CHECKING:
    from experiments.sensitivity.sobol import Sobol

COLUMNS = (
    Column("input", "what is uncertain"),
    Column("first_order", "share of the variance, alone"),
    Column("total_order", "share of the variance, with the others"),
    Column("total_low", "low end of its 95 % interval"),
    Column("total_high", "high end of its 95 % interval"),
)


def prepare(sobol: Sobol) -> Table:
    """One row per input, largest total first. `facts`: the spread."""
    rows = tuple(
        (
            index.input.name,
            index.first_order.value,
            index.total_order.value,
            *(index.total_order.ci95 or (index.total_order.value,) * 2),
        )
        for index in sobol.indices[:MAX_BARS]
    )
    return Table(COLUMNS, rows, {"quantiles": dict(sobol.quantiles), "pays_share": sobol.pays_share})


def finding(table: Table) -> str:
    """How far the answer spreads, and what makes most of it."""
    low, high = (table.facts["quantiles"][name] for name in ("p5", "p95"))
    pays = table.facts["pays_share"]
    share = "" if pays is None else f"; it pays in {pays:.0%} of the combinations"
    return f"All together leave it between {low:.2f} and {high:.2f} (90 %){share}."


def draw(table: Table) -> Any:
    """Two bars per input."""
    import plotly.graph_objects as go

    names = [f"{name} " for name in table["input"]]
    figure = new_figure(64 + 34 * len(names), "share of the variance", "", barmode="group", bargap=0.3)
    total = [max(value, 0.0) for value in table["total_order"]]
    error = {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, high in zip(total, table["total_high"], strict=True)],
        "arrayminus": [value - max(low, 0.0) for value, low in zip(total, table["total_low"], strict=True)],
        "thickness": 1,
        "width": 3,
    }
    for column, name, colour, bars in (
        ("first_order", "alone", PALE_BLUE, {}),
        ("total_order", "with the others", DEEP_BLUE, {"error_x": error}),
    ):
        figure.add_trace(
            go.Bar(
                y=names,
                x=[max(value, 0.0) for value in table[column]],
                orientation="h",
                name=name,
                marker={"color": colour},
                hovertemplate="%{y}%{x:.2f}<extra></extra>",
                **bars,
            )
        )
    figure.update_xaxes(showgrid=True, rangemode="tozero")
    figure.update_yaxes(autorange="reversed", **BARE_TICKS)
    return figure
