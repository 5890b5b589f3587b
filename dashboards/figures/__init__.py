"""The pictures of the report, one file each: `prepare` computes a table, `draw` shows it.

A new picture is a file with a `FIGURE` and a line in `FIGURES`, or in `STUDY_FIGURES` when it is of a study.
"""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.figures import (
    acceptance,
    break_even,
    memory,
    speedup_map,
    step_time,
    study_choice,
    study_needed,
    study_regret,
    study_speedup,
    tails,
)
from dashboards.figures.figure import PageFigure
from dashboards.stored import StoredStudy
from dashboards.subject import ReportedResult

FIGURES: Mapping[str, PageFigure[ReportedResult]] = {
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
"""Name → picture of a result, in the order of the page."""

STUDY_FIGURES: Mapping[str, PageFigure[StoredStudy]] = {
    figure.name: figure
    for figure in (study_needed.FIGURE, study_choice.FIGURE, study_regret.FIGURE, study_speedup.FIGURE)
}
"""Name → picture of a study, in the order of the page."""

__all__ = ["FIGURES", "STUDY_FIGURES", "PageFigure"]
