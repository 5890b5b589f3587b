"""The table between a result and a picture: what `prepare` computes, `draw` shows and tests check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple


class Column(NamedTuple):
    """A column; `unit` as in the names of the code: s, bytes, tokens/s, or empty for a plain number."""

    name: str
    meaning: str
    unit: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under named columns; `facts` are single figures of the same picture (a limit, the scenario's).

    A table without rows says in `missing` why there is nothing to see.
    Raises ValueError for a row of another length than the columns.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    missing: str | None = None

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells under {len(self.columns)} columns: {row}")
        if not self.rows and self.missing is None:
            raise ValueError("an empty table must say why it is empty")

    def __getitem__(self, name: str) -> list[Any]:
        """A column's cells."""
        at = self._at(name)
        return [row[at] for row in self.rows]

    def where(self, **values: Any) -> Table:
        """The rows with these values, in order."""
        tests = [(self._at(name), value) for name, value in values.items()]
        rows = tuple(row for row in self.rows if all(row[at] == value for at, value in tests))
        return replace(self, rows=rows, missing=self.missing or f"no rows with {values}")

    def distinct(self, name: str) -> list[Any]:
        """A column's different values, in order of appearance."""
        return list(dict.fromkeys(self[name]))

    def records(self) -> list[dict[str, Any]]:
        """Every row as a mapping."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def _at(self, name: str) -> int:
        return [column.name for column in self.columns].index(name)


def empty(columns: tuple[Column, ...], why: str) -> Table:
    """A table without rows."""
    return Table(columns, (), {}, why)
