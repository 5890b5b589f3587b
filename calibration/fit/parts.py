"""Shared by all fits: fitted parts, held-out errors, columns and noise of points, rounding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibration.fit.robust import error_of_median
from calibration.measurements import Measurement
from simulator.costs.profiles import Part
from simulator.numerics.arrays import Floats

DIGITS = 4
US = 1e6

LIMITS: Mapping[str, float] = {
    "gemm": 10.0,
    "attention": 12.0,
    "prefill": 30.0,
    "experts": 30.0,
    "allreduce": 25.0,
    "elementwise": 8.0,
    "pass": 30.0,
    "sampler": 30.0,
    "draft_sampler": 30.0,
}
"""Family → the largest median error in per cent, on points left out of the table, with which a part is
accepted.

For `elementwise` it is the error of a complete layer in place. Samplers and preparation are a few per cent of
a step, and their times jump where a buffer outgrows an allocator's cache, so that a few points determine them
badly.
"""


@dataclass(frozen=True)
class FittedPart:
    """A part of a profile, the points that do not fit, and notes."""

    part: Part
    suspects: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def refusal(self) -> str | None:
        """Why the part is refused; None if its residual is within the limit."""
        family = self.part.name.partition("/")[0]
        limit, error = LIMITS.get(family), self.part.residual.get("p50_percent")
        if limit is None or error is None or error <= limit:
            return None
        split = self.part.residual["split"]
        return f"{self.part.name}: median error {error:g} % ({split}), more than the limit of {limit:g} %"


@dataclass
class HeldOutErrors:
    """Pairs of predicted and measured times of held-out points, collected point by point."""

    predicted: list[float] = field(default_factory=list)
    measured: list[float] = field(default_factory=list)

    def add(self, predicted: Iterable[float], measured: Iterable[float]) -> None:
        self.predicted += list(predicted)
        self.measured += list(measured)

    def summary(self, split: str) -> dict[str, Any]:
        """The residual entry of a part; empty without points."""
        from calibration.heldout import summary

        if not self.measured:
            return {}
        return summary(np.array(self.predicted), np.array(self.measured), split)


def us_of(points: Sequence[Measurement]) -> Floats:
    return np.array([point.seconds for point in points]) * US


def noise(point: Measurement) -> float:
    """Relative standard error of a point's time, from its rounds; 0 with a single round."""
    rounds = np.array(point.rounds_s)
    return error_of_median(rounds / np.median(rounds)) if len(rounds) > 1 else 0.0


def noise_percent(points: Sequence[Measurement]) -> float:
    """The median of `noise` over points."""
    return round(100 * float(np.median([noise(point) for point in points])), 2) if points else 0.0


def column(points: Sequence[Measurement], name: str) -> Floats:
    """One number of every point's shape, (n,)."""
    return np.array([point.shape[name] for point in points], dtype=np.float64)


def intervals_json(intervals: Mapping[str, tuple[float, float]]) -> dict[str, list[float]]:
    """Intervals as in a residual entry."""
    return {name: [rounded(low), rounded(high)] for name, (low, high) in intervals.items()}


def rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def rounded_values(values: Mapping[str, float]) -> dict[str, float]:
    return {name: rounded(value) for name, value in values.items()}


def nested(values: Floats) -> Any:
    """An array as nested lists of numbers with `DIGITS` significant digits."""
    return rounded(float(values)) if values.ndim == 0 else [nested(row) for row in values]
