"""A table of text, and its Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TextTable:
    """Cells of text under headings; the first `words` columns hold words, the others figures."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1

    def markdown(self) -> str:
        """A Markdown table with figures aligned to the right."""

        def line(cells: Sequence[str]) -> str:
            return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"

        ruler = ["---" if column < self.words else "---:" for column in range(len(self.columns))]
        return "\n".join([line(self.columns), line(ruler), *map(line, self.rows)])
