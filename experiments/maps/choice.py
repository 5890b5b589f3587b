"""The best method and draft length at a given acceptance, and the cost of any other choice."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from experiments.maps.study_map import SettingValue, StudyMap
from simulator.results.estimate import Estimate

Option = tuple[str, int | None]
"""A variant and its draft length; `PLAIN` is plain decoding."""

PLAIN: Option = ("plain", 0)


@dataclass(frozen=True)
class Choice:
    """The options at one load and place. `speedups`: option → throughput ÷ that of plain decoding."""

    load: float
    place: tuple[SettingValue, ...]
    speedups: Mapping[Option, Estimate]

    @property
    def best(self) -> Option:
        """The option with the largest throughput."""
        return max(self.speedups, key=lambda option: self.speedups[option].value)

    def regret(self, option: Option) -> Estimate:
        """The fraction of the best throughput that this option loses; 0 for the best.

        The sampling interval treats both speedups as independent, which is conservative on common random
        numbers. The band assumes the same error of the cost model for all speculative options.
        """
        speedup, best = self.speedups[option], self.speedups[self.best]
        value = 1 - speedup.value / best.value
        spread = math.hypot(_spread(speedup), _spread(best)) if option != self.best else 0.0
        half = (1 - value) * spread
        band_ends = [
            1 - _end(speedup, end) / max(_end(speedup, end) for speedup in self.speedups.values())
            for end in (0, 1)
        ]
        interval = (value - half, value + half)
        return Estimate(value, interval, interval).with_model_range(*band_ends).clipped(0.0, 1.0)

    def as_good(self, within: float) -> tuple[Option, ...]:
        """The options that lose at most this fraction, the best one first."""
        options = [option for option in self.speedups if self.regret(option).value <= within]
        return tuple(sorted(options, key=lambda option: -self.speedups[option].value))


def choices(study_map: StudyMap, alpha: float, variants: Collection[str] | None = None) -> tuple[Choice, ...]:
    """The choice at every load and place where all options (of these variants) have a speedup at `alpha`."""
    variants_at_alpha = {cell.variant for cell in study_map.cells if alpha in cell.speedups}
    options_by_place: dict[tuple[tuple[SettingValue, ...], float], dict[Option, Estimate | None]] = {}
    for cell in study_map.cells:
        if cell.variant in variants_at_alpha and (variants is None or cell.variant in variants):
            options = options_by_place.setdefault((cell.place, cell.load), {})
            options[cell.variant, cell.draft_length] = cell.speedups.get(alpha)
    plain = Estimate(1.0, (1.0, 1.0), (1.0, 1.0))
    return tuple(
        Choice(
            load, place, {PLAIN: plain} | {option: speedup for option, speedup in options.items() if speedup}
        )
        for (place, load), options in options_by_place.items()
        if all(options.values())
    )


def _spread(speedup: Estimate) -> float:
    """Relative half-width of the sampling interval; 0 where none is known."""
    return speedup.relative_half_width if speedup.ci95 is not None else 0.0


def _end(speedup: Estimate, end: int) -> float:
    return speedup.value if speedup.band is None else speedup.band[end]
