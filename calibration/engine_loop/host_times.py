"""What vLLM's own Python costs a step, by part, batch, method and draft length, on this CPU.

    python -m calibration.engine_loop.host_times --engine-python PYTHON --checkpoints FOLDER FILE

The networks are stubs that return at once, and times are the least CPU times of the thread over some steps.
Other work on the machine only adds to them: a FILE of the same engine and CPU keeps what was less. Choosing
tokens from logits is the device's work: its span is left out. `python_unit_s` is what a million additions of
pure Python take here: the unit for other CPUs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibration.engine_loop.calibration_points import SMALL_LAYERS, host_methods, host_request
from calibration.engine_loop.checkpoints import TARGET_LAYERS, write_checkpoints
from calibration.engine_loop.engine_python import find_python, run_inside
from calibration.engine_loop.predict import write_json
from calibration.text_table import TextTable
from simulator.errors import InputError, Problem

SCHEMA = "decodesim/engine-host-1"
BATCHES, DRAFT_LENGTHS = (1, 8, 16, 32, 64), (1, 3, 7)
PARTS: Mapping[str, tuple[str, ...]] = {
    "schedule": ("schedule",),
    "update": ("update", "take_drafts"),
    "input preparation": ("states", "inputs", "metadata"),
    "token bookkeeping": ("bookkeeping",),
    "output processing": ("outputs",),
    "drafting": ("drafting",),
    "rest of the step": ("rest",),
}
"""Part of the tables → spans of `core_spans.py`."""
_DEVICE = ("sampler", "forward", "head")


def measure(python: Path, checkpoints: Path, log: Path) -> dict[str, Any]:
    """The document of all methods."""
    answers = {
        name: run_inside(python, "core_spans.py", host_request(checkpoints, config, BATCHES), log)
        for name, config in host_methods(checkpoints, DRAFT_LENGTHS).items()
    }
    units = [answer["python_unit_s"] for answer in answers.values()]
    methods = {
        name: {
            str(point["batch"]): parts_us(point, answer["heads"], _passes(name)) for point in answer["points"]
        }
        for name, answer in answers.items()
    }
    (engine,) = {answer["engine"].partition("+")[0] for answer in answers.values()}
    return {
        "schema": SCHEMA,
        "engine": engine,
        "cpu": _cpu(),
        "python_unit_s": min(units),
        "step_us": methods,
    }


def least(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The lesser time of two documents of one engine on one CPU, part by part. Raises InputError."""
    if any(first[name] != second[name] for name in ("schema", "engine", "cpu")):
        message = f"is of {second['engine']} on {second['cpu']}, not of {first['engine']} on {first['cpu']}"
        raise InputError(Problem(field="FILE", message=message, allowed="a new file"))
    step_us = {
        method: {
            batch: {part: min(us, second["step_us"][method][batch][part]) for part, us in parts.items()}
            for batch, parts in by_batch.items()
        }
        for method, by_batch in first["step_us"].items()
    }
    unit_s = min(first["python_unit_s"], second["python_unit_s"])
    return {**first, "python_unit_s": unit_s, "step_us": step_us}


def parts_us(point: Mapping[str, Any], heads: Sequence[Mapping[str, float]], passes: int) -> dict[str, float]:
    """µs of a step by part. Drafting is without the tokens that each pass chooses."""
    seconds = dict(point["seconds"])
    (choosing_s,) = (entry["argmax_s"] for entry in heads if entry["rows"] == point["batch"])
    propose_s = seconds.get("propose", 0.0)
    seconds["drafting"] = max(propose_s - passes * choosing_s, 0.0)
    known = [name for names in PARTS.values() for name in names if name not in ("drafting", "rest")]
    named_s = sum(seconds.get(name, 0.0) for name in (*known, *_DEVICE)) + propose_s
    seconds["rest"] = max(seconds["step"] - named_s, 0.0)
    return {
        part: round(sum(seconds.get(name, 0.0) for name in names) * 1e6, 1) for part, names in PARTS.items()
    }


def _passes(name: str) -> int:
    """Drafter passes of a step."""
    return int(name.removeprefix("draft-")) if name.startswith("draft-") else 0


def lines_us(document: Mapping[str, Any]) -> dict[str, dict[str, tuple[float, float]]]:
    """Method → part → (µs a step, µs a request and step), a least-squares line over batches."""
    fitted: dict[str, dict[str, tuple[float, float]]] = {}
    for method, by_batch in document["step_us"].items():
        batches = [int(batch) for batch in by_batch]
        fitted[method] = {}
        for part in PARTS:
            each, start = np.polyfit(batches, [parts[part] for parts in by_batch.values()], 1)
            fitted[method][part] = (float(start), float(each))
    return fitted


def table_of(document: Mapping[str, Any]) -> TextTable:
    """µs a step + µs a request and step, by method and part."""
    rows = [
        [method, *(f"{max(start, 0.0):.0f} + {max(each, 0.0):.1f}" for start, each in parts.values())]
        for method, parts in lines_us(document).items()
    ]
    return TextTable(("method", *PARTS), rows)


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m calibration.engine_loop.host_times")
    parser.add_argument("file", type=Path)
    parser.add_argument("--engine-python", type=Path)
    parser.add_argument("--checkpoints", type=Path, default=Path("results/engine-loop/checkpoints"))
    options = parser.parse_args()
    folder = options.checkpoints.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    write_checkpoints(folder, {TARGET_LAYERS, SMALL_LAYERS})
    document = measure(find_python(options.engine_python), folder, folder / "core.log")
    if options.file.exists():
        document = least(document, json.loads(options.file.read_text("utf-8")))
    write_json(options.file, document)
    print(table_of(document).markdown())


if __name__ == "__main__":
    main()
