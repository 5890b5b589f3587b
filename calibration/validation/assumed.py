"""How far predictions move when the lengths that no source says are halved or doubled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING

from calibration.validation.errors import quantile
from calibration.validation.quantities import SPEEDUP
from calibration.validation.run import run_trials
from calibration.validation.trials.trial import with_assumed_lengths

if TYPE_CHECKING:
    from calibration.validation.row import Row
    from calibration.validation.trials.trial import Trial

FACTORS = (0.5, 2.0)
_ASKED = (SPEEDUP, "throughput", "tpot_mean")


@dataclass(frozen=True)
class Move:
    """|ln(predicted with other lengths ÷ predicted)| of the rows of one quantity."""

    quantity: str
    factor: float
    n: int
    median: float
    p90: float


def moves(trials: Sequence[Trial], rows: Sequence[Row], pool: Executor | None = None) -> tuple[Move, ...]:
    """What hangs on assumed lengths, per quantity and factor.

    `rows` begin with those of the trials as they stand, in their order, as those of their `Validation` do.
    """
    asked: list[Trial] = []
    known: list[Row] = []
    ahead = iter(rows)
    for trial in trials:
        own = list(islice(ahead, len(trial.published)))
        if trial.assumed_lengths and any(one.quantity in _ASKED for one in trial.published):
            asked.append(trial)
            known += own
    base = _predicted(known)
    found = []
    for factor in FACTORS:
        other = _predicted(run_trials([with_assumed_lengths(trial, factor) for trial in asked], pool))
        for quantity in _ASKED:
            sizes = [
                abs(math.log(other[key] / value))
                for key, value in base.items()
                if key in other and key[1] == quantity
            ]
            if sizes:
                found.append(Move(quantity, factor, len(sizes), median(sizes), quantile(sizes, 0.9)))
    return tuple(found)


def _predicted(rows: Sequence[Row]) -> Mapping[tuple[int, str], float]:
    """(index of the row, quantity) → what was predicted; the rows of the same trials have the same order."""
    return {
        (index, row.quantity): row.predicted for index, row in enumerate(rows) if row.predicted is not None
    }
