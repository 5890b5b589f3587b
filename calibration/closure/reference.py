"""The reference step: a plain step that is timed between all points and shows how steady the machine is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

MAX_SPREAD = 1.6
"""P90 ÷ P10 of the reference step above which the machine counts as busy."""
MAX_HALVES_DIFFERENCE = 0.05
"""Relative difference of the medians of odd and even visits above which the run was too short for its
disturbances.
"""


@dataclass(frozen=True)
class Reference:
    """Steadiness of a run.

    `spread`: P90 ÷ P10. `halves`: relative difference of the medians of odd and even visits. `drift`: that of
    the first and the second half of the time. `repeated`: visits repeated because their reference steps
    differed by more than `MAX_SPREAD`; these steps count here, too.

    Calibration and loop are mixed visit by visit, so that a drift affects both alike. It is reported, but not
    a reason to reject the run.
    """

    median_s: float
    spread: float
    halves: float
    drift: float
    n: int
    repeated: int = 0

    @classmethod
    def of(cls, visits: Sequence[Sequence[float]], repeated: int = 0) -> Reference:
        """The reference from the steps of at least two visits, in order of time."""
        seconds = [step for visit in visits for step in visit]
        half = len(visits) // 2
        p10, p90 = np.quantile(seconds, [0.1, 0.9])
        halves, drift = (
            _relative_difference(visits[::2], visits[1::2]),
            _relative_difference(visits[:half], visits[half:]),
        )
        return cls(median(seconds), float(p90 / p10), halves, drift, len(seconds), repeated)

    @property
    def busy(self) -> str | None:
        """Why the machine is too busy for figures; None if it is quiet."""
        if self.spread > MAX_SPREAD:
            return (
                f"machine busy: P90/P10 of the reference step is {self.spread:.2f}, more than {MAX_SPREAD:g}"
            )
        if self.halves > MAX_HALVES_DIFFERENCE:
            return (
                f"machine busy: the reference step differs by {self.halves:.1%} between odd and even "
                f"visits, more than {MAX_HALVES_DIFFERENCE:.0%}"
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


def _relative_difference(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> float:
    """Relative difference of the medians of both halves."""
    a, b = (median(step for visit in half for step in visit) for half in (first, second))
    return abs(a - b) / min(a, b)
