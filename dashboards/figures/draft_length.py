"""Tokens per round and speedup over the draft length, by the closed form, with the best length marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dashboards.figures.figure import PageFigure
from dashboards.figures.look import INK, QUIET, VARIANT_COLOURS, new_figure
from dashboards.table import Column, Table
from simulator.breakeven.theory import best_draft_length, leviathan_gain, tokens_per_verify

COLUMNS = (
    Column("curve", "tokens per round, or the speedup at a draft cost"),
    Column("alpha", "acceptance of each draft, given that all earlier drafts were accepted"),
    Column("draft_length", "drafts per round"),
    Column("value", "tokens per round, or speedup"),
    Column("best", "whether no other draft length has a larger speedup"),
)
TOKENS = "tokens per round"


class ClosedForm(NamedTuple):
    """What to draw: acceptances, draft costs as shares of a plain step, the longest draft length."""

    alphas: Sequence[float] = (0.5, 0.7, 0.9)
    cost_ratios: Sequence[float] = (0.05, 0.15, 0.375)
    longest: int = 20


def prepare(form: ClosedForm) -> Table:
    """One row per curve, acceptance and draft length (arXiv 2211.17192, equation 1 and theorem 3.8)."""
    rows: list[tuple[Any, ...]] = []
    for alpha in form.alphas:
        for length in range(form.longest + 1):
            rows.append((TOKENS, alpha, length, tokens_per_verify(alpha, length), False))
    for cost in form.cost_ratios:
        for alpha in form.alphas:
            best = best_draft_length(alpha, cost, form.longest)
            for length in range(form.longest + 1):
                gain = leviathan_gain(alpha, cost, length)
                rows.append((speedup_title(cost), alpha, length, gain, length == best))
    return Table(COLUMNS, tuple(rows))


def speedup_title(cost_ratio: float) -> str:
    """The title of the curves at a draft cost."""
    return f"speedup, one more draft = {cost_ratio:g} of a plain step"


def draw(table: Table) -> Any:
    """One panel: a line per acceptance, with the best length as a point."""
    title = table["curve"][0]
    is_tokens = title == TOKENS
    figure = new_figure(300, "draft length K", "tokens per round" if is_tokens else "speedup")
    for alpha, colour in zip(table.distinct("alpha"), VARIANT_COLOURS, strict=False):
        rows = table.where(alpha=alpha)
        figure.add_scatter(
            x=rows["draft_length"],
            y=rows["value"],
            name=f"α = {alpha:g}",
            mode="lines",
            line={"color": colour, "width": 1.8},
        )
        for length, value in zip(
            rows.where(best=True)["draft_length"], rows.where(best=True)["value"], strict=True
        ):
            figure.add_scatter(
                x=[length],
                y=[value],
                mode="markers+text",
                marker={"color": colour, "size": 9, "line": {"color": INK, "width": 1}},
                text=[f"K = {length}, {value:.2f}×"],
                textposition="top right",
                showlegend=False,
            )
    figure.update_yaxes(range=[0, 1.15 * max(table["value"])])
    if not is_tokens:
        figure.add_hline(y=1, line={"color": QUIET, "width": 1, "dash": "dot"})
    return figure


def finding(table: Table) -> list[str]:
    """The range of best lengths over what is drawn."""
    best = table.where(best=True)["draft_length"]
    return [f"The best draft length is {min(best)} to {max(best)}, by acceptance and by the cost of a draft."]


FIGURE: PageFigure[ClosedForm] = PageFigure(
    name="draft-length",
    title="Which draft length is best",
    prepare=prepare,
    draw=draw,
    finding=finding,
    caption=lambda _: (
        "Points mark the draft length with the largest speedup. A draft costs its drafter pass and its row "
        "in the verify pass."
    ),
    by="curve",
    half=True,
)
