"""Robust statistics based on medians: spread, standard errors and outliers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.numerics.arrays import Floats

TO_SD = 1.4826
"""Standard deviation of a normal error whose median absolute value is 1."""
TWO_SIDED = 1.96
"""Half-width of a 95 % interval in standard deviations."""
_OF_MEDIAN = 1.2533
"""Standard error of a median ÷ that of a mean, for normal values."""
FAR_SD = 4.0
"""A value is an outlier if it is off by more than this many robust standard deviations …"""
FAR_MIN = 0.05
"""… and by more than this relative amount, below which no point is worth another measurement."""


def spread(values: Floats) -> float:
    """Robust standard deviation."""
    return TO_SD * float(np.median(np.abs(values - np.median(values))))


def error_of_median(values: Floats) -> float:
    """Standard error of the median."""
    return _OF_MEDIAN * spread(values) / float(np.sqrt(len(values)))


def far_off(errors: Floats) -> NDArray[np.bool_]:
    """Mask (n,) of the errors that are far from their median."""
    limit = max(FAR_SD * spread(errors), FAR_MIN)
    return np.asarray(np.abs(errors - np.median(errors)) > limit, dtype=np.bool_)
