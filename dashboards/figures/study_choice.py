"""The best method and draft length over the load and all other axes of a study, at given acceptances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboards.figures.figure import PageFigure
from dashboards.figures.heat import add_cells, axes_of, laid_out, too_many_places
from dashboards.figures.look import PAPER, PLAIN_COLOUR, variant_colours
from dashboards.figures.settings import place_text, where_text
from dashboards.stored import StoredStudy
from dashboards.table import Column, Table, empty
from experiments.maps.choice import PLAIN, Choice, choices
from experiments.maps.study_map import StudyMap
from simulator.results.verdict import PAYS, judge_speedup

COLUMNS = (
    Column("picture", "the acceptance, in words"),
    Column("alpha", "acceptance α, the same for all methods"),
    Column("place", "values of the other axes"),
    Column("load", "load"),
    Column("where", "place and load in words"),
    Column("variant", "the method with the largest throughput"),
    Column("draft_length", "its drafts a round (K)", "tokens"),
    Column("speedup", "its throughput ÷ that of plain decoding"),
    Column("low", "lower end of its band"),
    Column("high", "upper end of its band"),
    Column("sure", "whether the whole band says that it pays, or plain decoding is best"),
    Column("as_good", "all that give away less than 2 % of the best"),
)

AS_GOOD = 0.02
"""Choices that give away less than this are called as good as the best."""


def prepare(study: StoredStudy) -> Table:
    """One row per acceptance, place and load. `facts`: `axes_of`; the variants."""
    study_map = study.map
    if why := too_many_places(study_map):
        return empty(COLUMNS, why)
    rows = [
        _row(study_map, alpha, choice) for alpha in study_map.alphas for choice in choices(study_map, alpha)
    ]
    if not rows:
        return empty(COLUMNS, "No speedups at given acceptances were kept: `keep: [speedup_at.0.7, …]`.")
    variants = tuple(dict.fromkeys(cell.variant for cell in study_map.cells))
    return Table(COLUMNS, tuple(rows), {**axes_of(study_map), "variants": variants})


def _row(study_map: StudyMap, alpha: float, choice: Choice) -> tuple[Any, ...]:
    variant, draft_length = choice.best
    speedup = choice.speedups[choice.best]
    low, high = speedup.band or (speedup.value, speedup.value)
    sure = choice.best == PLAIN or judge_speedup(speedup) == PAYS
    options_as_good = ", ".join(map(option_text, choice.as_good(AS_GOOD)))
    place_and_load = where_text(study_map.axes, choice.place, study_map.load, choice.load)
    place = (f"α {alpha:g}", alpha, place_text(choice.place), choice.load, place_and_load)
    return (*place, variant, draft_length, speedup.value, low, high, sure, options_as_good)


def option_text(option: tuple[str, int | None]) -> str:
    """`eagle3 K = 3`, `plain`."""
    variant, draft_length = option
    return variant if not draft_length else f"{variant} K = {draft_length}"


def finding(table: Table) -> list[str]:
    """What is best how often, by acceptance."""
    return [_finding_of(table.where(picture=picture)) for picture in table.distinct("picture")]


def _finding_of(table: Table) -> str:
    rows = table.records()
    variants = [row["variant"] for row in rows]
    shares = sorted(
        ((variants.count(variant) / len(variants), variant) for variant in dict.fromkeys(variants)),
        reverse=True,
    )
    shares_text = ", ".join(f"{variant} in {share:.0%}" for share, variant in shares)
    best_row = max(rows, key=lambda row: float(row["speedup"]))
    unsure = sum(not row["sure"] for row in rows) / len(rows)
    return (
        f"{table['picture'][0]}: best is {shares_text} of the cells, at most × {best_row['speedup']:.2f}; "
        f"in {unsure:.0%} the gain is within the error of the cost model."
    )


def caption(table: Table) -> str:
    """How to read it."""
    return (
        "The colour is the method, deeper the more it gains, and the figure its best draft length K; grey: "
        "plain decoding; ‘?’: the gain is within the error of the cost model. "
        f"Rows: {table.facts['place'] or 'one'}. All methods have the same acceptance α here: where one "
        "drafter guesses better than another, compare across pictures. Hover for what is as good."
    )


def draw(table: Table) -> Any:
    """The map at one acceptance: a layer of cells for each method."""
    figure, cells = laid_out(table)
    colours = {**variant_colours(table.facts["variants"]), PLAIN[0]: PLAIN_COLOUR}
    for variant, colour in colours.items():
        cells_of_variant = [
            [cell if cell is not None and cell["variant"] == variant else None for cell in row]
            for row in cells
        ]
        if any(cell is not None for row in cells_of_variant for cell in row):
            add_cells(
                figure,
                [[_depth(cell) for cell in row] for row in cells_of_variant],
                [[_text(cell) for cell in row] for row in cells_of_variant],
                [[_hover(cell) for cell in row] for row in cells_of_variant],
                ((0.0, PAPER), (1.0, colour)),
            )
            _add_legend_entry(figure, variant, colour)
    return figure


def _add_legend_entry(figure: Any, variant: str, colour: str) -> None:
    """An entry of the legend for a layer of cells."""
    import plotly.graph_objects as go

    figure.add_trace(go.Bar(x=[None], y=[None], marker={"color": colour}, name=variant, hoverinfo="skip"))


def _depth(cell: Mapping[str, Any] | None) -> float | None:
    """On the colour scale from paper to colour: × 1 has a fifth of it, × 3 all."""
    if cell is None:
        return None
    if cell["variant"] == PLAIN[0]:
        return -0.4
    return min(-0.6 + 0.8 * (float(cell["speedup"]) - 1), 1.0)


def _text(cell: Mapping[str, Any] | None) -> str:
    if cell is None or cell["variant"] == PLAIN[0]:
        return ""
    return f"{cell['draft_length'] or ''}{'' if cell['sure'] else '?'}"


def _hover(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    best = option_text((cell["variant"], cell["draft_length"]))
    return (
        f"{cell['where']}: {best}, × {cell['speedup']:.2f} ["
        f"{cell['low']:.2f}, {cell['high']:.2f}]<br>within {AS_GOOD:.0%}: {cell['as_good']}"
    )


FIGURE = PageFigure("choice", "Best method and draft length", prepare, draw, finding, caption, by="picture")
