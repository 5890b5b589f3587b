"""A comparison of two variants as people read it: by how much a figure grew, and whether that is good."""

from __future__ import annotations

from simulator.results.catalogue import COMPARED
from simulator.results.estimate import Estimate, Interval

BETTER, WORSE, EVEN = "better", "worse", "even"

_IN_PERCENT = 3.0
"""A figure that grew to this many times itself is not given in percent any more."""


def growth(name: str, ratio: Estimate) -> Estimate:
    """Speculative ÷ plain of the figure that a ratio compares: speedups of times are turned round."""
    if not COMPARED[name].inverted:
        return ratio
    return Estimate(1 / ratio.value, _turned(ratio.ci95), _turned(ratio.band))


def _turned(interval: Interval | None) -> Interval | None:
    return None if interval is None else (1 / interval[1], 1 / interval[0])


def direction(name: str, grown: Estimate) -> str:
    """Better or worse where the whole band says so: more of a rate is better, less of a time."""
    if grown.band is None or grown.band[0] <= 1 <= grown.band[1]:
        return EVEN
    return BETTER if (grown.value > 1) == (COMPARED[name].metric.better > 0) else WORSE


def percent(factor: float) -> str:
    """`+15%`, `−38%`; `× 19` where percent would be hard to read."""
    if factor >= _IN_PERCENT:
        return f"× {factor:.3g}"
    shown = f"{abs(factor - 1):.0%}"
    return shown if shown == "0%" else f"{'+' if factor > 1 else '−'}{shown}"


def percent_range(interval: Interval) -> str:
    """`+5% to +28%`."""
    return " to ".join(map(percent, interval))
