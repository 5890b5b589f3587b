"""Heat maps with figures in their cells: layers of cells, names on both axes, borders between regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.figures.look import INK, new_figure
from dashboards.figures.settings import place_text, place_title, setting_text, setting_title
from dashboards.table import Table
from experiments.maps.study_map import StudyMap

CellRows = Sequence[Sequence[Any]]
"""Rows from below, cells from the left."""

_ROW_PX, _LETTER_PX, _AROUND_PX = 27, 7, 74
_MOST_COLUMNS_WITH_TEXT = 16
_MOST_PLACES = 60


def axes_of(study_map: StudyMap) -> dict[str, Any]:
    """The facts of a table that say how all its pictures are laid out: `loads` from left to right, `places`
    from below, and the titles of both.
    """
    return {
        "loads": sorted({cell.load for cell in study_map.cells}),
        "places": list(dict.fromkeys(place_text(cell.place) for cell in study_map.cells)),
        "load": setting_title(study_map.load),
        "place": place_title(study_map.axes),
    }


def too_many_places(study_map: StudyMap) -> str | None:
    """Why a study has no map: it has more places than a person can read; None where they fit."""
    places = len({cell.place for cell in study_map.cells})
    if places <= _MOST_PLACES:
        return None
    return f"{places:,} combinations of {place_title(study_map.axes)} are too many rows for a map."


def laid_out(table: Table) -> tuple[Any, Sequence[Sequence[Mapping[str, Any] | None]]]:
    """An empty map for a picture of such a table, and its rows by place and load (None: there is none)."""
    facts = table.facts
    rows_by_position = {(row["place"], row["load"]): row for row in table.records()}
    cells = [[rows_by_position.get((place, load)) for load in facts["loads"]] for place in facts["places"]]
    names = [setting_text(load) for load in facts["loads"]]
    return new_heat_map(names, facts["places"], facts["load"], facts["place"]), cells


def new_heat_map(x: Sequence[str], y: Sequence[str], x_title: str, y_title: str) -> Any:
    """An empty map of so many columns and rows; cell (i, j) lies at x = j, y = i."""
    height_px = _AROUND_PX + max(_ROW_PX * len(y), _LETTER_PX * len(y_title))
    figure = new_figure(height_px, x_title, y_title, showlegend=True)
    bare = {"showline": False, "ticks": "", "showgrid": False}
    for names, update in ((x, figure.update_xaxes), (y, figure.update_yaxes)):
        places = list(range(len(names)))
        update(tickvals=places, ticktext=list(names), range=[-0.5, len(names) - 0.5], **bare)
    figure.update_yaxes(ticksuffix=" ")
    return figure


def add_cells(
    figure: Any, depth: CellRows, text: CellRows, hover: CellRows, colours: Sequence[tuple[float, str]]
) -> None:
    """A layer of cells. `depth`, −1 to 1, runs through `colours`; None leaves a cell out."""
    import plotly.graph_objects as go

    columns = len(depth[0]) if depth else 0
    figure.add_trace(
        go.Heatmap(
            z=depth,
            text=text,
            texttemplate="%{text}" if columns <= _MOST_COLUMNS_WITH_TEXT else "",
            textfont={"size": 11},
            customdata=hover,
            hovertemplate="%{customdata}<extra></extra>",
            zmin=-1,
            zmax=1,
            colorscale=[list(stop) for stop in colours],
            showscale=False,
            showlegend=False,
            xgap=1,
            ygap=1,
        )
    )


def add_border(figure: Any, sides: CellRows, name: str, **line: Any) -> None:
    """A line between cells on different sides, named in the legend; cells that are None have none around."""
    import plotly.graph_objects as go

    x, y = border(sides)
    if x:
        line = {"color": INK, "width": 2.5} | line
        figure.add_trace(go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", name=name))


def border(sides: CellRows) -> tuple[list[float | None], list[float | None]]:
    """The edges between adjacent cells that differ, as (x, y) of pieces with None between them."""
    x: list[float | None] = []
    y: list[float | None] = []
    for i, row in enumerate(sides):
        for j, side in enumerate(row):
            if j + 1 < len(row) and _differ(side, row[j + 1]):
                x += [j + 0.5, j + 0.5, None]
                y += [i - 0.5, i + 0.5, None]
            if i + 1 < len(sides) and _differ(side, sides[i + 1][j]):
                x += [j - 0.5, j + 0.5, None]
                y += [i + 0.5, i + 0.5, None]
    return x, y


def _differ(side: object, other_side: object) -> bool:
    return side is not None and other_side is not None and side != other_side
