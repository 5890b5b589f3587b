"""Makes docs/draft-length.png of docs/questions.md: `.venv/bin/python docs/draft_length.py`."""

from __future__ import annotations

from pathlib import Path

from page_picture import write_picture

from dashboards.figures import draft_length
from dashboards.markup import tag
from dashboards.page import Drawings
from dashboards.sections import figure_section

PICTURE = Path(__file__).resolve().parent / "draft-length.png"
PICTURE_PX, SCALE = (1080, 960), 1.0


def main() -> None:
    drawings, figure = Drawings(), draft_length.FIGURE
    table = figure.prepare(draft_length.ClosedForm())
    section = figure_section(table, figure, figure.name, drawings)
    write_picture("draft-length", tag("main", section), drawings, PICTURE, PICTURE_PX, SCALE)


if __name__ == "__main__":
    main()
