"""The acceptance that speculation needs, against the clients at work at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from dashboards.figures.figure import PageFigure
from dashboards.figures.look import (
    INK,
    PAPER,
    clients,
    draft_lengths,
    faded,
    mark,
    new_figure,
    variant_colours,
)
from dashboards.subject import ReportedResult, varying_variants
from dashboards.table import Column, Table, empty

COLUMNS = (
    Column("variant", "speculative variant"),
    Column("concurrency", "clients at work at once", "requests"),
    Column("draft_length", "drafts a round (K)", "tokens"),
    Column("simulated", "acceptance α at which the simulated throughput equals that of plain decoding"),
    Column("low", "lower end of the band with the cost model's error"),
    Column("high", "upper end of the band"),
    Column("geometric", "α of independent drafts, from step times alone"),
    Column("linear", "accepted ÷ drafted at this K, from step times alone"),
    Column("scenario", "α of the scenario"),
    Column("verdict", "the scenario's α against the band"),
)

_VERBS = {
    "pays": "pays",
    "loses": "loses",
    "undecided": "is undecided (within the error)",
    "unreachable": "gains nothing at any α",
    "does-not-fit": "does not fit the memory",
    "saturated": "is saturated",
}


def prepare(subject: ReportedResult) -> Table:
    """One row per variant and load. `facts`: own_concurrency, the scenario's load where it is a closed
    loop; the
    variants; those whose K varies.
    """
    rows = [
        _row(variant, row)
        for variant, document in subject.study.break_even.items()
        for row in document["rows"]
    ]
    if not rows:
        return empty(COLUMNS, _why_empty(subject))
    scenario = subject.result.scenario
    facts = {
        "own_concurrency": scenario["workload"]["arrivals"].get("concurrency"),
        "variants": tuple(subject.result.variants),
        "varying": varying_variants(subject),
    }
    return Table(COLUMNS, tuple(rows), facts)


def _row(variant: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    simulated = row["simulated_alpha"]
    band = (simulated or {}).get("band") or (None, None)
    return (
        variant,
        row["concurrency"],
        row["draft_length"],
        simulated and simulated["value"],
        *band,
        row["geometric_alpha"],
        row["linear_acceptance_rate"],
        row["scenario_alpha"],
        row["verdict"],
    )


def _why_empty(subject: ReportedResult) -> str:
    if not subject.speculative:
        return "The scenario has no speculative variant, so there is no break-even."
    return " ".join(subject.study.notes) or subject.scenario_problem or "The break-even was not simulated."


def finding(table: Table) -> list[str]:
    """Where the scenario's acceptance pays, and where it does not."""
    return [_finding_of(table.where(variant=variant)) for variant in table.distinct("variant")]


def _finding_of(table: Table) -> str:
    variant, alpha = table["variant"][0], table["scenario"][0]
    if alpha is None:
        rows = [row for row in table.records() if row["simulated"] is not None]
        if not rows:
            return f"No acceptance makes {variant} pay."
        first, last = rows[0], rows[-1]
        return (
            f"{variant} needs an acceptance of {first['simulated']:.2f} at "
            f"{clients(first['concurrency'])} and "
            f"{last['simulated']:.2f} at {clients(last['concurrency'])}."
        )
    stretches = [f"{_VERBS[verdict]} {loads}" for verdict, loads in _stretches(table)]
    before = f"{', '.join(stretches[:-1])} and " if stretches[1:] else ""
    return f"At an acceptance α of {alpha:.2f}, {variant} {before}{stretches[-1]}."


def _stretches(table: Table) -> Iterator[tuple[str, str]]:
    """Verdict and loads of every run of loads with the same verdict."""
    for verdict, run in groupby(table.records(), key=lambda row: row["verdict"]):
        loads = [row["concurrency"] for row in run]
        yield (
            verdict,
            f"at {clients(loads[0])}" if len(loads) == 1 else f"from {loads[0]:g} to {clients(loads[-1])}",
        )


def caption(table: Table) -> str:
    """How to read it."""
    lengths = draft_lengths(table, table.facts["varying"])
    return (
        f"Closed loop, {lengths}. An acceptance above the line pays. Simulated: with stops, prefill, KV and "
        "batch, on common random numbers; the shade is the error of cost model and sampling. Geometric: "
        "independent drafts, from step times alone. Linear is another scale, the share of drafts accepted at "
        "this K: compare it with no α."
    )


def draw(table: Table) -> Any:
    """Lines of one variant over concurrency (log scale): simulated with its band, and the closed forms."""
    figure = new_figure(360, "clients at work at once", "acceptance α", hovermode="x unified")
    colour = variant_colours(table.facts["variants"])[table["variant"][0]]
    _add_simulated(figure, table, colour)
    for name, title, dash in (
        ("geometric", "geometric", "dash"),
        ("linear", "linear (accepted ÷ drafted)", "dot"),
    ):
        _add_line(figure, table, name, title, {"color": INK, "width": 1.4, "dash": dash})
    _add_scenario(figure, table, colour)
    loads = table["concurrency"]
    figure.update_xaxes(type="log", tickvals=loads, ticktext=[f"{load:,g}" for load in loads])
    figure.update_yaxes(range=[0, 1], dtick=0.2, tickformat=".1f")
    return figure


def _add_simulated(figure: Any, table: Table, colour: str) -> None:
    import plotly.graph_objects as go

    banded = [row for row in table.records() if row["low"] is not None]
    loads = [row["concurrency"] for row in banded]
    band_outline = [row["high"] for row in banded] + [row["low"] for row in reversed(banded)]
    _add_line(figure, table, "simulated", "simulated", {"color": colour, "width": 2.4}, markers=True)
    figure.add_trace(
        go.Scatter(
            x=loads + loads[::-1],
            y=band_outline,
            fill="toself",
            fillcolor=faded(colour, 0.16),
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            name="its error",
        )
    )


def _add_line(
    figure: Any, table: Table, column: str, title: str, line: Mapping[str, Any], markers: bool = False
) -> None:
    import plotly.graph_objects as go

    if all(value is None for value in table[column]):
        return
    figure.add_trace(
        go.Scatter(
            x=table["concurrency"],
            y=table[column],
            name=title,
            line=line,
            mode="lines+markers" if markers else "lines",
            marker={"size": 6},
            hovertemplate="%{y:.2f}",
        )
    )


def _add_scenario(figure: Any, table: Table, colour: str) -> None:
    """The scenario's α: a line across, and a ring at its own load."""
    import math

    import plotly.graph_objects as go

    alpha, own_load, loads = table["scenario"][0], table.facts.get("own_concurrency"), table["concurrency"]
    if alpha is None:
        return
    figure.add_hline(y=alpha, line={"color": colour, "width": 1})
    place = {"y": alpha, "yanchor": "bottom", "yshift": 7}
    if own_load is None:
        figure.add_annotation(
            mark(f"α of the scenario {alpha:.2f}", xref="paper", x=0.01, xanchor="left", **place)
        )
        return
    ring = {"size": 12, "color": PAPER, "line": {"color": colour, "width": 2.5}}
    figure.add_trace(
        go.Scatter(x=[own_load], y=[alpha], mode="markers", showlegend=False, hoverinfo="skip", marker=ring)
    )
    right = own_load > math.sqrt(loads[0] * loads[-1])
    place |= {
        "x": math.log10(own_load),
        "xanchor": "right" if right else "left",
        "xshift": 6 if right else -6,
    }
    figure.add_annotation(mark(f"yours: {clients(own_load)}, α {alpha:.2f}", **place))


FIGURE = PageFigure("break-even", "Acceptance needed to pay", prepare, draw, finding, caption, by="variant")
