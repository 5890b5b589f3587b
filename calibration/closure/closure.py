"""The closed loop: calibrate, decode plainly and speculatively in between, predict, compare.

Visits of the calibration's points and of the loop's are mixed in every round, so that a machine that changes
its speed for seconds or minutes does so for both. The fit sees the calibration's measurements alone: no
whole step, no draft loop.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from calibration.closure.clock import Clock
from calibration.closure.compared_point import ClosureSummary, ComparedPoint, without_figures
from calibration.closure.engine import PlainDecoding
from calibration.closure.measured_point import MeasuredPoint
from calibration.closure.pairs import PointRun
from calibration.closure.points import FULL, GROWTH_TOKENS, QUICK, LoopPoint, met_in_calibration
from calibration.closure.predicted_point import predict, preset_of
from calibration.closure.prompt_cache import PromptCache
from calibration.closure.reference import WIDEST, Reference
from calibration.closure.text_check import TextCheck, compare_texts
from calibration.decoder.decoder import Decoder
from calibration.decoder.shape import DecoderShape
from calibration.decoder.weights import smollm2_weights
from calibration.measurements import DeviceNotes, measurements_path, read_measurements
from calibration.microbench.calibrate import BusyError, CalibrationRequest, calibrate
from calibration.microbench.device import open_device
from calibration.microbench.session import Progress
from simulator.errors import InputError, Problem
from simulator.models.catalogue import load_model

_REFERENCE = LoopPoint(1, 1, 320, 1)
_REFERENCE_STEPS = 4
_MOST_RETRIES = 2
"""Visits of a point during which the reference step was disturbed are made again so often."""
_PROMPTS = 2
_SEED = 4
_NOT_NEEDED = frozenset(
    {"sampler/top_p", "attention/prefill", "memory/triad", "memory/read", "stack", "draft_loop"}
)


@dataclass(frozen=True)
class Mode:
    """How thorough a run is. A visit of a point lasts `visit_s`, and until each acceptance had its outcomes.

    A run that was busy is tried again where it can end within `limit_s`.
    """

    points: tuple[LoopPoint, ...]
    outcomes: int
    visit_s: float
    limit_s: float
    fewest_break_evens: int


MODES = {True: Mode(QUICK, 16, 1.0, 180.0, 2), False: Mode(FULL, 12, 1.2, 600.0, 4)}
"""By whether it is quick."""


@dataclass(frozen=True)
class Closure:
    """What came out. `busy` says why there are no figures, None where there are."""

    device: DeviceNotes
    compared: tuple[ComparedPoint, ...]
    reference: Reference | None
    texts: TextCheck
    fewest_break_evens: int
    seconds_s: float
    busy: str | None = None

    @property
    def summary(self) -> ClosureSummary:
        """Errors over all points."""
        return ClosureSummary(self.compared, self.texts, self.fewest_break_evens)

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim closure --json`."""
        points = [row for one in self.compared for row in one.to_json()]
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
    """Measure and predict on a device of a kind; the profile and its measurements are kept at `profile`.

    Raises InputError for a device or weights that are not there, and for measurements that make no profile.
    """
    with TemporaryDirectory(prefix="decodesim-") as scratch:
        made = Path(scratch) / (profile.name if profile else f"{kind}.json")
        try:
            return _close_loop(kind, quick, made, progress, note)
        finally:
            if profile is not None:
                _keep(made, profile)


def _close_loop(
    kind: str, quick: bool, profile: Path, progress: Progress, note: Callable[[str], None]
) -> Closure:
    begun = time.monotonic()
    mode = MODES[quick]
    device = open_device(kind)
    with torch.inference_mode():
        loop = _Loop(kind, mode)
        while True:
            busy = _calibrated(loop, kind, quick, profile, progress, note)
            reference = loop.reference
            busy = busy or (reference.busy if reference else None)
            if busy is None or 2 * (time.monotonic() - begun) > mode.limit_s:
                break
            note(f"{busy}; once more")
            loop.forget()
            measurements_path(profile).unlink(missing_ok=True)
    measured = [run.measured for run in loop.runs if run.pairs]
    compared = () if busy else compare(measured, profile, loop.target.shape)
    return Closure(
        device=device.notes,
        compared=tuple(compared),
        reference=reference,
        texts=loop.texts,
        fewest_break_evens=mode.fewest_break_evens,
        seconds_s=time.monotonic() - begun,
        busy=busy,
    )


def _keep(made: Path, profile: Path) -> None:
    """Copy a profile and its measurements, as far as there are any."""
    for source, target in ((made, profile), (measurements_path(made), measurements_path(profile))):
        if source.exists():
            shutil.copyfile(source, target)


def compare(measured: Sequence[MeasuredPoint], profile: Path, shape: DecoderShape) -> list[ComparedPoint]:
    """Predict every point from a profile. Raises ValueError where a bench has measured a point's shape."""
    known = read_measurements(measurements_path(profile))
    met = met_in_calibration([one.point for one in measured], known.points)
    if met:
        raise ValueError(f"points of the closed loop were calibrated: {[point.label for point in met]}")
    preset = preset_of(known.device.kind == "cuda", profile.parent)
    return [ComparedPoint(one, predict(one, profile, shape, preset)) for one in measured]


def _calibrated(
    loop: _Loop, kind: str, quick: bool, profile: Path, progress: Progress, note: Callable[[str], None]
) -> str | None:
    """Calibrate with visits of the loop's points in between; None, or why the machine was too busy for it.

    Raises InputError where what was measured makes no whole profile: an inherited part is not this device.
    """
    request = CalibrationRequest(kind, load_model(loop.target.shape.name), quick=quick, skip=_NOT_NEEDED)
    try:
        made = calibrate(request, profile, progress, note, loop.between)
    except BusyError as error:
        return f"machine busy: {'; '.join(problem.message for problem in error.problems)}"
    if made.left_out:
        allowed = "a loop is closed on what was measured here alone"
        raise InputError(
            [Problem(message=f"no whole profile: {line}", allowed=allowed) for line in made.left_out]
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
        """Visit so many points that their share of this round is that of the calibration's: each once."""
        if share <= self._share:  # a new round
            self._waiting = [*self.runs]
            self._order.shuffle(self._waiting)
        self._share = share
        left = round((1 - share) * len(self.runs))
        with torch.inference_mode():
            while len(self._waiting) > left:
                self._visit(self._waiting.pop())

    def _visit(self, run: PointRun) -> None:
        """Between reference steps; again when those were disturbed. The reference keeps the steps of all."""
        for attempt in range(1 + _MOST_RETRIES):
            self._repeated += attempt > 0
            steps = self._time_reference()
            pairs = run.visit(self._mode.outcomes, self._mode.visit_s)
            steps += self._time_reference()
            self._reference_s.append(steps)
            if max(steps) <= WIDEST * min(steps):
                break
        run.pairs += pairs

    @property
    def reference(self) -> Reference | None:
        """How steady the machine was; None before it was seen twice."""
        return Reference.of(self._reference_s, self._repeated) if len(self._reference_s) > 1 else None

    def forget(self) -> None:
        """Begin anew."""
        self._share, self._repeated = 1.0, 0
        self._reference_s.clear()
        for run in self.runs:
            run.pairs.clear()

    def _time_reference(self) -> list[float]:
        found = []
        self._reference.restart()
        for step in range(_REFERENCE_STEPS + 1):
            self._clock.restart()
            self._reference.step(self._clock)
            if step:  # the first one warms up
                found.append(sum(self._clock.laps_s()))
        return found
