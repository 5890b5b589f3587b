"""The acceptance that speculation needs over the load and all axes of a study: where it stops paying."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dashboards.figures.figure import PageFigure
from dashboards.figures.heat import add_border, add_cells, axes_of, laid_out, too_many_places
from dashboards.figures.look import DIVERGING, LOSES_COLOUR
from dashboards.figures.settings import place_text, where_text
from dashboards.stored import THRESHOLD, StoredStudy
from dashboards.table import Column, Table, empty
from experiments.maps.study_map import UNREACHABLE_ALPHA, MapCell, StudyMap
from simulator.results.verdict import DOES_NOT_FIT

COLUMNS = (
    Column("picture", "variant and draft length"),
    Column("variant", "speculative variant"),
    Column("draft_length", "drafts a round (K)", "tokens"),
    Column("place", "values of the other axes"),
    Column("load", "load"),
    Column("where", "place and load in words"),
    Column("needed", "acceptance α at which throughput equals that of plain decoding; inf: at none"),
    Column("low", "lower end of its band"),
    Column("high", "upper end of its band"),
    Column("tokens", "mean acceptance length there", "tokens"),
    Column("outcome", "the verdict on the scenario's α"),
)


def prepare(study: StoredStudy) -> Table:
    """One row per variant, draft length, place and load. `facts`: `axes_of`; own, variant → its α."""
    study_map = study.map
    if why := too_many_places(study_map):
        return empty(COLUMNS, why)
    rows = [_row(study_map, cell) for cell in study_map.cells if cell.outcome]
    if not any(row[6] is not None for row in rows):
        return empty(COLUMNS, "No break-evens were measured: the study does not say `measure: breakeven`.")
    facts = {**axes_of(study_map), "own": dict(study.scenario_alpha)}
    order = list(dict.fromkeys(cell.variant for cell in study_map.cells))
    return Table(COLUMNS, tuple(sorted(rows, key=lambda row: (order.index(row[1]), row[2] or 0))), facts)


def _row(study_map: StudyMap, cell: MapCell) -> tuple[Any, ...]:
    tokens = cell.tokens
    return (
        picture_of(cell.variant, cell.draft_length),
        cell.variant,
        cell.draft_length,
        place_text(cell.place),
        cell.load,
        where_text(study_map.axes, cell.place, study_map.load, cell.load),
        cell.required_alpha(),
        cell.required_alpha(0),
        cell.required_alpha(1),
        tokens and tokens.value,
        cell.outcome,
    )


def picture_of(variant: str, draft_length: int | None) -> str:
    """`eagle3, K = 3`."""
    return variant if draft_length is None else f"{variant}, K = {draft_length}"


def finding(table: Table) -> list[str]:
    """How the rule of thumb fares, by variant."""
    return [_finding_of(variant, table.where(variant=variant)) for variant in table.distinct("variant")]


def _finding_of(variant: str, table: Table) -> str:
    rows = [row for row in table.records() if row["needed"] is not None]
    if not rows:
        return f"{variant} has no break-even here."
    finite = [row["needed"] for row in rows if row["needed"] < UNREACHABLE_ALPHA] or [math.nan]
    surely = sum(row["high"] < THRESHOLD for row in rows) / len(rows)
    not_enough = sum(row["low"] > THRESHOLD for row in rows) / len(rows)
    return (
        f"{variant} needs an α of {min(finite):.2f} to {max(finite):.2f}. {THRESHOLD:g} is surely enough in "
        f"{surely:.0%} of the cells, and surely not in {not_enough:.0%}; in the rest the band holds it."
    )


def caption(table: Table) -> str:
    """How to read it."""
    unfit = any(outcome == DOES_NOT_FIT for outcome in table["outcome"])
    return (
        "The figures are the acceptance α at which throughput equals that of plain decoding: more pays. "
        f"Blue needs less than {THRESHOLD:g}, red more. Rows: {table.facts['place'] or 'one'}. The lines run "
        "where speculation stops paying at their α; ‘–’: it gains nothing at any α"
        f"{'; ×: does not fit the memory' if unfit else ''}. Hover for the band with the cost model's error."
    )


def draw(table: Table) -> Any:
    """The map of one variant and draft length."""
    figure, cells = laid_out(table)
    add_cells(
        figure,
        [[_depth(cell) for cell in row] for row in cells],
        [[_text(cell) for cell in row] for row in cells],
        [[_hover(cell) for cell in row] for row in cells],
        DIVERGING,
    )
    needed = [[cell and cell["needed"] for cell in row] for row in cells]
    _add_level(figure, needed, THRESHOLD, f"α {THRESHOLD:g}", color=LOSES_COLOUR, dash="dot")
    scenario_alpha = table.facts["own"].get(table["variant"][0])
    if scenario_alpha is not None:
        _add_level(figure, needed, scenario_alpha, f"α of the scenario, {scenario_alpha:g}")
    return figure


def _add_level(figure: Any, needed: Any, level: float, name: str, **line: Any) -> None:
    sides = [[None if value is None else value > level for value in row] for row in needed]
    add_border(figure, sides, name, **line)


def _depth(cell: Mapping[str, Any] | None) -> float | None:
    """On the colour scale: how far below the threshold, −1 to 1."""
    if cell is None or cell["needed"] is None:
        return None
    return max((THRESHOLD - float(cell["needed"])) / (1 - THRESHOLD), -1.0)


def _text(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    if cell["needed"] is None:
        return "×" if cell["outcome"] == DOES_NOT_FIT else ""
    return "–" if cell["needed"] == UNREACHABLE_ALPHA else f"{cell['needed']:.2f}".removeprefix("0")


def _hover(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    where = cell["where"]
    if cell["needed"] is None:
        return f"{where}: {cell['outcome']}"
    if cell["needed"] == UNREACHABLE_ALPHA:
        return f"{where}: no α is enough"
    tokens = "" if cell["tokens"] is None else f", {cell['tokens']:.2f} tokens a round"
    return f"{where}: α {cell['needed']:.3f} [{cell['low']:.2f}, {cell['high']:.2f}]{tokens}"


FIGURE = PageFigure("needed", "Acceptance needed to pay", prepare, draw, finding, caption, by="picture")
