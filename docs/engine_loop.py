"""Makes docs/engine-loop.md, its picture, and docs/engine-loop.json.gz that they rest on.

decodesim closure --engine vllm --matrix half-hour --folder FOLDER
.venv/bin/python docs/engine_loop.py FOLDER

Without a folder: anew from docs/engine-loop.json.gz. It holds the raw files of the run without paths.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from break_even_map import with_blocks
from page_picture import write_picture

from calibration.closure.tables import JsonObject
from calibration.engine_loop.again import predict_again
from calibration.engine_loop.compare import CellRow, LoopComparison
from calibration.engine_loop.evaluate import rounds_of
from calibration.engine_loop.host_times import table_of
from calibration.engine_loop.raw import read_raw
from calibration.engine_loop.rounds import MeasuredCell
from calibration.engine_loop.tables import tables_of, targets
from dashboards.figures import engine_speedups
from dashboards.markup import tag
from dashboards.page import Drawings
from dashboards.sections import figure_section

FOLDER = Path(__file__).resolve().parent
PAGE, RAW, PICTURE = (FOLDER / f"engine-loop.{end}" for end in ("md", "json.gz", "png"))
HOSTS = sorted(FOLDER.glob("engine-host*.json"), reverse=True)
"""Host times by release of the engine."""
PICTURE_PX, SCALE = (1000, 660), 1.0
NOT_YET = "There is no run of the whole loop on quiet cores yet."


def main() -> None:
    if sys.argv[1:]:
        write_raw(packed(Path(sys.argv[1])))
    run = read_run()
    PAGE.write_text(with_blocks(PAGE.read_text(encoding="utf-8"), blocks_of(run)), encoding="utf-8")
    if run is not None:
        draw(run["compared"])


def packed(folder: Path) -> dict[str, Any]:
    """All raw files of a run in one document. Paths in scenarios are cut to the names of files."""
    written = (folder / "predictions.json").read_bytes()
    return {
        "predictions_sha256": hashlib.sha256(written).hexdigest(),
        "predictions": _without_paths(json.loads(written)),
        "passes": _stems(folder, "passes-*.json"),
        "calibration": _stems(folder, "calibration-*.json"),
        "cells": _stems(folder / "cells", "*.json"),
        "profile": read_raw(folder / "profile.json"),
        "preset": read_raw(folder / "preset.json"),
        "compared": read_raw(folder / "compared.json"),
        "again": _again(folder),
    }


def _again(folder: Path) -> dict[str, Any]:
    """The comparison that today's predictor makes of the run's measurements."""
    with TemporaryDirectory() as scratch:
        return predict_again(folder, Path(scratch) / "again").to_json()


def _stems(folder: Path, pattern: str) -> dict[str, Any]:
    """The documents of the files of a pattern by their names."""
    return {path.stem: read_raw(path) for path in sorted(folder.glob(pattern))}


def _without_paths(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("/"):
        path = Path(value)
        return f"{path.parent.name}/{path.name}" if path.name == "config.json" else path.name
    if isinstance(value, dict):
        return {key: _without_paths(item) for key, item in value.items()}
    return [_without_paths(item) for item in value] if isinstance(value, list) else value


def write_raw(run: JsonObject) -> None:
    """Write the committed file; the same run gives the same bytes."""
    text = json.dumps(run, separators=(",", ":"))
    RAW.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))


def read_run() -> dict[str, Any] | None:
    """The committed run; None before the first."""
    if not RAW.exists():
        return None
    run: dict[str, Any] = json.loads(gzip.decompress(RAW.read_bytes()))
    return run


def comparison_of(run: JsonObject, name: str) -> LoopComparison:
    """A comparison of a packed run, with measured figures anew from its raw files."""
    rows = []
    for entry in run[name]["cells"]:
        row = CellRow.from_json(entry)
        cell = MeasuredCell.of_rounds(rounds_of(run["cells"], row.cell.name))
        rows.append(replace(row, measured=cell.figures, tpot_rounds_s=cell.tpot_rounds_s, noise=cell.noise))
    return LoopComparison(tuple(rows))


def blocks_of(run: JsonObject | None) -> dict[str, str]:
    """Each block of the page by its name."""
    hosts = [json.loads(path.read_text("utf-8")) for path in HOSTS]
    blocks = {"host": "\n\n".join(f"{host['engine']}:\n\n{table_of(host).markdown()}" for host in hosts)}
    if run is None:
        return blocks | dict.fromkeys(("run", "picture", "tables", "again"), NOT_YET)
    cells = run["cells"].values()
    begun = sorted(raw["begun"] for raw in cells)
    requests = sum(len(raw["ttft_s"]) for raw in cells)
    written, digest = run["predictions"]["written"], run["predictions_sha256"]
    blocks["run"] = (
        f"{len(cells)} cells, {requests:,} requests. Predictions were written at {written} (SHA-256 "
        f"`{digest}`); the first cell began at {begun[0]}, the last at {begun[-1]}."
    )
    blocks["picture"] = "![Measured and predicted speedups by load](engine-loop.png)"
    tables = tables_of(comparison_of(run, "compared"))
    blocks["tables"] = "\n\n".join(f"### {title}\n\n{table.markdown()}" for title, table in tables.items())
    again = comparison_of(run, "again")
    blocks["again"] = f"{_closed_loads(again)}\n\n{targets(again).markdown()}"
    return blocks


def _closed_loads(comparison: LoopComparison) -> str:
    """What stands out of the noise: speedups at a number of clients, whose cells are long enough."""
    rows = [row for row in comparison.speedups if row.cell.clients]
    middle, far = np.quantile([abs(row.error) for row in rows], (0.5, 0.9))
    noise = np.median([row.noise for row in rows if row.noise is not None])
    return (
        f"The {len(rows)} speedups at a number of clients are off by {middle:.1%} (median) and {far:.1%} "
        f"(P90); their own standard error is {noise:.1%} (median)."
    )


def draw(compared: JsonObject) -> None:
    """Speedups by load."""
    drawings, figure = Drawings(), engine_speedups.FIGURE
    section = figure_section(figure.prepare(compared), figure, figure.name, drawings)
    write_picture("engine-loop", tag("main", section), drawings, PICTURE, PICTURE_PX, SCALE)


if __name__ == "__main__":
    main()
