"""Makes docs/break-even-map.md, its picture and the figures it rests on, from the store of the study.

decodesim sweep examples/break-even-map-70b.study.yaml --out map.db
.venv/bin/python docs/break_even_map.py map.db

Without a store: the tables and the picture anew from the figures in docs/break-even-map.json.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from break_even_tables import SHOWN_LENGTHS, VARIANT, blocks_of
from page_picture import write_picture

from dashboards.figures import study_needed
from dashboards.markup import tag
from dashboards.page import Drawings, legend_of
from dashboards.stored import StoredStudy, stored_study
from experiments.store.columns import StoreColumn

FOLDER = Path(__file__).resolve().parent
PAGE, FIGURES, PICTURE = (FOLDER / f"break-even-map.{end}" for end in ("md", "json", "png"))
PICTURE_PX, SCALE = (1000, 860), 1.1
_LEFT_OUT = re.compile(r"^(key|error|seconds_s|version)$|(length|speedup_at\.\d\.\d+)\.ci95_|length\.band_")


def main() -> None:
    if sys.argv[1:]:
        write_figures(stored_study(sys.argv[1]))
    study = read_figures()
    PAGE.write_text(with_blocks(PAGE.read_text(encoding="utf-8"), blocks_of(study)), encoding="utf-8")
    draw(study)


def write_figures(study: StoredStudy) -> None:
    """Keep what the page needs of a store: its study and its rows, four digits of each figure."""
    columns = [column for column in study.columns if not _LEFT_OUT.search(column.name)]
    names = [column.name for column in columns]
    rows = [json.dumps([_short(row[name]) for name in names]) for row in study.rows]
    head = {
        "study": study.study,
        "version": study.version,
        "counts": study.counts,
        "reasons": study.reasons,
        "columns": [asdict(column) for column in columns],
    }
    text = json.dumps(head, ensure_ascii=False, indent=1).removesuffix("\n}")
    FIGURES.write_text(f'{text},\n "rows": [\n  ' + ",\n  ".join(rows) + "\n ]\n}\n", encoding="utf-8")


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def read_figures() -> StoredStudy:
    """The study as it was kept."""
    document = json.loads(FIGURES.read_text(encoding="utf-8"))
    columns = tuple(StoreColumn(**column) for column in document["columns"])
    rows = tuple(
        {column.name: cell for column, cell in zip(columns, row, strict=True)} for row in document["rows"]
    )
    reasons = tuple(tuple(reason) for reason in document["reasons"])
    return StoredStudy(document["study"], document["version"], columns, rows, document["counts"], reasons)


def with_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """The page with what stands between `<!-- NAME -->` and `<!-- end -->` made anew."""
    for name, block in blocks.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        before, count = pattern.subn(r"\g<1>\0\g<2>", text)
        text = before.replace("\0", f"\n{block}\n\n")
        if count != 1:
            raise SystemExit(f"{PAGE}: {count} places for {name}")
    return text


def draw(study: StoredStudy) -> None:
    """The picture: the maps of one variant at four draft lengths."""
    figure = study_needed.FIGURE
    table = figure.prepare(study).where(variant=VARIANT)
    drawings = Drawings()
    places = []
    for number, (title, part) in enumerate(figure.pictures(table)):
        if part["draft_length"][0] in SHOWN_LENGTHS:
            picture = figure.draw(part)
            place = drawings.place(f"map-{number}", picture, title)
            places.append(tag("figure", tag("h3", title), legend_of(picture), place))
    write_picture(
        "map", tag("main", tag("div", *places, cls="several")), drawings, PICTURE, PICTURE_PX, SCALE
    )


if __name__ == "__main__":
    main()
