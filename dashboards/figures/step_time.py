"""What a step is made of, and what a token costs: stacked bars of every variant."""

from __future__ import annotations

from typing import Any

from dashboards.figures.figure import PageFigure
from dashboards.figures.look import BARE_TICKS, PAPER, PARTS, new_figure
from dashboards.subject import PLAIN, ReportedResult
from dashboards.table import Column, Table, empty
from simulator.units import format_seconds

COLUMNS = (
    Column("basis", "a step, or a step ÷ the tokens that each request gets from it"),
    Column("variant", "variant"),
    Column("part", "part of the step"),
    Column("time", "mean time", "s"),
)

STEP, TOKEN = "step", "token"

TITLES = {
    "verify": "weights and experts (verify, prefill)",
    "attention": "attention",
    "communication": "communication",
    "draft": "drafting",
    "sampling": "accepting, sampling",
    "host": "host, exposed",
    "waiting": "waiting for the host",
}
"""Part → its words, in the order of the bar."""

_ROOM_FOR_TOTALS = 1.3
"""The axis is longer than the longest bar by this factor: its total stands behind it, on phones too."""

_LEAST_SHARE = 0.001
"""A part below this share of the step is left out."""


def prepare(subject: ReportedResult) -> Table:
    """One row per basis, variant and part. `facts`: `tokens`, variant → tokens of a request per round."""
    rows: list[tuple[Any, ...]] = []
    tokens: dict[str, float] = {}
    for name, variant in subject.result.variants.items():
        values = variant.values()
        if "step_s.mean" not in values or not values.get("tokens_per_round", 0) > 0:
            continue
        tokens[name] = values["tokens_per_round"]
        for part, time_s in parts_of(values).items():
            rows.append((STEP, name, part, time_s))
            rows.append((TOKEN, name, part, time_s / tokens[name]))
    if not rows:
        return empty(COLUMNS, "The result holds no times of steps.")
    rows.sort(key=lambda row: row[0] == TOKEN)
    return Table(COLUMNS, tuple(rows), {"tokens": tokens})


def parts_of(values: dict[str, float]) -> dict[str, float]:
    """The parts of a mean step, s, which sum to it: attention and communication taken out of verify, and what
    the GPU waits for an asynchronous host as a part of its own.
    """
    separate_parts = {
        name: values.get(f"step_s.{name}", 0.0)
        for name in ("attention", "communication", "draft", "sampling", "host")
    }
    verify = values.get("step_s.verify", 0.0)
    parts = {
        "verify": max(0.0, verify - separate_parts["attention"] - separate_parts["communication"]),
        **separate_parts,
    }
    parts["waiting"] = max(
        0.0,
        values["step_s.mean"]
        - verify
        - separate_parts["draft"]
        - separate_parts["sampling"]
        - separate_parts["host"],
    )
    return {name: time_s for name, time_s in parts.items() if time_s > _LEAST_SHARE * values["step_s.mean"]}


def finding(table: Table) -> list[str]:
    """The trade of speculation: a longer step for more tokens."""
    tokens = table.facts["tokens"]
    total_s = {
        variant: sum(table.where(basis=STEP, variant=variant)["time"])
        for variant in table.distinct("variant")
    }
    if PLAIN not in total_s:
        return []
    plain = total_s[PLAIN]
    sentences = [
        f"A step of {variant} takes {total_s[variant] / plain:.2f} × as long "
        f"({format_seconds(total_s[variant])} in "
        f"place of {format_seconds(plain)}) and brings each request {tokens[variant]:.2f} tokens: "
        f"{format_seconds(total_s[variant] / tokens[variant])} a token."
        for variant in total_s
        if variant != PLAIN
    ]
    return sentences or [f"A step takes {format_seconds(total_s[PLAIN])}."]


def caption(table: Table) -> str:
    """How to read it."""
    return (
        "Mean over all steps, those that also process prompts included: where fewer steps serve the same "
        "requests, each carries more of the prompts. Above: one step. Below: the same ÷ the tokens that a "
        "decoding request gets from it, stops included; at an equal batch the shorter bar is the better "
        "variant."
    )


def draw(table: Table) -> Any:
    """Stacked bars from left to right: a step of every variant, then a token of every variant."""
    import plotly.graph_objects as go

    bars = list(dict.fromkeys(zip(table["basis"], table["variant"], strict=True)))
    names = {bar: f"{bar[1]}, one {bar[0]}" for bar in bars}
    figure = new_figure(130 + 44 * len(bars), "mean time, ms", "", barmode="stack", bargap=0.35)
    totals = dict.fromkeys(bars, 0.0)
    for part, title in TITLES.items():
        rows = table.where(part=part)
        if not rows.rows:
            continue
        bars_of_part = list(zip(rows["basis"], rows["variant"], strict=True))
        for bar, time_s in zip(bars_of_part, rows["time"], strict=True):
            totals[bar] += time_s
        figure.add_trace(
            go.Bar(
                y=[names[bar] for bar in bars_of_part],
                x=[time_s * 1e3 for time_s in rows["time"]],
                name=title,
                orientation="h",
                marker={"color": PARTS[part], "line": {"color": PAPER, "width": 0.5}},
                customdata=[format_seconds(time_s) for time_s in rows["time"]],
                hovertemplate=f"%{{y}}: {title} %{{customdata}}<extra></extra>",
            )
        )
    for bar, total_s in totals.items():
        figure.add_annotation(
            text=format_seconds(total_s),
            x=total_s * 1e3,
            y=names[bar],
            xanchor="left",
            xshift=4,
            showarrow=False,
            font={"size": 12.5},
        )
    order = [names[bar] for bar in bars]
    order.insert(sum(bar[0] == STEP for bar in bars), " ")
    figure.add_trace(go.Bar(y=[" "], x=[0], orientation="h", showlegend=False, hoverinfo="skip"))
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1], showgrid=False, **BARE_TICKS)
    figure.update_xaxes(range=[0, max(totals.values()) * 1e3 * _ROOM_FOR_TOTALS], showgrid=True)
    return figure


FIGURE = PageFigure("step-time", "What a step is made of", prepare, draw, finding, caption)
