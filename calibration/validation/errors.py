"""Errors of rows: median and P90 of |ln(predicted ÷ published)|, bias, and agreement on gain or loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from calibration.validation.predict import PLAIN
from calibration.validation.quantities import COST_SHARE, SPEEDUP
from calibration.validation.row import ComparisonRow

SLOWER, FASTER = 0.97, 1.03
"""Published speedups between these bounds count as neither a loss nor a gain."""

Predictor = Callable[[ComparisonRow], float | None]
"""Returns a model's figure for a row; None where the model has none."""


@dataclass(frozen=True)
class ErrorSummary:
    """Errors of compared rows; a field is None where no row counts for it.

    `median_of_sources`: the median over sources of each source's median |log error|. `bias`: mean log error,
    positive when predictions are too high. `sign_balanced_accuracy`: the mean of two shares, those of the
    published losses (`below` of them) and of the published gains (`above`) that are predicted as such
    (`losses_called`, `gains_called`); with one kind only, its share. `median_abs_difference`: for shares of a
    step, in units of the share itself.
    """

    n: int
    sources: int
    skipped: int
    median_abs_log_error: float | None = None
    p90_abs_log_error: float | None = None
    median_of_sources: float | None = None
    bias: float | None = None
    sign_balanced_accuracy: float | None = None
    below: int = 0
    above: int = 0
    losses_called: int = 0
    gains_called: int = 0
    median_abs_difference: float | None = None

    def to_json(self) -> dict[str, Any]:
        """One entry of `summary`."""
        return asdict(self)


def errors_of(
    rows: Iterable[ComparisonRow], predictor: Predictor = lambda row: row.predicted
) -> ErrorSummary:
    """The errors of rows, for the simulation or another predictor.

    A plain run counts once, however many comparisons of its source repeat it.
    """
    rows = list(rows)
    predicted_rows = [
        (row, value) for row in rows if (value := predictor(row)) is not None and row.published > 0
    ]
    if not predicted_rows:
        return ErrorSummary(0, 0, len(rows))
    compared = list(_distinct(predicted_rows))
    logs = [(row.source, math.log(value / row.published)) for row, value in compared]
    abs_errors = [abs(error) for _, error in logs]
    by_source: dict[str, list[float]] = {}
    for source, error in logs:
        by_source.setdefault(source, []).append(abs(error))
    signs = [(row.published, value) for row, value in compared if row.quantity == SPEEDUP]
    differences = [abs(value - row.published) for row, value in compared if row.quantity == COST_SHARE]
    return ErrorSummary(
        n=len(compared),
        sources=len(by_source),
        skipped=len(rows) - len(predicted_rows),
        median_abs_log_error=median(abs_errors),
        p90_abs_log_error=quantile(abs_errors, 0.9),
        median_of_sources=median(median(abs_errors) for abs_errors in by_source.values()),
        bias=math.fsum(error for _, error in logs) / len(logs),
        sign_balanced_accuracy=_balanced(signs),
        below=sum(published < SLOWER for published, _ in signs),
        above=sum(published > FASTER for published, _ in signs),
        losses_called=sum(published < SLOWER and value < 1 for published, value in signs),
        gains_called=sum(published > FASTER and value > 1 for published, value in signs),
        median_abs_difference=median(differences) if differences else None,
    )


def _distinct(predicted_rows: Sequence[tuple[ComparisonRow, float]]) -> Iterator[tuple[ComparisonRow, float]]:
    """The rows; a plain figure that several cases of a source repeat, with equal values, appears once."""
    seen: set[tuple[object, ...]] = set()
    for row, value in predicted_rows:
        key = (row.source, row.quantity, row.load, row.part, row.published, row.predicted)
        if row.variant != PLAIN or key not in seen:
            yield row, value
        seen.add(key)


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile `share` (0…1), linear between order statistics."""
    return float(np.quantile(values, share))


def _balanced(signs: Sequence[tuple[float, float]]) -> float | None:
    """Balanced accuracy of (published, predicted) speedups, over those published clearly below or above 1."""
    below = [value < 1 for published, value in signs if published < SLOWER]
    above = [value > 1 for published, value in signs if published > FASTER]
    shares = [sum(correct) / len(correct) for correct in (below, above) if correct]
    return sum(shares) / len(shares) if shares else None
