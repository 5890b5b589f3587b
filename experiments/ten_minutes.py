"""`python -m experiments.ten_minutes -o FOLDER`: measurements of an H100 or H200 within ten minutes.

Measures the shapes of Llama-3.1-8B with its drafter and of the shards of a 70B model, those first that public
tables are weakest at; fits a profile and holds it against the one from public tables, operator by operator;
closes the loop with real decoding. FOLDER then has raw measurements (CSV), profile, comparison and closure,
each with its device, versions, clocks and date. `--device cpu --quick` goes the same way with a small model.
"""

from __future__ import annotations

import json
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from experiments.commands.output import note, progress_bar
from simulator.errors import InputError
from simulator.files import whole_file

if TYPE_CHECKING:
    from calibration.microbench.device import Device
    from calibration.microbench.plan import BenchPlan
    from calibration.microbench.point import BenchPoint
    from simulator.costs.profiles import Profile

BASE = "h100-sxm"
"""The public tables that a device without its own is compared with."""
_INCOMPLETE, _BUSY = 2, 3
MEASURING_S = 330.0
"""Seconds of the ten minutes that single operators get; what is left of them is for the closed loop."""
_FP8_IRREGULAR = range(96, 321)
"""Tokens at which fp8 matrices of the public tables are irregular."""


class MeasuredModel(NamedTuple):
    """A model with its drafter, sharded."""

    model: str
    drafter: str | None
    tensor_parallel: tuple[int, ...]
    weights: tuple[str, ...]


MODELS: Mapping[str, tuple[MeasuredModel, ...]] = {
    "cuda": (
        MeasuredModel("llama-3.1-8b-instruct", "eagle3-llama-3.1-8b", (1,), ("bf16", "fp8")),
        MeasuredModel("llama-3.3-70b-instruct", "eagle3-llama-3.3-70b", (1, 2, 4, 8), ("fp8",)),
    ),
    "cpu": (MeasuredModel("smollm2-135m-instruct", None, (1,), ("bf16",)),),
}
"""What is measured on each kind of device."""


@click.command()
@click.option("--device", type=click.Choice(sorted(MODELS)), default="cuda", show_default=True)
@click.option("--quick", is_flag=True, help="Fewer shapes and rounds.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path, file_okay=False))
def command(device: str, quick: bool, output: Path) -> None:
    """Measure, fit, compare with public tables, close the loop; everything goes into the folder OUTPUT.

    Exit code 2: what stderr lists could not be measured, and the rest is there. 3: the machine was busy.
    """
    code = _run_stage(_prepare, device, output)
    if not code:
        codes = (_run_stage(_operators, device, quick, output), _run_stage(_loop, device, output))
        code = codes[0] or codes[1]
    raise SystemExit(code)


def _run_stage(stage: Callable[..., int], *arguments: Any) -> int:
    """The exit code of a stage. After a failure the other stages still run, because GPU time is expensive."""
    started_s = time.monotonic()
    try:
        return stage(*arguments)
    except InputError as error:
        for problem in error.problems:
            note(str(problem))
    except Exception:  # of an unknown torch version or device
        note(traceback.format_exc())
    finally:
        note(f"{stage.__name__.strip('_')}: {(time.monotonic() - started_s) / 60:.1f} min")
    return _INCOMPLETE


def is_weak(point: BenchPoint) -> bool:
    """Whether public tables cover it poorly: verify attention, layers and stacks, fp8 at some tokens."""
    if point.bench == "attention":
        return point.shape.get("queries", 1) > 1
    if point.bench == "linear":
        return point.dtype == "fp8" and point.shape["m"] in _FP8_IRREGULAR
    return point.bench in ("layer", "stack")


def _prepare(kind: str, folder: Path) -> int:
    """Everything that is needed is there."""
    from calibration.optional import need

    need("torch", "calibration")
    need("gguf", "lm")
    from calibration.decoder.weights import smollm2_file
    from calibration.microbench.device import open_device

    smollm2_file()
    open_device(kind)
    folder.mkdir(parents=True, exist_ok=True)
    return 0


def _operators(kind: str, quick: bool, folder: Path) -> int:
    """Operators measured, fitted, compared."""
    from calibration.microbench.calibrate import measure_and_fit
    from calibration.microbench.device import open_device

    device = open_device(kind)
    system = device.notes.gpu or BASE
    profile = folder / f"{device.notes.gpu or kind}.json"
    with progress_bar("operators") as progress:
        plan = _plan(device, quick)
        calibration = measure_and_fit(
            device, plan, profile, progress, note, first=is_weak, limit_s=MEASURING_S
        )
    _write(folder / "against-public-tables.json", _against_tables(calibration.fitted.parsed, system))
    for line in calibration.left_out:
        note(f"not in the profile: {line}")
    return _INCOMPLETE if calibration.left_out else 0


def _loop(kind: str, folder: Path) -> int:
    """The closed loop; what it makes on the way is moved into the folder when it is whole."""
    from calibration.closure.closure import close_loop
    from calibration.measurements import measurements_path

    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        profile_path = Path(scratch) / "loop.json"
        with progress_bar("closed loop") as progress:
            loop = close_loop(kind, True, profile_path, progress, note).to_json()
        for path in (profile_path, measurements_path(profile_path)):
            if path.exists():
                path.replace(folder / path.name)
    _write(folder / "closure.json", loop)
    for line in loop["notes"]:
        note(line)
    return _BUSY if loop["summary"]["step_median_abs_log_error"] is None else 0


def _against_tables(measured: Profile, system: str) -> dict[str, Any]:
    """This profile against that of public tables, operator by operator; a line about each on stderr."""
    from calibration.fit.compare import compare
    from simulator.costs.profiles import load_profile

    answer = compare(load_profile(system), measured)
    for row in answer["rows"]:
        note(f"{row['op']}, {row['at']}: {row['ratio']:.2f} × the public tables ({row['n']} shapes)")
    return answer


def _plan(device: Device, quick: bool) -> BenchPlan:
    """The points of all targets, each once."""
    from functools import reduce
    from operator import or_

    from calibration.microbench.calibrate import CalibrationRequest, plan_of
    from simulator.models.catalogue import load_drafter, load_model

    plans = []
    for measured_model in MODELS[device.notes.kind]:
        model = load_model(measured_model.model)
        drafter = (
            None if measured_model.drafter is None else load_drafter(measured_model.drafter, model, "eagle3")
        )
        request = CalibrationRequest(
            device.notes.kind, model, drafter, measured_model.tensor_parallel, measured_model.weights, quick
        )
        plans.append(plan_of(device, request))
    return reduce(or_, plans)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    with whole_file(path) as part:
        part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    command()
