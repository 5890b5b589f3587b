"""How far predictions move when the lengths that no source states are halved or doubled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING

from calibration.validation.compare import compare_runs
from calibration.validation.errors import quantile
from calibration.validation.quantities import SPEEDUP
from calibration.validation.reconstruction.published_run import with_assumed_lengths

if TYPE_CHECKING:
    from calibration.validation.reconstruction.published_run import PublishedRun
    from calibration.validation.row import ComparisonRow

FACTORS = (0.5, 2.0)
_QUANTITIES = (SPEEDUP, "throughput", "tpot_mean")


@dataclass(frozen=True)
class LengthEffect:
    """|ln(predicted with other lengths ÷ predicted)| of the rows of one quantity."""

    quantity: str
    factor: float
    n: int
    median: float
    p90: float


def length_effects(
    runs: Sequence[PublishedRun], rows: Sequence[ComparisonRow], pool: Executor | None = None
) -> tuple[LengthEffect, ...]:
    """How much predictions depend on assumed lengths, per quantity and factor.

    `rows` begin with the rows of `runs` as reconstructed, in their order, as `Validation.rows` does.
    """
    affected_runs: list[PublishedRun] = []
    base_rows: list[ComparisonRow] = []
    remaining_rows = iter(rows)
    for run in runs:
        run_rows = list(islice(remaining_rows, len(run.published)))
        if run.assumed_lengths and any(figure.quantity in _QUANTITIES for figure in run.published):
            affected_runs.append(run)
            base_rows += run_rows
    base_predictions = _predicted(base_rows)
    effects = []
    for factor in FACTORS:
        changed_predictions = _predicted(
            compare_runs([with_assumed_lengths(run, factor) for run in affected_runs], pool)
        )
        for quantity in _QUANTITIES:
            moves = [
                abs(math.log(changed_predictions[key] / value))
                for key, value in base_predictions.items()
                if key in changed_predictions and key[1] == quantity
            ]
            if moves:
                effects.append(
                    LengthEffect(quantity, factor, len(moves), median(moves), quantile(moves, 0.9))
                )
    return tuple(effects)


def _predicted(rows: Sequence[ComparisonRow]) -> Mapping[tuple[int, str], float]:
    """(row index, quantity) → predicted value; rows of the same runs have the same order."""
    return {
        (index, row.quantity): row.predicted for index, row in enumerate(rows) if row.predicted is not None
    }
