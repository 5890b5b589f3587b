"""The closed loop: calibrate, decode plainly and speculatively in between, predict, compare.

Every round mixes visits of the calibration's points with visits of the loop's points, so that a change of the
machine's speed affects both. The fit uses only the calibration's measurements, and no complete step or draft
loop.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from calibration.closure.clock import Clock
from calibration.closure.compared_point import ClosureSummary, ComparedPoint, without_figures
from calibration.closure.engine import PlainDecoding
from calibration.closure.measured_point import MeasuredPoint
from calibration.closure.pairs import PointRun
from calibration.closure.points import FULL, GROWTH_TOKENS, QUICK, LoopPoint, calibrated_points
from calibration.closure.predicted_point import predict, preset_of
from calibration.closure.prompt_cache import PromptCache
from calibration.closure.reference import MAX_SPREAD, Reference
from calibration.closure.text_check import TextCheck, compare_texts
from calibration.decoder.decoder import Decoder
from calibration.decoder.shape import DecoderShape
from calibration.decoder.weights import smollm2_weights
from calibration.measurements import DeviceNotes, measurements_path, read_measurements
from calibration.microbench.calibrate import BusyError, CalibrationRequest, calibrate
from calibration.microbench.device import open_device
from simulator.errors import InputError, Problem
from simulator.models.catalogue import load_model

if TYPE_CHECKING:
    from simulator.runs.replications import Progress

_REFERENCE = LoopPoint(1, 1, 320, 1)
_REFERENCE_STEPS = 4
_MAX_RETRIES = 2
"""Repetitions of a visit during which the reference step was disturbed."""
_PROMPTS = 2
_SEED = 4
_NOT_NEEDED = frozenset(
    {"sampler/top_p", "attention/prefill", "memory/triad", "memory/read", "stack", "draft_loop"}
)


@dataclass(frozen=True)
class Mode:
    """How thorough a run is.

    A visit of a point lasts `visit_s`, and until every acceptance has `outcomes` outcomes. A run on a busy
    machine is repeated if it can end within `limit_s`.
    """

    points: tuple[LoopPoint, ...]
    outcomes: int
    visit_s: float
    limit_s: float
    min_break_evens: int


MODES = {True: Mode(QUICK, 16, 1.0, 180.0, 2), False: Mode(FULL, 12, 1.2, 600.0, 4)}
"""Quick → mode."""


@dataclass(frozen=True)
class Closure:
    """The result of a run. `busy`: why there are no figures; None if there are."""

    device: DeviceNotes
    compared: tuple[ComparedPoint, ...]
    reference: Reference | None
    texts: TextCheck
    min_break_evens: int
    seconds_s: float
    busy: str | None = None

    @property
    def summary(self) -> ClosureSummary:
        """Errors over all points."""
        return ClosureSummary(self.compared, self.texts, self.min_break_evens)

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim closure --json`."""
        points = [row for point in self.compared for row in point.to_json()]
        return {
            "schema": "decodesim/closure-1",
            "device": f"{self.device.name}, threads: {self.device.threads}, torch {self.device.torch}",
            "points": points,
            "summary": without_figures() if self.busy else self.summary.to_json(),
            "reference": self.reference.to_json() if self.reference else None,
            "texts_equal": self.texts.equal,
            "accepted_in_texts": self.texts.accepted,
            "seconds_s": self.seconds_s,
            "busy": self.busy,
            "notes": [self.busy] if self.busy else [],
        }


def close_loop(
    kind: str, quick: bool, profile: Path | None, progress: Progress, note: Callable[[str], None]
) -> Closure:
    """Measure and predict on a device; the profile and its measurements are kept at `profile`.

    Raises InputError for a missing device or missing weights, and for measurements that do not make a
    profile.
    """
    with TemporaryDirectory(prefix="decodesim-") as scratch:
        scratch_profile = Path(scratch) / (profile.name if profile else f"{kind}.json")
        try:
            return _close_loop(kind, quick, scratch_profile, progress, note)
        finally:
            if profile is not None:
                _keep(scratch_profile, profile)


def _close_loop(
    kind: str, quick: bool, profile: Path, progress: Progress, note: Callable[[str], None]
) -> Closure:
    started_s = time.monotonic()
    mode = MODES[quick]
    device = open_device(kind)
    with torch.inference_mode():
        loop = _Loop(kind, mode)
        while True:
            busy = _calibrated(loop, kind, quick, profile, progress, note)
            reference = loop.reference
            busy = busy or (reference.busy if reference else None)
            if busy is None or 2 * (time.monotonic() - started_s) > mode.limit_s:
                break
            note(f"{busy}; trying again")
            loop.reset()
            measurements_path(profile).unlink(missing_ok=True)
    measured = [run.measured for run in loop.runs if run.pairs]
    compared = () if busy else compare(measured, profile, loop.target.shape)
    return Closure(
        device=device.notes,
        compared=tuple(compared),
        reference=reference,
        texts=loop.texts,
        min_break_evens=mode.min_break_evens,
        seconds_s=time.monotonic() - started_s,
        busy=busy,
    )


def _keep(profile_path: Path, profile: Path) -> None:
    """Copy a profile and its measurements, if they exist."""
    for source, target in (
        (profile_path, profile),
        (measurements_path(profile_path), measurements_path(profile)),
    ):
        if source.exists():
            shutil.copyfile(source, target)


def compare(measured: Sequence[MeasuredPoint], profile: Path, shape: DecoderShape) -> list[ComparedPoint]:
    """Predict every point from a profile. Raises ValueError if a bench has measured a point's shape."""
    measurements = read_measurements(measurements_path(profile))
    calibrated = calibrated_points([point.point for point in measured], measurements.points)
    if calibrated:
        raise ValueError(
            f"points of the closed loop were calibrated: {[point.label for point in calibrated]}"
        )
    preset = preset_of(measurements.device.kind == "cuda", profile.parent)
    return [ComparedPoint(point, predict(point, profile, shape, preset)) for point in measured]


def _calibrated(
    loop: _Loop, kind: str, quick: bool, profile: Path, progress: Progress, note: Callable[[str], None]
) -> str | None:
    """Calibrate with visits of the loop's points in between. Returns why the machine was too busy, or None.

    Raises InputError if the profile is incomplete, because an inherited part does not describe this device.
    """
    request = CalibrationRequest(kind, load_model(loop.target.shape.name), quick=quick, skip=_NOT_NEEDED)
    try:
        calibration = calibrate(request, profile, progress, note, loop.between)
    except BusyError as error:
        return f"machine busy: {'; '.join(problem.message for problem in error.problems)}"
    if calibration.left_out:
        allowed = "the closed loop needs a profile that was measured here completely"
        raise InputError(
            [Problem(message=f"incomplete profile: {line}", allowed=allowed) for line in calibration.left_out]
        )
    return None


class _Loop:
    """The decodings of all points, and the reference step between them."""

    def __init__(self, kind: str, mode: Mode) -> None:
        shape, weights = smollm2_weights()
        self.texts = compare_texts(Decoder(shape, weights.to(kind, torch.float32)))
        self.target = Decoder(shape, weights.to(kind, torch.bfloat16))
        self._mode = mode
        longest = max(point.context for point in (*mode.points, _REFERENCE))
        prompts = PromptCache.random(self.target, _PROMPTS, longest)
        self.runs = [PointRun(self.target, prompts, point, i) for i, point in enumerate(mode.points)]
        self._reference = PlainDecoding(self.target, prompts, 1, _REFERENCE.context, GROWTH_TOKENS)
        self._clock = Clock(self.target.device)
        self._reference_s: list[list[float]] = []
        self._repeated = 0
        self._order, self._waiting, self._share = random.Random(_SEED), list[PointRun](), 1.0

    def between(self, share: float) -> None:
        """Visit points until their share of this round equals `share`, that of the calibration; each point
        once.
        """
        if share <= self._share:  # a new round
            self._waiting = [*self.runs]
            self._order.shuffle(self._waiting)
        self._share = share
        remaining = round((1 - share) * len(self.runs))
        with torch.inference_mode():
            while len(self._waiting) > remaining:
                self._visit(self._waiting.pop())

    def _visit(self, run: PointRun) -> None:
        """Visit a point between reference steps, and repeat if those were disturbed. All reference steps are
        kept.
        """
        for attempt in range(1 + _MAX_RETRIES):
            self._repeated += attempt > 0
            steps = self._time_reference()
            pairs = run.visit(self._mode.outcomes, self._mode.visit_s)
            steps += self._time_reference()
            self._reference_s.append(steps)
            if max(steps) <= MAX_SPREAD * min(steps):
                break
        run.pairs += pairs

    @property
    def reference(self) -> Reference | None:
        """The steadiness of the machine; None before the second visit."""
        return Reference.of(self._reference_s, self._repeated) if len(self._reference_s) > 1 else None

    def reset(self) -> None:
        """Drop all results."""
        self._share, self._repeated = 1.0, 0
        self._reference_s.clear()
        for run in self.runs:
            run.pairs.clear()

    def _time_reference(self) -> list[float]:
        seconds = []
        self._reference.restart()
        for step in range(_REFERENCE_STEPS + 1):
            self._clock.restart()
            self._reference.step(self._clock)
            if step:  # the first step warms up
                seconds.append(sum(self._clock.laps_s()))
        return seconds
