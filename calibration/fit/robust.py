"""Medians in place of means: how far values scatter, and which lie far off, whatever a few of them do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.costs.ops.numeric import Floats

TO_SD = 1.4826
"""Standard deviation of a normal error whose median size is 1."""
TWO_SIDED = 1.96
"""Standard deviations of a 95 % interval."""
_OF_MEDIAN = 1.2533
"""Standard error of a median ÷ that of a mean, normal values."""
FAR_SD = 4.0
"""Robust standard deviations from which a value is an outlier …"""
FAR_LEAST = 0.05
"""… if it is off by this much, relative: below it nothing is worth another measurement."""


def spread(values: Floats) -> float:
    """Robust standard deviation."""
    return TO_SD * float(np.median(np.abs(values - np.median(values))))


def error_of_median(values: Floats) -> float:
    """Standard error of the median of values that scatter."""
    return _OF_MEDIAN * spread(values) / float(np.sqrt(len(values)))


def far_off(errors: Floats) -> NDArray[np.bool_]:
    """Which errors lie far from their median."""
    limit = max(FAR_SD * spread(errors), FAR_LEAST)
    return np.asarray(np.abs(errors - np.median(errors)) > limit, dtype=np.bool_)
