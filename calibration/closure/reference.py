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
"""Difference of the medians of odd and even visits above which the run was too short for what happened."""


@dataclass(frozen=True)
class Reference:
    """Steadiness of a run. `spread`: P90 / P10; `halves`: how far the medians of odd and even visits are
    apart; `drift`: those of the first and the second half of the time; `repeated`: visits made again because
    their own reference steps differed by more than `WIDEST`, whose steps count here all the same.

    Calibration and loop are mixed visit by visit, so that both meet a drift alike; it is told, and no reason
    to refuse.
    """

    median_s: float
    spread: float
    halves: float
    drift: float
    n: int
    repeated: int = 0

    @classmethod
    def of(cls, visits: Sequence[Sequence[float]], repeated: int = 0) -> Reference:
        """Of the reference steps of visits in the order of time; at least two."""
        seconds = [step for visit in visits for step in visit]
        half = len(visits) // 2
        p10, p90 = np.quantile(seconds, [0.1, 0.9])
        halves, drift = _apart(visits[::2], visits[1::2]), _apart(visits[:half], visits[half:])
        return cls(median(seconds), float(p90 / p10), halves, drift, len(seconds), repeated)

    @property
    def busy(self) -> str | None:
        """Why nothing can be said of this machine now; None where it is quiet."""
        if self.spread > WIDEST:
            return f"machine busy: P90/P10 of the reference step is {self.spread:.2f}, more than {WIDEST:g}"
        if self.halves > MOST_APART:
            return (
                f"machine busy: the reference step differs by {self.halves:.1%} between odd and even "
                f"visits, more than {MOST_APART:.0%}"
            )
        return None

    def to_json(self) -> dict[str, Any]:
        """The entry `reference`."""
        return {
            "median_s": self.median_s,
            "p90_over_p10": self.spread,
            "split_halves_apart": self.halves,
            "drift": self.drift,
            "steps": self.n,
            "visits_repeated": self.repeated,
        }


def _apart(some: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> float:
    """Relative difference of the medians of both halves."""
    one, other = (median(step for visit in half for step in visit) for half in (some, others))
    return abs(one - other) / min(one, other)
