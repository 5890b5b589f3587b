"""Least-squares fit of a form to measured times: parameters with 95 % intervals, and outliers.

Errors are logarithmic, because times span four decades. A first, robust pass finds outliers; the second pass
leaves them out, and its Jacobian gives the intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.fit.robust import FAR_MIN, far_off
from simulator.numerics.arrays import Floats

_CONFIDENCE = 0.975
_AT_BOUND = 1e-6


@dataclass(frozen=True)
class FormParameter:
    """A parameter of a form, with the start and the bounds of its search."""

    name: str
    start: float
    low: float
    high: float


@dataclass(frozen=True)
class Solved:
    """Fitted values by name, 95 % intervals of those that the data determine, errors ln(predicted ÷ measured)
    (n,), and the mask (n,) of outliers.

    A value at a bound has no interval: the data only show that it lies beyond.
    """

    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    errors: Floats
    outliers: NDArray[np.bool_]


def solve(
    parameters: Sequence[FormParameter],
    predict: Callable[[Mapping[str, float]], Floats],
    measured: Floats,
) -> Solved:
    """Fit `predict(values) -> (n,)` to `measured` (n,). Raises ValueError for too few points."""
    from scipy.optimize import least_squares

    if len(measured) < len(parameters):
        raise ValueError(f"{len(measured)} points do not determine {len(parameters)} parameters")
    scale = np.array([max(parameter.start, 1e-12) for parameter in parameters])
    low, high = (np.array([getattr(p, end) for p in parameters]) / scale for end in ("low", "high"))
    target = np.log(measured)

    def named(x: Floats) -> dict[str, float]:
        return {p.name: float(value) for p, value in zip(parameters, x * scale, strict=True)}

    def errors(x: Floats) -> Floats:
        return np.asarray(np.log(np.maximum(predict(named(x)), 1e-12)) - target)

    rough = least_squares(
        errors, np.clip(1.0, low, high), bounds=(low, high), loss="soft_l1", f_scale=FAR_MIN
    )
    outliers = far_off(errors(rough.x))
    if (~outliers).sum() <= len(parameters):
        outliers[:] = False
    start = np.clip(rough.x, low, high)
    fine = least_squares(lambda x: errors(x)[~outliers], start, bounds=(low, high), x_scale="jac")
    values = named(np.where(fine.x < _AT_BOUND, 0.0, fine.x) if (low <= 0).any() else fine.x)
    return Solved(values, _intervals(parameters, fine, scale, low, high), errors(fine.x), outliers)


def _intervals(
    parameters: Sequence[FormParameter], fine: object, scale: Floats, low: Floats, high: Floats
) -> dict[str, tuple[float, float]]:
    from scipy.stats import t

    x, jacobian, residuals = (np.asarray(getattr(fine, name)) for name in ("x", "jac", "fun"))
    free = (x - low > _AT_BOUND * np.maximum(1, np.abs(low))) & (high - x > _AT_BOUND * high)
    degrees = len(residuals) - int(free.sum())
    if degrees < 1 or not free.any():
        return {}
    used = jacobian[:, free]
    try:
        covariance = np.linalg.inv(used.T @ used) * (residuals @ residuals) / degrees
    except np.linalg.LinAlgError:
        return {}
    half = float(t.ppf(_CONFIDENCE, degrees)) * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    intervals = {}
    for parameter, middle, width, unit, lower, upper in zip(
        np.array(parameters)[free], x[free], half, scale[free], low[free], high[free], strict=True
    ):
        ends = max(middle - width, lower) * unit, min(middle + width, upper) * unit
        intervals[parameter.name] = (float(ends[0]), float(ends[1]))
    return intervals
