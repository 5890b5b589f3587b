"""The comparison of a run's folder: raw files and written predictions in, rows out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from calibration.engine_loop.compare import CellRow, LoopComparison
from calibration.engine_loop.loop import PREDICTIONS
from calibration.engine_loop.matrix import LoopCell
from calibration.engine_loop.predict import predict, write_json
from calibration.engine_loop.raw import Figures, acceptance_of, read_raw

COMPARED = "compared.json"


def evaluate(folder: Path) -> LoopComparison:
    """Compare every measured cell, and write the rows next to the raw files."""
    written = json.loads((folder / PREDICTIONS).read_text("utf-8"))["cells"]
    rows = [
        _row(read_raw(folder / "cells" / f"{name}.json"), entry)
        for name, entry in written.items()
        if (folder / "cells" / f"{name}.json").exists()
    ]
    comparison = LoopComparison(tuple(rows))
    write_json(folder / COMPARED, comparison.to_json())
    return comparison


def _row(raw: Mapping[str, Any], written: Mapping[str, Any]) -> CellRow:
    cell = LoopCell(**raw["cell"])
    measured, blind = Figures.of_raw(raw), Figures(**written["figures"])
    scenario = written["scenario"]
    if not scenario["speculation"]:
        return CellRow(cell, measured, blind, blind, None)
    acceptance = acceptance_of(raw)
    with TemporaryDirectory(prefix="decodesim-") as scratch:
        file = Path(scratch) / "acceptance.json"
        write_json(file, acceptance)
        (variant,) = scenario["speculation"]
        own = scenario | {"speculation": [variant | {"acceptance": {"file": str(file)}}]}
        predicted = predict(own, cell.requests)
    return CellRow(cell, measured, predicted, blind, acceptance["mean_acceptance_length"]["value"])
