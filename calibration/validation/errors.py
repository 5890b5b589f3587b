"""What errors are made of rows: medians and tails of |ln(predicted ÷ published)|, bias, who was faster."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from calibration.validation.predict import PLAIN
from calibration.validation.quantities import COST_SHARE, SPEEDUP
from calibration.validation.row import Row

SLOWER, FASTER = 0.95, 1.05
"""Published speedups between these say neither."""

Predictor = Callable[[Row], float | None]
"""What some model says of a row; None where it says nothing."""


@dataclass(frozen=True)
class Errors:
    """Errors of compared rows; None where there are no rows to tell.

    `median_of_sources`: the median over sources of each source's median |log error|. `bias`: mean log error,
    above 0 when too much is predicted. `sign_balanced_accuracy`: the mean of the shares of published
    slow-downs (`below` of them) and gains (`above`) that are predicted as such; of one kind alone, its share.
    `median_abs_difference`: for shares of a step, which are small, in units of the figure itself.
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
    median_abs_difference: float | None = None

    def to_json(self) -> dict[str, Any]:
        """One entry of `summary`."""
        return asdict(self)


def errors_of(rows: Iterable[Row], predictor: Predictor = lambda row: row.predicted) -> Errors:
    """The errors of rows, of the simulation or of another predictor. A plain run counts once, beside however
    many others its source repeats it.
    """
    rows = list(rows)
    told = [(row, value) for row in rows if (value := predictor(row)) is not None and row.published > 0]
    if not told:
        return Errors(0, 0, len(rows))
    compared = list(_distinct(told))
    logs = [(row.source, math.log(value / row.published)) for row, value in compared]
    sizes = [abs(error) for _, error in logs]
    by_source: dict[str, list[float]] = {}
    for source, error in logs:
        by_source.setdefault(source, []).append(abs(error))
    signs = [(row.published, value) for row, value in compared if row.quantity == SPEEDUP]
    differences = [abs(value - row.published) for row, value in compared if row.quantity == COST_SHARE]
    return Errors(
        n=len(compared),
        sources=len(by_source),
        skipped=len(rows) - len(told),
        median_abs_log_error=median(sizes),
        p90_abs_log_error=quantile(sizes, 0.9),
        median_of_sources=median(median(sizes) for sizes in by_source.values()),
        bias=math.fsum(error for _, error in logs) / len(logs),
        sign_balanced_accuracy=_balanced(signs),
        below=sum(published < SLOWER for published, _ in signs),
        above=sum(published > FASTER for published, _ in signs),
        median_abs_difference=median(differences) if differences else None,
    )


def _distinct(told: Sequence[tuple[Row, float]]) -> Iterator[tuple[Row, float]]:
    """The rows; of plain figures that cases of a source repeat, published and predicted alike, the first."""
    seen: set[tuple[object, ...]] = set()
    for row, value in told:
        key = (row.source, row.quantity, row.load, row.part, row.published, row.predicted)
        if row.variant != PLAIN or key not in seen:
            yield row, value
        seen.add(key)


def quantile(values: Sequence[float], share: float) -> float:
    """Linear between order statistics."""
    return float(np.quantile(values, share))


def _balanced(signs: Sequence[tuple[float, float]]) -> float | None:
    """Balanced accuracy of (published, predicted) speedups over those that are clearly below or above 1."""
    below = [value < 1 for published, value in signs if published < SLOWER]
    above = [value > 1 for published, value in signs if published > FASTER]
    shares = [sum(right) / len(right) for right in (below, above) if right]
    return sum(shares) / len(shares) if shares else None
