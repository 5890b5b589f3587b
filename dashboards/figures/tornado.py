"""The answer at either end of every uncertain input, the others as they are: the widest bar on top."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dashboards.figures.look import BARE_TICKS, DEEP_BLUE, INK, MAX_BARS, PALE_BLUE, QUIET, new_figure
from dashboards.table import Column, Table

if TYPE_CHECKING:
    from experiments.sensitivity.tornado import Tornado

COLUMNS = (
    Column("input", "what is uncertain"),
    Column("low", "low end of its range"),
    Column("high", "high end of its range"),
    Column("at_low", "answer at the low end"),
    Column("at_high", "answer at the high end"),
    Column("source", "where the range comes from"),
)


def prepare(tornado: Tornado) -> Table:
    """One row per input, widest first; inputs at an end of which there is no answer are left out.
    `facts`: base, words for the answer."""
    from experiments.sensitivity.texts import answer_text, value_text

    rows = tuple(
        (
            bar.input.name,
            value_text(bar.input, bar.input.low),
            value_text(bar.input, bar.input.high),
            bar.at_low.value,
            bar.at_high.value,
            bar.input.source,
        )
        for bar in tornado.bars[:MAX_BARS]
        if bar.at_low is not None and bar.at_high is not None
    )
    facts = {"base": tornado.base.value, "answer": answer_text(tornado.of)}
    return Table(COLUMNS, rows, facts, "No input has an answer at both ends.")


def finding(table: Table) -> str:
    """What moves it most."""
    row = table.records()[0]
    ends = sorted((row["at_low"], row["at_high"], table.facts["base"]))
    return f"Most moves with {row['input']}: alone, it leaves {ends[0]:.2f} to {ends[-1]:.2f}."


def draw(table: Table) -> Any:
    """Bars from the base to both ends."""
    import plotly.graph_objects as go

    base = table.facts["base"]
    names = [f"{name} " for name in table["input"]]
    figure = new_figure(64 + 30 * len(names), table.facts["answer"], "", barmode="overlay", bargap=0.35)
    for column, end, colour in (
        ("at_low", "low", PALE_BLUE),
        ("at_high", "high", DEEP_BLUE),
    ):
        figure.add_trace(
            go.Bar(
                y=names,
                x=[value - base for value in table[column]],
                base=[base] * len(names),
                orientation="h",
                name=f"{end} end of the range",
                marker={"color": colour},
                customdata=list(zip(table[end], table[column], table["source"], strict=True)),
                hovertemplate="%{y}%{customdata[0]}: %{customdata[1]:.3f}<br>%{customdata[2]}<extra></extra>",
            )
        )
    figure.add_vline(x=base, line={"color": INK, "width": 1.2})
    if table.facts["answer"].startswith("speedup"):
        figure.add_vline(x=1, line={"color": QUIET, "width": 1.2, "dash": "dot"})
    figure.update_xaxes(showgrid=True)
    figure.update_yaxes(autorange="reversed", **BARE_TICKS)
    return figure
