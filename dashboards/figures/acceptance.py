"""How many drafts survive, by position in the draft."""

from __future__ import annotations

from typing import Any

from dashboards.figures.figure import PageFigure
from dashboards.figures.look import new_figure, variant_colours
from dashboards.subject import PLAIN, ReportedResult
from dashboards.table import Column, Table, empty
from simulator.results.catalogue import CATALOGUE

COLUMNS = (
    Column("variant", "speculative variant"),
    Column("position", "position in the draft"),
    Column(
        "conditional",
        "share of the drafts accepted here, of those whose predecessors all were: the α of the theory",
    ),
    Column("reached", "share of the rounds with a draft that accepted at least so many"),
)


def prepare(subject: ReportedResult) -> Table:
    """One row per variant and position. `facts`: metrics of a single number → variant → value."""
    rows = []
    for name in subject.speculative:
        values = subject.result.variants[name].values()
        position = 1
        while f"acceptance_rate_at.{position}" in values:
            conditional = values.get(f"conditional_acceptance.{position}")
            rows.append((name, position, conditional, values[f"acceptance_rate_at.{position}"]))
            position += 1
    if not rows:
        return empty(COLUMNS, "No drafts were verified, so there is no acceptance.")
    facts = {
        metric.name: {
            variant: subject.result.variants[variant].values().get(metric.name)
            for variant in subject.speculative
        }
        for metric in CATALOGUE.values()
        if metric.paths == (metric.name,)
    }
    return Table(COLUMNS, tuple(rows), facts)


def finding(table: Table) -> list[str]:
    """Tokens per verify, and what stops leave of them."""
    sentences = []
    for variant in table.distinct("variant"):
        length, tokens = (
            table.facts["mean_acceptance_length"][variant],
            table.facts["tokens_per_round"][variant],
        )
        if length is not None and tokens is not None:
            sentences.append(
                f"{variant} yields {length:.2f} tokens per verify, and {tokens:.2f} reach the client."
            )
    return sentences


def caption(table: Table) -> str:
    """How to read it."""
    coverage = [
        f"{variant} drafted in {share:.1%} of its rounds"
        for variant, share in table.facts["draft_coverage"].items()
        if share is not None
    ]
    return (
        "Solid: accepted, given that all drafts before were. Dotted: accepted so far into the draft. Tokens "
        "per verify count the one that the target adds; some are lost where an answer stops, and in rounds "
        f"without a draft. {'; '.join(coverage)}."
    )


def draw(table: Table) -> Any:
    """Two lines per variant over the position."""
    import plotly.graph_objects as go

    figure = new_figure(300, "position in the draft", "share of drafts accepted")
    variants = table.distinct("variant")
    colours = variant_colours([PLAIN, *variants])
    for variant in variants:
        rows = table.where(variant=variant)
        for column, title, dash in (("conditional", "if reached (α)", "solid"), ("reached", "so far", "dot")):
            figure.add_trace(
                go.Scatter(
                    x=rows["position"],
                    y=rows[column],
                    name=title if len(variants) == 1 else f"{variant}, {title}",
                    mode="lines+markers",
                    line={"color": colours[variant], "width": 2.2, "dash": dash},
                    marker={"size": 7},
                    hovertemplate="position %{x}: %{y:.3f}",
                )
            )
    figure.update_xaxes(dtick=1, range=[0.6, max(table["position"]) + 0.4])
    figure.update_yaxes(range=[0, 1.02], dtick=0.2, tickformat=".0%")
    return figure


FIGURE = PageFigure("acceptance", "Drafts accepted", prepare, draw, finding, caption, half=True)
