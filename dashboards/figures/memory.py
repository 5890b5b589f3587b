"""The memory of one GPU under every arm, and what a drafter leaves for KV."""

from __future__ import annotations

from typing import Any

from dashboards.figures.figure import Figure
from dashboards.figures.look import BARE_TICKS, MEMORY, PAPER, new_figure
from dashboards.subject import PLAIN, Subject
from dashboards.table import Column, Table, empty
from simulator.units import GIB, format_bytes

COLUMNS = (
    Column("arm", "arm"),
    Column("part", "what it holds"),
    Column("bytes", "memory of one GPU", "bytes"),
)


def prepare(subject: Subject) -> Table:
    """One row per arm and part. `facts`: kv_tokens and max_concurrency by arm, device_bytes, and notes."""
    from simulator.memory import memory

    if subject.scenario is None:
        return empty(COLUMNS, subject.why or "Without the scenario the memory is not known.")
    report = memory(subject.scenario)
    rows = []
    for arm in report.arms:
        parts = {
            "weights": arm.weights_bytes,
            "drafter": arm.drafter_bytes,
            "reserve": arm.reserve_bytes,
            "states": arm.state_pool_bytes or 0,
            "KV cache": arm.kv_bytes,
        }
        parts["not used"] = max(0, arm.device_bytes - sum(parts.values()))
        rows += [(arm.arm, part, size) for part, size in parts.items() if size > 0]
    facts = {
        "kv_tokens": {arm.arm: arm.kv_tokens for arm in report.arms},
        "max_concurrency": {arm.arm: arm.max_concurrency for arm in report.arms},
        "device_bytes": report.arms[0].device_bytes,
        "notes": report.notes,
    }
    return Table(COLUMNS, tuple(rows), facts)


def finding(table: Table) -> list[str]:
    """What speculation takes from the KV cache."""
    kept, fit = table.facts["kv_tokens"], table.facts["max_concurrency"]
    said = [
        f"With {arm} the KV cache holds {tokens:,} tokens, {1 - tokens / kept[PLAIN]:.1%} fewer: "
        f"{fit[arm]:,} requests of mean length at once in place of {fit[PLAIN]:,}."
        if tokens < kept[PLAIN]
        else f"{arm} takes nothing from the KV cache."
        for arm, tokens in kept.items()
        if arm != PLAIN
    ]
    return said or [f"The KV cache holds {kept[PLAIN]:,} tokens."]


def caption(table: Table) -> str:
    """How to read it."""
    return "One GPU. " + ". ".join(note[0].upper() + note[1:] for note in table.facts["notes"]) + "."


def draw(table: Table) -> Any:
    """One stacked bar per arm, to the memory that the driver reports."""
    import plotly.graph_objects as go

    arms = table.distinct("arm")
    figure = new_figure(120 + 44 * len(arms), "memory of one GPU, GiB", "", barmode="stack", bargap=0.35)
    for part, colour in MEMORY.items():
        rows = table.where(part=part)
        if not rows.rows:
            continue
        figure.add_trace(
            go.Bar(
                y=rows["arm"],
                x=[size / GIB for size in rows["bytes"]],
                name=part,
                orientation="h",
                marker={"color": colour, "line": {"color": PAPER, "width": 0.5}},
                customdata=[format_bytes(size) for size in rows["bytes"]],
                hovertemplate=f"%{{y}}: {part} %{{customdata}}<extra></extra>",
            )
        )
    figure.update_yaxes(categoryorder="array", categoryarray=arms[::-1], showgrid=False, **BARE_TICKS)
    figure.update_xaxes(range=[0, table.facts["device_bytes"] / GIB], showgrid=True)
    return figure


FIGURE = Figure("memory", "Memory of one GPU", prepare, draw, finding, caption, half=True)
