"""What a cell measured in its rounds: figures, and how far they would move if it were measured again.

A cell is measured in rounds, between which the other variants of its load run. A figure is the median of its
rounds, so one disturbed round does not move it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from calibration.engine_loop.matrix import LoopCell
from calibration.engine_loop.raw import Figures
from simulator.numerics.arrays import Floats

ENOUGH_ROUNDS = 3
"""Rounds from which they show themselves how much they differ."""
_OPEN_LOOP_WAVE = 8
"""Consecutive requests that count as one sample where arrivals are at random."""


@dataclass(frozen=True)
class MeasuredCell:
    """The measured side of a cell."""

    figures: Figures
    tpot_rounds_s: tuple[float, ...]
    noise: float | None
    """Relative standard error of the TPOT; None: the cell is too short for one."""

    @classmethod
    def of_rounds(cls, raws: Sequence[Mapping[str, Any]]) -> MeasuredCell:
        """That of the raw files of a cell, one a round."""
        rounds = [Figures.of_raw(raw) for raw in raws]
        tpot_s = tuple(figures.tpot_s for figures in rounds)
        samples = tpot_s if len(raws) >= ENOUGH_ROUNDS else np.concatenate([_wave_tpots_s(r) for r in raws])
        return cls(median_figures(rounds), tpot_s, relative_error(samples))


def median_figures(rounds: Sequence[Figures]) -> Figures:
    """The median of every figure; None where a round lacks it."""
    medians: dict[str, float | None] = {}
    for field in fields(Figures):
        values = [getattr(figures, field.name) for figures in rounds]
        medians[field.name] = None if None in values else float(np.median(values))
    return Figures(**medians)  # type: ignore[arg-type]


def relative_error(samples: Sequence[float] | Floats) -> float | None:
    """Standard error of the mean of samples, as a share of it; None for a single one."""
    if len(samples) < 2:
        return None
    return float(np.std(samples, ddof=1) / math.sqrt(len(samples)) / np.mean(samples))


def _wave_tpots_s(raw: Mapping[str, Any]) -> Floats:
    """Mean TPOT of each wave of concurrent requests: they share their steps, so a wave is one sample."""
    tpots_s = Figures.tpots_s(raw)
    size = LoopCell(**raw["cell"]).clients or _OPEN_LOOP_WAVE
    return np.array([tpots_s[first : first + size].mean() for first in range(0, len(tpots_s), size)])
