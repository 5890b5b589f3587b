"""Cells as a table on a terminal: varying settings, then metrics, the most informative first, as far as they
fit.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.commands.output import NOTHING, estimate_text
from experiments.conditions import short_names
from experiments.store.columns import CELL, CI95, METRIC, SETTING, StoreColumn, variant_and_path

if TYPE_CHECKING:
    from experiments.store.reader import StoreReader

MAX_ROWS = 40
_LONGEST_TEXT = 28
_GAP = 3
"""Spaces between columns."""
_LONG_METRICS = ("reason", "break_even_note")
"""Metrics too long for a table; `--columns` shows them."""


class CellTable(NamedTuple):
    """Texts of a table; `left_out` names the metrics that the terminal is too narrow for."""

    headings: list[str]
    rows: list[list[str]]
    left_out: list[str]


def cell_table(
    cells: StoreReader, where: str | None, columns: Sequence[StoreColumn], width: int
) -> CellTable:
    """The first cells that hold `where`, with all of these columns that say something and fit the width."""
    names_in_store = {column.name for column in cells.columns()}
    interval_columns = [f"{column.name}.{end}" for column in columns for end in CI95]
    names = list(
        dict.fromkeys(
            [column.name for column in columns] + [end for end in interval_columns if end in names_in_store]
        )
    )
    rows = [dict(zip(names, row, strict=True)) for row in islice(cells.values(where, names), MAX_ROWS)]
    short_by_name = {full: name for name, full in short_names(names_in_store).items()}
    headings: list[str] = []
    texts: list[list[str]] = []
    left_out: list[str] = []
    width_left = width
    for column in columns:
        name = short_by_name.get(column.name, column.name)
        cell_texts = [_text(row, column) for row in rows]
        if all(text == NOTHING for text in cell_texts):
            continue
        heading, column_width = _heading(name, max(map(len, cell_texts)))
        if headings and column_width + _GAP > width_left:
            left_out.append(name)
            continue
        headings.append(heading)
        texts.append(cell_texts)
        width_left -= column_width + _GAP
    return CellTable(headings, [list(row) for row in zip(*texts, strict=True)], left_out)


def informative_columns(
    columns: Sequence[StoreColumn], without: Container[str], all_done: bool
) -> list[StoreColumn]:
    """Of all columns those for people: settings but some, the status where it varies, metrics."""

    def is_informative(column: StoreColumn) -> bool:
        if column.role == METRIC:
            return not column.is_interval and variant_and_path(column.name)[1] not in _LONG_METRICS
        if column.role == CELL:
            return column.name == "status" and not all_done
        return column.name not in without

    return sorted(
        filter(is_informative, columns), key=lambda column: (SETTING, CELL, METRIC).index(column.role)
    )


def _heading(name: str, width: int) -> tuple[str, int]:
    """The heading of a column so wide, on a line for each part of the name if that is narrower; its width."""
    parts = [name] if len(name) <= width else name.replace(".", ".\n").split("\n")
    return "\n".join(parts), max(width, *map(len, parts))


def setting_text(value: Any) -> str:
    """A setting as it could stand in a condition, unless it is long."""
    text = NOTHING if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def _text(row: Mapping[str, Any], column: StoreColumn) -> str:
    value = row[column.name]
    if column.role != METRIC or not isinstance(value, int | float):
        return setting_text(value)
    ends = [row.get(f"{column.name}.{end}") for end in CI95]
    return estimate_text({"value": value, "ci95": None if None in ends else ends})
