"""Reduces measured curves to small tables: isotonic in tokens, then piecewise log-log lines on few knots."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simulator.numerics.arrays import Floats


def isotonic(values: ArrayLike, weights: ArrayLike) -> Floats:
    """The non-decreasing sequence closest to `values` (n,) in weighted squares: pool adjacent violators."""
    blocks: list[list[float]] = []
    for value, weight in zip(
        np.asarray(values, float).tolist(), np.asarray(weights, float).tolist(), strict=True
    ):
        blocks.append([value, weight, 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, mass, count = blocks.pop()
            previous = blocks[-1]
            total = previous[1] + mass
            previous[0] = (previous[0] * previous[1] + mean * mass) / total
            previous[1], previous[2] = total, previous[2] + count
    return np.concatenate([np.full(int(count), value) for value, _, count in blocks])


def hats(x: Floats, knots: Floats) -> Floats:
    """(n, k) weights of piecewise linear interpolation of `x` (n,) on `knots` (k,), both ascending."""
    eye = np.eye(len(knots))
    return np.stack([np.interp(x, knots, row) for row in eye], axis=1)


def thin(values: Floats, at: Floats, knots: Floats, weights: Floats) -> Floats:
    """Curves (s, n) in µs over `at` (n,) as (s, k) on `knots`: isotonic, log-log least squares, isotonic."""
    basis = hats(np.log(at), np.log(knots))
    root = np.sqrt(weights)
    knot_weights = basis.T @ weights
    rows = []
    for curve in values:
        smooth = isotonic(np.log(curve), weights)
        fitted, *_ = np.linalg.lstsq(basis * root[:, None], smooth * root, rcond=None)
        rows.append(isotonic(fitted, knot_weights))
    return np.exp(np.array(rows))


def significant(values: ArrayLike, digits: int = 3) -> list[float]:
    """Values rounded to significant digits, as Python floats (integers stay short in JSON)."""
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, dtype=np.float64).ravel().tolist()]


def rounded_table(values: Floats, digits: int = 3) -> list[list[float]]:
    """`significant` row by row."""
    return [significant(row, digits) for row in values]
