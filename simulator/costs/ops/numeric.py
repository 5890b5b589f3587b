"""The few numeric forms that all operators share: smooth maximum,
log-log tables, neighbours in shape space.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.numerics.arrays import Floats

_NEAR = 0.3
"""Octaves within which neighbouring shapes weigh alike (`neighbour_weights`); chosen on held-out shapes."""


def smooth_max(x: ArrayLike, y: ArrayLike, p: float) -> Floats:
    """(x^p + y^p)^(1/p) for x, y >= 0: p = 1 adds,
    p to infinity takes the maximum. Scaled, so no overflow.
    """
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    high, low = np.maximum(a, b), np.minimum(a, b)
    ratio = np.divide(low, high, out=np.zeros(np.broadcast(a, b).shape), where=high > 0)
    return high * (1.0 + ratio**p) ** (1.0 / p)


def loglog(x: ArrayLike, knots: ArrayLike, values: ArrayLike) -> Floats:
    """Piecewise log-log interpolation; beyond the last knot proportional to x, below the first constant.

    Proportional because everything tabulated by tokens is bound by arithmetic at the last knot. 0 at x = 0.
    """
    at = np.asarray(x, dtype=np.float64)
    k, v = np.asarray(knots, dtype=np.float64), np.asarray(values, dtype=np.float64)
    inside = np.exp(np.interp(np.log(np.maximum(at, 1e-9)), np.log(k), np.log(v)))
    beyond = np.where(at > k[-1], at / k[-1], 1.0)
    return np.where(at > 0, inside * beyond, 0.0)


def neighbour_weights(points: Floats, at: Floats) -> Floats:
    """Weights (n,) of the rows of `points` (n, d) for a query `at` (d,), in octaves: 1 / (distance² +
    0.3²)².

    A row that equals the query takes all the weight: a shape that was measured is read, not interpolated.
    """
    distance2 = ((points - at) ** 2).sum(axis=1)
    exact = distance2 < 1e-12
    weights = exact.astype(np.float64) if exact.any() else 1.0 / (distance2 + _NEAR**2) ** 2
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def grid_lookup(values: Floats, axes: tuple[Floats, ...], at: tuple[Floats, ...]) -> Floats:
    """Multilinear interpolation of `values` (n1, …, nd) at broadcast points; clipped to the axes.

    Axes and points are given in whatever coordinate is to be linear (logarithms here).
    """
    shape = np.broadcast_shapes(*(np.shape(x) for x in at))
    lower: list[NDArray[np.intp]] = []
    share: list[Floats] = []
    for axis, x in zip(axes, at, strict=True):
        if len(axis) == 1:
            lower.append(np.zeros(np.shape(x), dtype=np.intp))
            share.append(np.zeros(np.shape(x)))
            continue
        index = np.clip(np.searchsorted(axis, x, side="right") - 1, 0, len(axis) - 2)
        lower.append(index)
        share.append(np.clip((x - axis[index]) / (axis[index + 1] - axis[index]), 0.0, 1.0))
    total = np.zeros(shape)
    for corner in np.ndindex(*(2 if len(axis) > 1 else 1 for axis in axes)):
        weight: Floats = np.ones(())
        for side, part in zip(corner, share, strict=True):
            weight = weight * (part if side else 1.0 - part)
        total = total + weight * values[tuple(i + side for i, side in zip(lower, corner, strict=True))]
    return total
