"""The pictures of the report, one file each: `prepare` computes a table, `draw` shows it.

A new picture is a file with a `FIGURE` and a line in `FIGURES`.
"""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.figures import acceptance, break_even, memory, speedup_map, step_time, tails
from dashboards.figures.figure import Figure

FIGURES: Mapping[str, Figure] = {
    figure.name: figure
    for figure in (
        break_even.FIGURE,
        tails.FIGURE,
        speedup_map.FIGURE,
        step_time.FIGURE,
        acceptance.FIGURE,
        memory.FIGURE,
    )
}
"""Name → picture, in the order of the page."""

__all__ = ["FIGURES", "Figure"]
