"""A run's folder predicted once more: profile, preset and predictions of today from its old measurements.

    python -m calibration.engine_loop.again FOLDER NEW_FOLDER

Only passes, plain loads and acceptance counts are read for the predictions, as when the run was made. So the
cells stay unseen, but they were known to whoever changed the predictor since.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from calibration.engine_loop.compare import LoopComparison
from calibration.engine_loop.engine_preset import PlainLoad, write_preset
from calibration.engine_loop.engine_profile import profile_of
from calibration.engine_loop.evaluate import evaluate, rounds_of
from calibration.engine_loop.matrix import CALIBRATION_LOADS, MATRICES, PLAIN, LoopCell, LoopMatrix
from calibration.engine_loop.predict import Calibrated, write_json
from calibration.engine_loop.predictions import PREDICTIONS, written_predictions
from calibration.engine_loop.raw import read_raw
from calibration.engine_loop.tables import tables_of


def predict_again(old: Path, new: Path) -> LoopComparison:
    """Fill `new` with what follows from the measurements in `old`, and compare."""
    new.mkdir(parents=True)
    for name in ("cells", "checkpoints"):
        (new / name).symlink_to((old / name).resolve())
    for path in (*old.glob("passes-*.json"), *old.glob("calibration-*.json"), *old.glob("acceptance-*.json")):
        shutil.copy(path, new)
    files = Calibrated(new, new / "checkpoints")
    passes = {name: read_raw(new / f"passes-{name}.json") for name in ("target", "small", "host")}
    write_json(files.profile, profile_of(passes["target"], passes["small"], passes["host"]))
    raws = {path.stem: read_raw(path) for path in new.glob("calibration-*.json")}
    low, high = (
        PlainLoad.of_rounds(rounds_of(raws, f"calibration-{PLAIN}-c{clients}"))
        for clients in CALIBRATION_LOADS
    )
    write_preset((low, high), passes["host"], files)
    write_json(new / PREDICTIONS, written_predictions(_matrix_of(old), files, low.prompt_tokens))
    return evaluate(new)


def _matrix_of(folder: Path) -> LoopMatrix:
    """The matrix that has all cells which a run measured."""
    cells = {LoopCell(**read_raw(path)["cell"]) for path in (folder / "cells").glob("*.json")}
    return next(matrix for matrix in MATRICES.values() if cells <= set(matrix.cells()))


def main() -> None:
    """Predict again, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m calibration.engine_loop.again")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    options = parser.parse_args()
    comparison = predict_again(options.old, options.new)
    for title, table in tables_of(comparison).items():
        print(f"### {title}\n\n{table.markdown()}\n")


if __name__ == "__main__":
    main()
