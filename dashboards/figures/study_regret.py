"""What a wrong draft length costs, over the load, at given acceptances."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from dashboards.figures.figure import PageFigure
from dashboards.figures.heat import add_cells, new_heat_map
from dashboards.figures.look import LOSES_COLOUR, PAPER
from dashboards.figures.settings import setting_text, setting_title, where_text
from dashboards.stored import StoredStudy
from dashboards.table import Column, Table, empty
from experiments.maps.choice import choices
from experiments.maps.study_map import StudyMap

COLUMNS = (
    Column("picture", "variant and acceptance"),
    Column("variant", "speculative variant"),
    Column("alpha", "acceptance α"),
    Column("draft_length", "drafts a round (K); 0 is plain decoding", "tokens"),
    Column("load", "load"),
    Column("regret", "share of the throughput with the best K that this K gives away, mean over places"),
    Column("worst", "the largest of any place"),
    Column("low", "lower end of the band there"),
    Column("high", "upper end of the band there"),
    Column("where", "the place of the largest"),
)

_DEEPEST = 0.5
"""Regrets from here on have the deepest colour."""


def prepare(study: StoredStudy) -> Table:
    """One row per variant, acceptance, draft length and load. `facts`: titles of the load and the places."""
    study_map = study.map
    variants = tuple(
        variant
        for variant in dict.fromkeys(cell.variant for cell in study_map.cells)
        if len({cell.draft_length for cell in study_map.cells if cell.variant == variant}) > 1
    )
    rows = [
        row for variant in variants for alpha in study_map.alphas for row in _rows(study_map, variant, alpha)
    ]
    if not rows:
        problem = "No draft lengths to compare: the study varies none, or kept no `speedup_at.…`."
        return empty(COLUMNS, problem)
    return Table(COLUMNS, tuple(rows), {"load": setting_title(study_map.load)})


def _rows(study_map: StudyMap, variant: str, alpha: float) -> list[tuple[Any, ...]]:
    """The regrets of a variant at an acceptance. It chooses between its draft lengths and plain decoding."""
    all_choices = choices(study_map, alpha, (variant,))
    rows: list[tuple[Any, ...]] = []
    for load in sorted({choice.load for choice in all_choices}):
        choices_at_load = [choice for choice in all_choices if choice.load == load]
        for option in sorted(choices_at_load[0].speedups, key=lambda option: option[1] or 0):
            regrets = [
                (choice.regret(option), choice.place)
                for choice in choices_at_load
                if option in choice.speedups
            ]
            worst, place = max(regrets, key=lambda pair: pair[0].value)
            mean = fmean(regret.value for regret, _ in regrets)
            band = worst.band or (worst.value, worst.value)
            where = where_text(study_map.axes, place, study_map.load, load)
            row = (f"{variant}, α {alpha:g}", variant, alpha, option[1] or 0, load)
            rows.append((*row, mean, worst.value, *band, where))
    return rows


def finding(table: Table) -> list[str]:
    """The draft length that is never far off, by variant and acceptance."""
    return [_finding_of(table.where(picture=picture)) for picture in table.distinct("picture")]


def _finding_of(table: Table) -> str:
    rows = table.records()
    means = {
        length: fmean(row["regret"] for row in rows if row["draft_length"] == length)
        for length in table.distinct("draft_length")
    }
    best = min(means, key=lambda length: means[length])
    worst = max((row for row in rows if row["draft_length"] == best), key=lambda row: float(row["worst"]))
    return (
        f"{table['picture'][0]}: a fixed {_name(best)} gives away {means[best]:.1%} on average, at most "
        f"{worst['worst']:.0%} ({worst['where']})."
    )


def _name(length: int) -> str:
    return f"K = {length}" if length else "plain"


def caption(table: Table) -> str:
    """How to read it."""
    return (
        "Per cent of the throughput with the best of these draft lengths and plain decoding that the K of "
        "the row gives away: the mean over the other axes; hover for the worst."
    )


def draw(table: Table) -> Any:
    """The map of one variant at one acceptance."""
    loads, lengths = sorted(table.distinct("load")), sorted(table.distinct("draft_length"))
    rows_by_position = {(row["draft_length"], row["load"]): row for row in table.records()}
    cells = [[rows_by_position.get((length, load)) for load in loads] for length in lengths]
    names = [_name(length) for length in lengths]
    figure = new_heat_map([setting_text(load) for load in loads], names, table.facts["load"], "")
    add_cells(
        figure,
        [[None if cell is None else _depth(cell["regret"]) for cell in row] for row in cells],
        [["" if cell is None else f"{100 * cell['regret']:.0f}" for cell in row] for row in cells],
        [[_hover(cell) for cell in row] for row in cells],
        ((0.0, PAPER), (1.0, LOSES_COLOUR)),
    )
    return figure


def _depth(regret: float) -> float:
    return min(2 * regret / _DEEPEST - 1, 1.0)


def _hover(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    return (
        f"{_name(cell['draft_length'])}: mean {cell['regret']:.1%}<br>"
        f"worst {cell['worst']:.1%} [{cell['low']:.0%}, {cell['high']:.0%}]: {cell['where']}"
    )


FIGURE = PageFigure(
    "regret", "What a wrong draft length costs", prepare, draw, finding, caption, by="picture"
)
