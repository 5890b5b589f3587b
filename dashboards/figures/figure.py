"""What a picture of the report is: one file of this folder makes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dashboards.table import Table

FigureData = TypeVar("FigureData")
"""What a picture is of: a `Subject`, or the store of a study."""


@dataclass(frozen=True)
class PageFigure(Generic[FigureData]):
    """A picture. `prepare` computes its table, `draw` turns a table with rows into a plotly figure.

    `finding` is what the table says, a sentence per variant; `caption`, how to read the picture. `by` names a
    column whose values get a picture each, side by side where there is room. A `half` takes half of a page.
    """

    name: str
    title: str
    prepare: Callable[[FigureData], Table]
    draw: Callable[[Table], Any]
    finding: Callable[[Table], list[str]]
    caption: Callable[[Table], str]
    by: str | None = None
    half: bool = False

    def pictures(self, table: Table) -> list[tuple[str, Table]]:
        """(title, table) of every picture: one of the whole table, or one for each value of `by`."""
        if self.by is None:
            return [("", table)]
        return [(str(value), table.where(**{self.by: value})) for value in table.distinct(self.by)]
