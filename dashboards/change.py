"""A comparison of two variants as people read it: by how much a figure grew, and whether that is good."""

from __future__ import annotations

from simulator.results.catalogue import COMPARED
from simulator.results.estimate import Estimate, Interval

BETTER, WORSE, EVEN = "better", "worse", "even"

_IN_PERCENT = 3.0
"""A figure that grew to this many times itself is not given in percent any more."""


def after_to_before(name: str, ratio: Estimate) -> Estimate:
    """Speculative ÷ plain of the figure that a ratio compares: speedups of times are turned round."""
    if not COMPARED[name].inverted:
        return ratio
    return Estimate(1 / ratio.value, _inverted_interval(ratio.ci95), _inverted_interval(ratio.band))


def _inverted_interval(interval: Interval | None) -> Interval | None:
    return None if interval is None else (1 / interval[1], 1 / interval[0])


def direction(name: str, ratio: Estimate) -> str:
    """Better or worse where the whole band says so: more of a rate is better, less of a time."""
    if ratio.band is None or ratio.band[0] <= 1 <= ratio.band[1]:
        return EVEN
    return BETTER if (ratio.value > 1) == (COMPARED[name].metric.better > 0) else WORSE


def percent(factor: float) -> str:
    """`+15%`, `−38%`; `× 19` where percent would be hard to read."""
    if factor >= _IN_PERCENT:
        return f"× {factor:.3g}"
    percent_text = f"{abs(factor - 1):.0%}"
    return percent_text if percent_text == "0%" else f"{'+' if factor > 1 else '−'}{percent_text}"


def percent_range(interval: Interval) -> str:
    """`+5% to +28%`."""
    return " to ".join(map(percent, interval))
