"""Which method and draft length is best at a given acceptance, and what any other choice costs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from experiments.maps.study_map import Setting, StudyMap
from simulator.results.estimate import Estimate

Option = tuple[str, int | None]
"""An variant and its draft length; `PLAIN` decodes without drafts."""

PLAIN: Option = ("plain", 0)


@dataclass(frozen=True)
class Choice:
    """What is best at one load and place. `speedups`: option → throughput ÷ that of plain decoding."""

    load: float
    place: tuple[Setting, ...]
    speedups: Mapping[Option, Estimate]

    @property
    def best(self) -> Option:
        """The option with the largest throughput; plain decoding where none is faster."""
        return max(self.speedups, key=lambda option: self.speedups[option].value)

    def regret(self, option: Option) -> Estimate:
        """The share of the best throughput that this option gives away, 0 for the best.

        The sampling interval takes both speedups for independent, though on common luck they hardly are. The
        band takes the cost model to err alike for all options: it moves them against plain decoding only.
        """
        mine, best = self.speedups[option], self.speedups[self.best]
        value = 1 - mine.value / best.value
        spread = math.hypot(_spread(mine), _spread(best)) if option != self.best else 0.0
        half = (1 - value) * spread
        ends = [
            1 - _end(mine, end) / max(_end(speedup, end) for speedup in self.speedups.values())
            for end in (0, 1)
        ]
        around = (value - half, value + half)
        return Estimate(value, around, around).with_model_range(*ends).clipped(0.0, 1.0)

    def as_good(self, within: float) -> tuple[Option, ...]:
        """The options that give away at most this share, the best one first."""
        found = [option for option in self.speedups if self.regret(option).value <= within]
        return tuple(sorted(found, key=lambda option: -self.speedups[option].value))


def choices(of: StudyMap, alpha: float, variants: Collection[str] | None = None) -> tuple[Choice, ...]:
    """The choice at every load and place where all options (of these variants) have a speedup at `alpha`."""
    known = {cell.variant for cell in of.cells if alpha in cell.speedups}
    found: dict[tuple[tuple[Setting, ...], float], dict[Option, Estimate | None]] = {}
    for cell in of.cells:
        if cell.variant in known and (variants is None or cell.variant in variants):
            options = found.setdefault((cell.place, cell.load), {})
            options[cell.variant, cell.draft_length] = cell.speedups.get(alpha)
    plain = Estimate(1.0, (1.0, 1.0), (1.0, 1.0))
    return tuple(
        Choice(
            load, place, {PLAIN: plain} | {option: speedup for option, speedup in options.items() if speedup}
        )
        for (place, load), options in found.items()
        if all(options.values())
    )


def _spread(speedup: Estimate) -> float:
    """Relative half-width of the sampling interval; 0 where none is known."""
    return speedup.relative_half_width if speedup.ci95 is not None else 0.0


def _end(speedup: Estimate, end: int) -> float:
    return speedup.value if speedup.band is None else speedup.band[end]
