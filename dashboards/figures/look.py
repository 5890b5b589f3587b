"""How every picture looks: one palette, one typeface, units on every axis, nothing that carries no meaning.

Plain decoding is grey everywhere, speculative variants take the palette in their order; the parts of a
step and
of the memory have colours of their own, and what speculation adds (drafting, the drafter) is orange in both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from dashboards.subject import PLAIN
from dashboards.table import Table
from simulator.units import format_seconds

INK, QUIET, RULE, PAPER = "#1b1d20", "#5c6268", "#e4e5e7", "#ffffff"
FONT = "Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"

PLAIN_COLOUR = "#8b9097"
VARIANT_COLOURS = ("#14598f", "#8a4fa3", "#11776b", "#a8602a", "#5b6b1f", "#a33a5a")
LOSES_COLOUR = "#b0472a"
ORANGE = "#d9812e"
PALE_BLUE, DEEP_BLUE = "#7399c2", "#14598f"
"""The two bars of an input."""
MAX_BARS = 16
"""Inputs that a picture of bars shows."""

PARTS: Mapping[str, str] = {
    "verify": "#35618e",
    "attention": "#7399c2",
    "communication": "#b4c8de",
    "draft": ORANGE,
    "sampling": "#c9b458",
    "host": "#a4a7ab",
    "waiting": "#dcdee0",
}
"""Part of a step → colour."""

MEMORY: Mapping[str, str] = {
    "weights": "#35618e",
    "drafter": ORANGE,
    "reserve": "#a4a7ab",
    "states": "#5f8d8a",
    "KV cache": "#7fae94",
    "not used": "#e0e2e4",
}
"""Part of a GPU's memory → colour."""

DIVERGING = (
    (0.0, "#8c2f14"),
    (0.25, "#d08a6c"),
    (0.5, "#f7f6f3"),
    (0.75, "#7fa9cf"),
    (1.0, "#0f4a7a"),
)
"""Slower – equal – faster."""


BARE_TICKS: Mapping[str, Any] = {"showline": False, "ticks": "outside", "ticklen": 6, "tickcolor": PAPER}
"""An axis of names: no line, and room between the names and the bars."""


def variant_colours(names: Iterable[str]) -> dict[str, str]:
    """Arm → colour: plain decoding grey, the others in the palette's order."""
    colours: dict[str, str] = {}
    for name in names:
        colours_used = sum(name_with_colour != PLAIN for name_with_colour in colours)
        colours[name] = (
            PLAIN_COLOUR if name == PLAIN else VARIANT_COLOURS[colours_used % len(VARIANT_COLOURS)]
        )
    return colours


def faded(colour: str, opacity: float) -> str:
    """A colour `#rrggbb` with an opacity, as plotly reads it."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def new_figure(height_px: int, x_title: str, y_title: str, **layout: Any) -> Any:
    """An empty plotly figure in the common look; it takes the width of its place. `layout` adds to it."""
    import plotly.graph_objects as go

    axis = {
        "automargin": True,
        "gridcolor": RULE,
        "linecolor": QUIET,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": QUIET,
        "tickfont": {"size": 12, "color": QUIET},
        "zeroline": False,
        "fixedrange": True,
    }
    figure = go.Figure()
    figure.update_layout(
        template="none",
        autosize=True,
        height=height_px,
        margin={"l": 8, "r": 12, "t": 8, "b": 8},
        paper_bgcolor=PAPER,
        plot_bgcolor=PAPER,
        font={"family": FONT, "size": 13, "color": INK},
        hoverlabel={"font": {"family": FONT, "size": 13}, "bgcolor": PAPER, "bordercolor": RULE},
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "traceorder": "normal",
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": 12.5},
            "itemclick": False,
            "itemdoubleclick": False,
        },
        xaxis=axis | {"showgrid": False},
        yaxis=axis,
    )
    figure.update_xaxes(title={"text": x_title, "font": {"size": 12.5, "color": QUIET}, "standoff": 8})
    figure.update_yaxes(title={"text": y_title, "font": {"size": 12.5, "color": QUIET}, "standoff": 8})
    figure.update_layout(**layout)
    return figure


def mark(text: str, **place: Any) -> dict[str, Any]:
    """An annotation without an arrow, on paper that nearly hides what is under it."""
    return {
        "text": text,
        "showarrow": False,
        "font": {"size": 12, "color": INK},
        "bgcolor": faded(PAPER, 0.85),
        "borderpad": 1,
        **place,
    }


_DIGITS = ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8), tuple(tenth / 10 for tenth in range(10, 100)))
_FEWEST_TICKS, _MOST_TICKS = 3, 8


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high` (positive) for a log scale, ascending; three or more if possible."""
    import math

    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for digits in _DIGITS:
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= _FEWEST_TICKS:
            break
    return ticks[:: -(-len(ticks) // _MOST_TICKS)] if ticks else [low, high]


def clients(count: float) -> str:
    """`1 client`, `64 clients`."""
    return "1 client" if count == 1 else f"{count:,g} clients"


def tick_text(duration_s: float) -> str:
    """`50 ms`: a time without the zeros that a tick does not need."""
    value, _, unit = format_seconds(duration_s).partition(" ")
    return f"{float(value.replace(',', '')):g} {unit}"


def draft_lengths(table: Table, varying: Collection[str]) -> str:
    """`K = 3`, or of which variant it is; variants whose K varies with the batch say so."""
    variants = dict(zip(table["variant"], table["draft_length"], strict=True))
    texts = [
        f"K = {length}{' at most' if variant in varying else ''}" for variant, length in variants.items()
    ]
    if len(set(texts)) == 1:
        return texts[0]
    return ", ".join(f"{text} for {variant}" for text, variant in zip(texts, variants, strict=True))
