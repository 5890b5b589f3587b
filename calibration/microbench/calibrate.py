"""From a request to a profile: measure, fit, measure again what fits badly, write."""

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
from calibration.microbench.session import Progress, Session
from simulator.errors import InputError, Problem
from simulator.files import whole_file
from simulator.models.drafter import DrafterModel
from simulator.models.model import Model

if TYPE_CHECKING:
    from calibration.fit import FittedProfile

ESSENTIAL = frozenset({"gemm/bf16", "attention/bf16"})
"""Parts without which a profile says nothing of a device; another one that is refused is inherited."""
MOST_WIDE = 0.1
"""Points whose repeats may differ too much, as a fraction of all, before the device counts as busy."""


class BusyError(InputError):
    """Measurements of one point differ too much from call to call, at too many points."""


@dataclass(frozen=True)
class CalibrationRequest:
    """What to measure: a device, the networks that are to run on it, and how thoroughly.

    `skip` names benches, or ops as bench/op, that nobody will ask for.
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
    """A profile that was written, where it came from, what this device could not measure, and what no bench
    measures.
    """

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
    """Measure, fit, write the profile, as `measure_and_fit` does."""
    device = open_device(request.kind)
    return measure_and_fit(device, plan_of(device, request), profile, progress, note, between)


def plan_of(device: Device, request: CalibrationRequest) -> BenchPlan:
    """All points of a request, less those it skips."""
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
    """Measure and fit, and write the profile; its measurements lie beside it, and the next run goes on from
    them. `between` is called after each visit of a point with the share of its round that is done; `first`
    points come before all others; `limit_s` ends the measuring wherever it is.

    Raises BusyError; InputError where what makes a profile does not fit; OSError where nothing can be
    written. What was measured until then is kept.
    """
    path = measurements_path(profile)
    file = MeasurementFile.open(path, device.notes)
    for line in (*plan.left_out, *plan.uncovered):
        note(f"not measured: {line}")
    note(f"{device.notes.name}: {_extent(plan, file, device)}; kept in {path} as it is measured")
    session = Session(device, file, plan, progress, limit_s)
    with session.noted():
        session.measure([point for point in plan.points if first is not None and first(point)])
        session.measure(plan.points, between)
        session.measure_groups()
    if device.held_back:
        note(f"the driver says that clocks are held back, reasons {device.held_back}")
    _refuse_when_busy(session, plan, path)
    outliers = _outliers(plan, _fit(file, profile).suspects)
    if outliers:
        with session.noted():
            session.again(outliers)
    fitted, refused = _without_refused(_fit(file, profile), path)
    _write(fitted, profile)
    return Calibration(device, fitted, path, (*session.left_out, *refused), plan.uncovered)


def _refuse_when_busy(session: Session, plan: BenchPlan, path: Path) -> None:
    """Raises BusyError when too many points vary too much: a shared or throttled device has no profile."""
    wide, measured = len(session.wide(plan.points)), len(session.measured(plan.points))
    if wide > MOST_WIDE * measured:
        message = (
            f"the device is busy, shared or throttled: {wide} of {measured} points vary by more than "
            f"{plan.grid.widest} × from call to call"
        )
        again = "measurements are kept, and the same command measures anew what varies"
        raise BusyError(Problem(str(path), message=message, allowed=again))


def _without_refused(fitted: FittedProfile, path: Path) -> tuple[FittedProfile, tuple[str, ...]]:
    """The profile without parts that do not fit, which are inherited. InputError for an essential one."""
    names = {line.partition(":")[0] for line in fitted.refused}
    if names & ESSENTIAL:
        other = (
            "measurements are kept; a run without --quick has a finer grid, one without the file begins anew"
        )
        raise InputError([Problem(str(path), message=line, allowed=other) for line in fitted.refused])
    parts = [part for part in fitted.profile["parts"] if part["name"] not in names]
    return replace(fitted, profile={**fitted.profile, "parts": parts}), fitted.refused


def _extent(plan: BenchPlan, file: MeasurementFile, device: Device) -> str:
    rounds = plan.grid.rounds
    done = sum(len(file.points.get(point.key, ())) >= rounds for point in plan.points)
    about_s = plan.visits_s(device) * (1 - done / max(len(plan.points), 1))
    about = f"{about_s / 60:.0f} min" if about_s > 90 else f"{about_s:.0f} s"
    there = f", {done} of them measured before" if done else ""
    return f"{len(plan.points)} points in {rounds} rounds{there}, about {about}"


def _outliers(plan: BenchPlan, suspects: Sequence[Measurement]) -> list[BenchPoint]:
    """Points that the fit asks for again; none where they are so many that they are no outliers."""
    keys = {one.key for one in suspects}
    found = [point for point in plan.points if point.key in keys]
    return found if len(found) <= MOST_WIDE * len(plan.points) else []


def _fit(file: MeasurementFile, profile: Path) -> FittedProfile:
    from calibration.fit import fit_profile

    return fit_profile(file.measurements, profile.stem)


def _write(fitted: FittedProfile, profile: Path) -> None:
    from calibration.profile_json import dumps

    with whole_file(profile) as part:
        part.write_text(dumps(fitted.profile), encoding="utf-8")
