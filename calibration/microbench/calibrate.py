"""From a request to a profile: measure, fit, measure outliers again, write."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from calibration.measurements import Measurement, MeasurementFile, measurements_path
from calibration.microbench.device import Device, open_device
from calibration.microbench.plan import BenchPlan, make_plan
from calibration.microbench.point import BenchPoint
from calibration.microbench.session import Session
from simulator.errors import InputError, Problem
from simulator.files import whole_file
from simulator.models.drafter import DrafterModel
from simulator.models.model import Model

if TYPE_CHECKING:
    from calibration.fit import FittedProfile
    from simulator.runs.replications import Progress

ESSENTIAL = frozenset({"gemm/bf16", "attention/bf16"})
"""Parts that a profile must have; another part that is refused is inherited."""
MAX_WIDE_SHARE = 0.1
"""Share of points whose repeats vary too much from which the device counts as busy."""


class BusyError(InputError):
    """The repeats of too many points vary too much."""


@dataclass(frozen=True)
class CalibrationRequest:
    """What to measure: a device, the networks that will run on it, and how thoroughly.

    `skip`: benches, or ops as bench/op, that are not needed.
    """

    kind: str
    model: Model
    drafter: DrafterModel | None = None
    tensor_parallel: tuple[int, ...] = (1,)
    weights: tuple[str, ...] = ("bf16",)
    quick: bool = False
    skip: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Calibration:
    """A written profile, its origin, and what was not measured: on this device, or by any bench."""

    device: Device
    fitted: FittedProfile
    measurements: Path
    left_out: tuple[str, ...]
    uncovered: tuple[str, ...]


def calibrate(
    request: CalibrationRequest,
    profile: Path,
    progress: Progress,
    note: Callable[[str], None],
    between: Callable[[float], None] | None = None,
) -> Calibration:
    """Open the device, then measure, fit and write the profile (see `measure_and_fit`)."""
    device = open_device(request.kind)
    return measure_and_fit(device, plan_of(device, request), profile, progress, note, between)


def plan_of(device: Device, request: CalibrationRequest) -> BenchPlan:
    """All points of a request, except those it skips."""
    plan = make_plan(
        *(device, request.model, request.drafter),
        *(request.tensor_parallel, request.weights, request.quick),
    )
    return plan.where(lambda point: not request.skip & {point.bench, f"{point.bench}/{point.op}"})


def measure_and_fit(
    device: Device,
    plan: BenchPlan,
    profile: Path,
    progress: Progress,
    note: Callable[[str], None],
    between: Callable[[float], None] | None = None,
    first: Callable[[BenchPoint], bool] | None = None,
    limit_s: float = math.inf,
) -> Calibration:
    """Measure, fit and write the profile. The measurements are kept next to it, and the next run continues
    them.

    `between` is called after each visit of a point with the share of its round that is done. Points selected
    by `first` are measured before all others. `limit_s` ends the measurements early.

    Raises BusyError; InputError if an essential part does not fit; OSError if a file cannot be written.
    Measurements made until then are kept.
    """
    path = measurements_path(profile)
    file = MeasurementFile.open(path, device.notes)
    for line in (*plan.left_out, *plan.uncovered):
        note(f"not measured: {line}")
    note(f"{device.notes.name}: {_extent(plan, file, device)}; stored in {path} while it is measured")
    session = Session(device, file, plan, progress, limit_s)
    with session.noted():
        session.measure([point for point in plan.points if first is not None and first(point)])
        session.measure(plan.points, between)
        session.measure_groups()
    if device.throttle_reasons:
        note(f"the driver reports throttled clocks, reasons {device.throttle_reasons}")
    _refuse_when_busy(session, plan, path)
    outliers = _outliers(plan, _fit(file, profile).suspects)
    if outliers:
        with session.noted():
            session.again(outliers)
    fitted, refused = _without_refused(_fit(file, profile), path)
    _write(fitted, profile)
    return Calibration(device, fitted, path, (*session.left_out, *refused), plan.uncovered)


def _refuse_when_busy(session: Session, plan: BenchPlan, path: Path) -> None:
    """Raises BusyError if too many points vary too much: a shared or throttled device has no profile."""
    wide, measured = len(session.wide(plan.points)), len(session.measured(plan.points))
    if wide > MAX_WIDE_SHARE * measured:
        message = (
            f"the device is busy, shared or throttled: {wide} of {measured} points vary by more than "
            f"{plan.grid.max_spread} × from call to call"
        )
        allowed = "measurements are kept; run the same command again to repeat those that vary"
        raise BusyError(Problem(str(path), message=message, allowed=allowed))


def _without_refused(fitted: FittedProfile, path: Path) -> tuple[FittedProfile, tuple[str, ...]]:
    """The profile without parts that do not fit, which are inherited. Raises InputError for an essential
    part.
    """
    names = {line.partition(":")[0] for line in fitted.refused}
    if names & ESSENTIAL:
        allowed = (
            "measurements are kept; run without --quick for a finer grid, or delete the file to start over"
        )
        raise InputError([Problem(str(path), message=line, allowed=allowed) for line in fitted.refused])
    parts = [part for part in fitted.profile["parts"] if part["name"] not in names]
    return replace(fitted, profile={**fitted.profile, "parts": parts}), fitted.refused


def _extent(plan: BenchPlan, file: MeasurementFile, device: Device) -> str:
    rounds = plan.grid.rounds
    done = sum(len(file.points.get(point.key, ())) >= rounds for point in plan.points)
    about_s = plan.visits_s(device) * (1 - done / max(len(plan.points), 1))
    about = f"{about_s / 60:.0f} min" if about_s > 90 else f"{about_s:.0f} s"
    measured = f", {done} of them measured before" if done else ""
    return f"{len(plan.points)} points in {rounds} rounds{measured}, about {about}"


def _outliers(plan: BenchPlan, suspects: Sequence[Measurement]) -> list[BenchPoint]:
    """Points to measure again according to the fit; none if they are too many to be outliers."""
    keys = {suspect.key for suspect in suspects}
    outliers = [point for point in plan.points if point.key in keys]
    return outliers if len(outliers) <= MAX_WIDE_SHARE * len(plan.points) else []


def _fit(file: MeasurementFile, profile: Path) -> FittedProfile:
    from calibration.fit import fit_profile

    return fit_profile(file.measurements, profile.stem)


def _write(fitted: FittedProfile, profile: Path) -> None:
    from calibration.profile_json import dumps

    with whole_file(profile) as part:
        part.write_text(dumps(fitted.profile), encoding="utf-8")
