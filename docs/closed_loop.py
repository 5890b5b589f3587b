"""Makes the tables and the picture of docs/closure.md, and docs/closure.json that they rest on.

decodesim closure --device cpu --json > run.json
.venv/bin/python docs/closed_loop.py run.json

Several runs: their targets side by side, tables and picture of the last. None: anew from docs/closure.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from break_even_map import with_blocks
from page_picture import write_picture

from calibration.closure.tables import TitledTable, break_evens, kinds, speedups, steps, targets, without
from dashboards.closure_page import picture_sections
from dashboards.markup import tag
from dashboards.page import Drawings

FOLDER = Path(__file__).resolve().parent
PAGE, FIGURES, PICTURE = (FOLDER / f"closure.{end}" for end in ("md", "json", "png"))
PICTURE_PX, SCALE = (1000, 690), 1.0


def main() -> None:
    if sys.argv[1:]:
        runs = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
        FIGURES.write_text(json.dumps({"runs": [_short(run) for run in runs]}, indent=1) + "\n", "utf-8")
    runs = json.loads(FIGURES.read_text(encoding="utf-8"))["runs"]
    PAGE.write_text(with_blocks(PAGE.read_text(encoding="utf-8"), blocks_of(runs)), encoding="utf-8")
    draw(runs[-1])


def blocks_of(runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Each block of the page by its name."""
    last = runs[-1]
    tables = {"steps": steps(last), "speedups": speedups(last), "break-evens": break_evens(last)}
    tables |= {"kinds": kinds(last), "without": without(last)}
    blocks = {name: markdown(shown) for name, shown in tables.items()}
    reference = last["reference"]
    blocks["device"] = (
        f"{last['device']}. {len(runs)} run{'s' if len(runs) > 1 else ''}; tables and picture: the last, "
        f"{last['seconds_s']:.0f} s, reference step {reference['median_s'] * 1e3:.1f} ms with P90 ÷ P10 = "
        f"{reference['p90_over_p10']:.2f}, odd and even visits {reference['split_halves_apart']:.1%} apart."
    )
    blocks["picture"] = "![Predicted against measured step times and break-even acceptances](closure.png)"
    blocks["targets"] = markdown(_side_by_side([targets(run) for run in runs]))
    return blocks


def _side_by_side(tables: Sequence[TitledTable]) -> TitledTable:
    """The targets of several runs: a column each."""
    columns = ("target", "limit", *(f"run {number + 1}" for number in range(len(tables))))
    rows = [
        [*same[0][:2], *(f"{row[2]}{'' if row[3] == 'yes' else ' ✗'}" for row in same)]
        for same in zip(*(table.rows for table in tables), strict=True)
    ]
    return TitledTable("Targets", columns, rows)


def markdown(shown: TitledTable) -> str:
    """A table of Markdown."""
    rule = ["---", *["---:"] * (len(shown.columns) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (shown.columns, rule, *shown.rows))


def _short(value: Any) -> Any:
    """Four digits of every figure."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _short(entry) for key, entry in value.items()}
    return [_short(entry) for entry in value] if isinstance(value, list) else value


def draw(run: Mapping[str, Any]) -> None:
    """Step times and break-even acceptances, predicted against measured."""
    drawings = Drawings()
    write_picture(
        "closure",
        tag("main", tag("div", *picture_sections(run, drawings), cls="several")),
        drawings,
        PICTURE,
        PICTURE_PX,
        SCALE,
    )


if __name__ == "__main__":
    main()
