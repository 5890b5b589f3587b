"""The comparison of a run's folder: raw files and written predictions in, rows out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from calibration.engine_loop.compare import CellRow, LoopComparison
from calibration.engine_loop.matrix import LoopCell, round_name
from calibration.engine_loop.predict import predict, write_json
from calibration.engine_loop.predictions import PREDICTIONS
from calibration.engine_loop.raw import Figures, acceptance_of, read_raw
from calibration.engine_loop.rounds import MeasuredCell, median_figures

COMPARED = "compared.json"


def evaluate(folder: Path) -> LoopComparison:
    """Compare every measured cell, and write the rows next to the raw files."""
    written = json.loads((folder / PREDICTIONS).read_text("utf-8"))["cells"]
    raws = {path.stem: read_raw(path) for path in (folder / "cells").glob("*.json")}
    rows = [_row(rounds_of(raws, name), entry) for name, entry in written.items() if name in raws]
    comparison = LoopComparison(tuple(rows))
    write_json(folder / COMPARED, comparison.to_json())
    return comparison


def rounds_of(raws: Mapping[str, Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """The raw files of a cell, one a round, in their order."""
    rounds: list[Mapping[str, Any]] = []
    while (file := round_name(name, len(rounds) + 1)) in raws:
        rounds.append(raws[file])
    return rounds


def _row(rounds: Sequence[Mapping[str, Any]], written: Mapping[str, Any]) -> CellRow:
    cell, blind = LoopCell(**rounds[0]["cell"]), Figures(**written["figures"])
    measured, scenario = MeasuredCell.of_rounds(rounds), written["scenario"]
    if not scenario["speculation"]:
        return CellRow(cell, measured.figures, blind, blind, None, measured.tpot_rounds_s, measured.noise)
    own = [_with_own_acceptance(scenario, raw, cell.requests) for raw in rounds]
    length = float(np.median([tokens for tokens, _ in own]))
    predicted = median_figures([figures for _, figures in own])
    return CellRow(cell, measured.figures, predicted, blind, length, measured.tpot_rounds_s, measured.noise)


def _with_own_acceptance(
    scenario: Mapping[str, Any], raw: Mapping[str, Any], requests: int
) -> tuple[float, Figures]:
    """(tokens per verify that the engine counted in a round, the prediction with that acceptance)."""
    acceptance = acceptance_of(raw)
    with TemporaryDirectory(prefix="decodesim-") as scratch:
        file = Path(scratch) / "acceptance.json"
        write_json(file, acceptance)
        (variant,) = scenario["speculation"]
        own = {**scenario, "speculation": [variant | {"acceptance": {"file": str(file)}}]}
        return acceptance["mean_acceptance_length"]["value"], predict(own, requests)
