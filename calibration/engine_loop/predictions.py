"""The file of predictions: what every cell of a matrix will take, written before any of them is measured."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from calibration.engine_loop.matrix import LoopMatrix
from calibration.engine_loop.predict import Calibrated, predict, scenario_data

PREDICTIONS = "predictions.json"
SCHEMA = "decodesim/engine-predictions-1"


def written_predictions(matrix: LoopMatrix, files: Calibrated, prompt_tokens: float) -> dict[str, Any]:
    """The document: scenario and figures of every cell, with the hashes of profile and preset."""
    variants = {variant.name: variant for variant in matrix.variants}
    cells = {}
    for cell in matrix.cells():
        variant = variants[cell.variant]
        data = scenario_data(cell, variant, files, prompt_tokens, files.acceptance(variant))
        cells[cell.name] = {"scenario": data, "figures": vars(predict(data, cell.requests))}
    hashes = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (files.profile, files.preset)
    }
    return {"schema": SCHEMA, "written": now(), "sha256": hashes, "cells": cells}


def now() -> str:
    """The time, to the second, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
