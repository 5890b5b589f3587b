"""The memory of one GPU under every variant, and what a drafter leaves for KV."""

from __future__ import annotations

from typing import Any

from dashboards.figures.figure import PageFigure
from dashboards.figures.look import BARE_TICKS, MEMORY, PAPER, new_figure
from dashboards.subject import PLAIN, ReportedResult
from dashboards.table import Column, Table, empty
from simulator.units import GIB, format_bytes

COLUMNS = (
    Column("variant", "variant"),
    Column("part", "what it holds"),
    Column("bytes", "memory of one GPU", "bytes"),
)


def prepare(subject: ReportedResult) -> Table:
    """One row per variant and part. `facts`: kv_tokens and max_concurrency by variant, device_bytes,
    and notes.
    """
    from simulator.memory.report import memory

    if subject.scenario is None:
        return empty(COLUMNS, subject.scenario_problem or "Without the scenario the memory is not known.")
    report = memory(subject.scenario)
    rows = []
    for variant in report.variants:
        parts = {
            "weights": variant.weights_bytes,
            "drafter": variant.drafter_bytes,
            "reserve": variant.reserve_bytes,
            "states": variant.state_pool_bytes or 0,
            "KV cache": variant.kv_bytes,
        }
        parts["not used"] = max(0, variant.device_bytes - sum(parts.values()))
        rows += [(variant.variant, part, size) for part, size in parts.items() if size > 0]
    facts = {
        "kv_tokens": {variant.variant: variant.kv_tokens for variant in report.variants},
        "max_concurrency": {variant.variant: variant.max_concurrency for variant in report.variants},
        "device_bytes": report.variants[0].device_bytes,
        "notes": report.notes,
    }
    return Table(COLUMNS, tuple(rows), facts)


def finding(table: Table) -> list[str]:
    """What speculation takes from the KV cache."""
    kv_tokens, max_concurrency = table.facts["kv_tokens"], table.facts["max_concurrency"]
    sentences = [
        f"With {variant} the KV cache holds {tokens:,} tokens, {1 - tokens / kv_tokens[PLAIN]:.1%} fewer: "
        f"{max_concurrency[variant]:,} requests of mean length at once instead of {max_concurrency[PLAIN]:,}."
        if tokens < kv_tokens[PLAIN]
        else f"{variant} takes nothing from the KV cache."
        for variant, tokens in kv_tokens.items()
        if variant != PLAIN
    ]
    return sentences or [f"The KV cache holds {kv_tokens[PLAIN]:,} tokens."]


def caption(table: Table) -> str:
    """How to read it."""
    return "One GPU. " + ". ".join(note[0].upper() + note[1:] for note in table.facts["notes"]) + "."


def draw(table: Table) -> Any:
    """One stacked bar per variant, to the memory that the driver reports."""
    import plotly.graph_objects as go

    variants = table.distinct("variant")
    figure = new_figure(120 + 44 * len(variants), "memory of one GPU, GiB", "", barmode="stack", bargap=0.35)
    for part, colour in MEMORY.items():
        rows = table.where(part=part)
        if not rows.rows:
            continue
        figure.add_trace(
            go.Bar(
                y=rows["variant"],
                x=[size / GIB for size in rows["bytes"]],
                name=part,
                orientation="h",
                marker={"color": colour, "line": {"color": PAPER, "width": 0.5}},
                customdata=[format_bytes(size) for size in rows["bytes"]],
                hovertemplate=f"%{{y}}: {part} %{{customdata}}<extra></extra>",
            )
        )
    figure.update_yaxes(categoryorder="array", categoryarray=variants[::-1], showgrid=False, **BARE_TICKS)
    figure.update_xaxes(range=[0, table.facts["device_bytes"] / GIB], showgrid=True)
    return figure


FIGURE = PageFigure("memory", "Memory of one GPU", prepare, draw, finding, caption, half=True)
