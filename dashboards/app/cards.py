"""Answers as parts of the page: the verdict with its figures, the pictures, pinned variants."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dash import dcc, html

from dashboards.change import percent
from dashboards.figures.figure import PageFigure
from dashboards.headline import Headline, headlines
from dashboards.subject import PLAIN, ReportedResult
from simulator.breakeven.theory import tokens_per_verify
from simulator.results.catalogue import metric_of, paths_shown, title_of
from simulator.results.metric import Detail
from simulator.units import format_number, format_seconds

if TYPE_CHECKING:
    from dashboards.study import LoadStudy
    from dashboards.table import Table

_KEY_FIGURES = tuple((path, title_of(path)) for path in paths_shown(Detail.SUMMARY))
"""Path and heading of the columns of pinned variants."""


def verdict_card(subject: ReportedResult) -> list[Any]:
    """The verdict on the speculative variant, or the figures of plain decoding alone."""
    cards = [_headline(headline) for headline in headlines(subject)]
    return cards or [html.P("Plain decoding alone: choose a method to compare.", className="claim")]


def _headline(headline: Headline) -> Any:
    tiles = [
        html.Div(
            [
                html.Span(tile.label, className="label"),
                html.Span(percent(tile.ratio.value), className=f"ratio {tile.direction}"),
                html.Span(f"{tile.before} → {tile.after}", className="pair"),
            ],
            className="tile",
        )
        for tile in headline.changes
    ]
    outcome = headline.outcome or "no verdict"
    return html.Div(
        [
            html.P(
                [html.Span(outcome, className=f"word {headline.outcome or 'none'}"), headline.variant],
                className="label",
            ),
            html.P(headline.claim, className="claim"),
            html.Div(tiles, className="tiles"),
            *(html.P(line, className="support") for line in headline.support),
        ]
    )


def break_even_line(study: LoadStudy, load: int | None, is_simulated: bool) -> str:
    """The acceptance and the tokens per round at which speculation breaks even at this load."""
    row = next((r for d in study.break_even.values() for r in d["rows"] if r["concurrency"] == load), None)
    if row is None:
        return " ".join(study.notes) or "The break-even is for closed loops: give concurrent clients."
    simulated, geometric = row["simulated_alpha"], row["geometric_alpha"]
    if is_simulated and simulated is None:
        return f"Break-even at {load} clients: out of reach at any acceptance."
    alpha = simulated["value"] if simulated else geometric
    if alpha is None:
        return f"Break-even at {load} clients: out of reach, by the closed form."
    tokens = tokens_per_verify(min(max(alpha, 0.0), 1.0), row["draft_length"])
    band = simulated and simulated.get("band")
    bounds = f" ({band[0]:.2f} to {band[1]:.2f})" if band else ""
    how = "simulated" if simulated else "closed form, being simulated"
    return f"Break-even at {load} clients: α {alpha:.2f}{bounds}, {tokens:.2f} tokens per round ({how})."


def picture(figure: PageFigure[Any], subject: Any, name: str) -> list[Any]:
    """A figure with what it says, how to read it, and its data as a file."""
    table = figure.prepare(subject)
    if not table.rows:
        return [html.H2(figure.title), html.P(table.missing, className="missing")]
    graphs = []
    for index, (title, part) in enumerate(figure.pictures(table)):
        drawn = figure.draw(part)
        drawn.update_layout(autosize=True)
        graph = dcc.Graph(
            id=f"{name}-{index}", figure=drawn, config={"displayModeBar": False, "responsive": True},
            style={"height": f"{drawn.layout.height:g}px"},
        )  # fmt: skip
        graphs.append(html.Figure([html.H3(title), graph] if title else [graph]))
    return [
        html.H2(figure.title),
        *(html.P(line, className="finding") for line in figure.finding(table)),
        html.Div(graphs, className="several" if len(graphs) > 1 else ""),
        html.P(figure.caption(table), className="caption"),
        html.A("data as CSV", href=as_csv(table), download=f"{name}.csv", className="data"),
    ]


def as_csv(table: Table) -> str:
    """A table as an address that holds a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(
        [f"{column.name}_{column.unit}" if column.unit else column.name for column in table.columns]
    )
    writer.writerows(table.rows)
    return f"data:text/csv;charset=utf-8,{quote(text.getvalue())}"


def pinned_row(label: str, subject: ReportedResult) -> dict[str, Any]:
    """What a pin keeps of an answer: a label, the verdict and the key figures of all variants."""
    lines = headlines(subject)
    return {
        "label": label,
        "verdict": (lines[0].outcome or "no verdict") if lines else "plain",
        "figures": {
            variant: {path: _value(subject, variant, path) for path, _ in _KEY_FIGURES}
            for variant in subject.result.variants
        },
    }


def _value(subject: ReportedResult, variant: str, path: str) -> float | None:
    estimate = subject.result.variants[variant].estimates.get(path)
    return None if estimate is None else estimate.value


def pinned_table(pins: Sequence[Mapping[str, Any]]) -> Any:
    """Pinned answers side by side: plain → speculative."""
    if not pins:
        return None
    heads = [html.Th(text) for text in ("Pinned", "Verdict", *(title for _, title in _KEY_FIGURES))]
    rows = [
        html.Tr(
            [
                html.Td(pin["label"]),
                html.Td(pin["verdict"]),
                *(html.Td(_pair(pin, path)) for path, _ in _KEY_FIGURES),
            ]
        )
        for pin in pins
    ]
    return html.Table([html.Thead(html.Tr(heads)), html.Tbody(rows)], className="pins")


def _pair(pin: Mapping[str, Any], path: str) -> str:
    figures = pin["figures"]
    values = [figures[PLAIN].get(path), *(row.get(path) for name, row in figures.items() if name != PLAIN)]
    return " → ".join("–" if value is None else _shown(path, value) for value in values)


def _shown(path: str, value: float) -> str:
    return format_seconds(value) if metric_of(path).unit == "s" else format_number(value)
