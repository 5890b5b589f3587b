"""The reference step: a plain step timed again and again, between all points, says how steady it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

WIDEST = 1.6
"""P90 / P10 of the reference step above which the machine is busy."""
MOST_APART = 0.05
"""Difference of the medians of both halves of the run above which it changed its speed."""


@dataclass(frozen=True)
class Reference:
    """Steadiness of a run. `spread`: P90 / P10; `halves`: medians of the first and second half apart."""

    median_s: float
    spread: float
    halves: float
    n: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Reference:
        """Of reference steps in the order of time; at least two."""
        half = len(seconds) // 2
        first, second = median(seconds[:half]), median(seconds[half:])
        p10, p90 = np.quantile(seconds, [0.1, 0.9])
        apart = abs(first - second) / min(first, second)
        return cls(median(seconds), float(p90 / p10), apart, len(seconds))

    @property
    def busy(self) -> str | None:
        """Why nothing can be said of this machine now; None where it is quiet."""
        if self.spread > WIDEST:
            return f"machine busy: P90/P10 of the reference step is {self.spread:.2f}, more than {WIDEST:g}"
        if self.halves > MOST_APART:
            return (
                f"machine busy: the reference step differs by {self.halves:.1%} between both halves of "
                f"the run, more than {MOST_APART:.0%}"
            )
        return None

    def to_json(self) -> dict[str, Any]:
        """The entry `reference`."""
        return {
            "median_s": self.median_s,
            "p90_over_p10": self.spread,
            "halves_apart": self.halves,
            "steps": self.n,
        }
