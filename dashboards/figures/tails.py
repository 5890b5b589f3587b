"""The distributions of TTFT, TPOT and both ITLs of all variants, to their tails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dashboards.figures.figure import PageFigure
from dashboards.figures.look import LOSES_COLOUR, log_ticks, mark, new_figure, tick_text, variant_colours
from dashboards.stragglers import stragglers
from dashboards.subject import PLAIN, ReportedResult
from dashboards.table import Column, Table, empty
from simulator.numerics.arrays import Floats, Ints
from simulator.results.catalogue import CATALOGUE
from simulator.results.measure import gap_histogram, per_request
from simulator.results.metric import Kind, Metric
from simulator.results.metrics import SAMPLES_BEYOND
from simulator.units import NS_PER_S, format_seconds

if TYPE_CHECKING:
    from simulator.results.record import RunRecord

COLUMNS = (
    Column("metric", "which time"),
    Column("variant", "variant"),
    Column("slower", "share of the samples that took longer"),
    Column("time", "time not exceeded by the others", "s"),
)


METRICS = tuple(metric for metric in CATALOGUE.values() if metric.is_drawn)


def title(metric: Metric) -> str:
    """`TTFT: first emission − arrival`."""
    return f"{metric.title}: {metric.definition}"


TICKS = ((1.0, "0"), (0.5, "P50"), (0.1, "P90"), (0.01, "P99"), (0.001, "P99.9"), (0.0001, "P99.99"))
"""Ticks of the axis: share of slower samples, and its name."""

_SHARES = np.unique([0.999, 0.5, 0.1, 0.05, 0.01, 0.001, *np.geomspace(0.98, 1e-4, 100)])[::-1]
"""Where the curves have points: those of the reported percentiles among them."""


def prepare(subject: ReportedResult) -> Table:
    """Points of every curve: the replications pooled, no further than ten samples reach.

    A variant above its capacity has no curve: its times grow with the length of the run. `facts`:
    limits of the
    SLO by title; saturated variants; variants whose stragglers go without drafts; means by path and variant.
    """
    result = subject.result
    slo = result.scenario.get("slo") or {}
    saturated = tuple(name for name, variant in result.variants.items() if variant.saturated)
    facts = {
        "limits": {
            title(metric): limit_s
            for metric in METRICS
            for word in metric.limits
            if (limit_s := slo.get(f"{word}_p99_s")) is not None
        },
        "saturated": saturated,
        "stragglers": [variant for variant in subject.speculative if _has_stragglers(subject, variant)],
        "means": {
            (metric.name, name): estimate.value
            for metric in METRICS
            for name, variant in result.variants.items()
            if (estimate := variant.estimates.get(f"{metric.name}.mean")) is not None
        },
    }
    rows = [
        (title(metric), name, slower, time_s)
        for metric in METRICS
        for name, records in result.records.items()
        if name in result.variants and name not in saturated
        for slower, time_s in _curve(metric, records)
    ]
    if rows:
        return Table(COLUMNS, tuple(rows), facts)
    if saturated:
        return empty(
            COLUMNS,
            "The load is above capacity: waiting grows with the run, so there are no percentiles.",
        )
    return empty(
        COLUMNS, "The result has no files of its requests (requests-VARIANT.npz), so there are no curves."
    )


def _has_stragglers(subject: ReportedResult, variant: str) -> bool:
    straggler_shares = stragglers(subject, variant)
    return straggler_shares is not None and straggler_shares.explain_the_tail


def _curve(metric: Metric, records: Sequence[RunRecord]) -> list[tuple[float, float]]:
    """(share slower, s) along the distribution."""
    if metric.kind is Kind.GAP_LATENCY:
        counts = sum(gap_histogram(record, metric.name).sum(axis=0) for record in records)
        return _of_histogram(np.asarray(counts), records[0].itl_edges_ns / NS_PER_S)
    measured = [
        per_request(record, metric.name)[record.first_measured : record.end_measured] for record in records
    ]
    samples = np.concatenate(measured)
    return _of_samples(samples[~np.isnan(samples)])


def _defined_shares(count: int) -> Floats:
    """The shares of `_SHARES` beyond which enough of so many samples lie."""
    shares: Floats = _SHARES[_SHARES * count >= SAMPLES_BEYOND]
    return shares


def _of_samples(samples: Floats) -> list[tuple[float, float]]:
    shares = _defined_shares(len(samples))
    if not len(shares):
        return []
    times = np.quantile(samples, 1 - shares)
    return list(zip(shares.tolist(), times.tolist(), strict=True))


def _of_histogram(counts: Ints, edges_s: Floats) -> list[tuple[float, float]]:
    """As `_of_samples`; within a bin samples are spread evenly."""
    total = int(counts.sum())
    shares = _defined_shares(total)
    if not len(shares):
        return []
    below = np.cumsum(counts)
    rank = (1 - shares) * total
    cell = np.searchsorted(below, rank, side="left")
    within = (rank - (below[cell] - counts[cell])) / counts[cell]
    times = edges_s[cell] + (edges_s[cell + 1] - edges_s[cell]) * within
    return list(zip(shares.tolist(), times.tolist(), strict=True))


def finding(table: Table) -> list[str]:
    """The effect of speculation on the mean TPOT and the mean gap between emissions, per variant."""
    variants = [variant for variant in table.distinct("variant") if variant != PLAIN]
    means = table.facts["means"]
    sentences = []
    for variant in variants:
        before, after = (
            [means.get((path, name)) for path in ("tpot_s", "itl_s")] for name in (PLAIN, variant)
        )
        if None in (*before, *after):
            continue
        moves = [_move(was, becomes) for was, becomes in zip(before, after, strict=True)]
        sentences.append(
            f"{variant}: the mean time per output token {moves[0]}, and the mean gap between emissions "
            f"{moves[1]}, since an emission brings several tokens."
        )
    return sentences


def _move(was: float, becomes: float) -> str:
    word = "rises" if becomes > was else "falls"
    return f"{word} from {format_seconds(was)} to {format_seconds(becomes)}"


def caption(table: Table) -> str:
    """How to read it."""
    text = (
        "To the right lie the slow ones: at P99 one in a hundred took longer. Replications pooled; curves "
        "end where fewer than ten samples lie beyond. Two definitions of ITL: the gap between emissions, as "
        "clients and vLLM's server report it, and the gap ÷ its tokens, as SGLang's server does."
    )
    if table.facts["stragglers"]:
        text += (
            f" Where TPOT turns up for {', '.join(table.facts['stragglers'])}, requests go on without drafts."
        )
    saturated = table.facts["saturated"]
    return f"{text} Above capacity, so without a curve: {', '.join(saturated)}." if saturated else text


def draw(table: Table) -> Any:
    """One line per variant: time over the share of slower samples, both on log scales, the slow to the
    right.
    """
    import plotly.graph_objects as go

    heading = table["metric"][0]
    samples = next(metric.samples for metric in METRICS if title(metric) == heading)
    figure = new_figure(300, f"percentile of {samples}", "time (log scale)")
    figure.update_layout(margin={"r": 26})
    colours = variant_colours(
        [PLAIN, *(variant for variant in table.distinct("variant") if variant != PLAIN)]
    )
    for variant in table.distinct("variant"):
        rows = table.where(variant=variant)
        times = rows["time"]
        figure.add_trace(
            go.Scatter(
                x=rows["slower"],
                y=times,
                name=variant,
                mode="lines",
                line={"color": colours[variant], "width": 2.2},
                customdata=[
                    [f"{1 - slower:.2%}", format_seconds(time)]
                    for slower, time in zip(rows["slower"], times, strict=True)
                ],
                hovertemplate="%{customdata[0]} within %{customdata[1]}",
            )
        )
    _add_axes(figure, table)
    limit = table.facts["limits"].get(heading)
    if limit is not None:
        _add_limit(figure, limit)
    return figure


def _add_axes(figure: Any, table: Table) -> None:
    ends = max(table["slower"]), min(table["slower"])
    ticks_shown = [(share, name) for share, name in TICKS if share >= ends[1] * 0.99]
    figure.update_xaxes(
        type="log",
        range=[0, math.log10(ends[1]) - 0.05],
        tickvals=[share for share, _ in ticks_shown],
        ticktext=[name for _, name in ticks_shown],
        showgrid=True,
    )
    limits = [limit for name, limit in table.facts["limits"].items() if name in table["metric"]]
    times = [*table["time"], *limits]
    low, high = min(times) / 1.1, max(times) * 1.15
    ticks = log_ticks(low, high)
    figure.update_yaxes(
        type="log",
        range=[math.log10(low), math.log10(high)],
        tickvals=ticks,
        ticktext=[tick_text(tick) for tick in ticks],
    )


def _add_limit(figure: Any, limit_s: float) -> None:
    """The limit of the SLO: at P99 the curve should lie below it."""
    import plotly.graph_objects as go

    line = {"color": LOSES_COLOUR, "width": 1.5, "dash": "dot"}
    figure.add_shape(type="line", x0=1, x1=0.01, y0=limit_s, y1=limit_s, line=line)
    mark_at = {"symbol": "diamond", "size": 9, "color": LOSES_COLOUR}
    limit = go.Scatter(
        x=[0.01], y=[limit_s], mode="markers", marker=mark_at, showlegend=False, hoverinfo="skip"
    )
    figure.add_trace(limit)
    place = {"x": -2, "xanchor": "left", "xshift": 8, "y": math.log10(limit_s), "yanchor": "middle"}
    colour = {"size": 12, "color": LOSES_COLOUR}
    figure.add_annotation(mark(f"SLO {tick_text(limit_s)}", **place, font=colour))


FIGURE = PageFigure("tails", "Latency distributions", prepare, draw, finding, caption, by="metric")
