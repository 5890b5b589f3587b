"""When the first requests of a burst are served, which separates the front end from the engine.

An engine that serves a burst of equal requests at an even pace has answered the share x of them by a + x · b.
The mean and the P99 of the TTFT give a, which does not depend on the engine's pace b.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from calibration.validation.row import ComparisonRow

BEGINNING = "ttft_begin"
_MEAN, _P99 = "ttft_mean", "ttft_p99"
_BURST = "saturation"


def beginnings(rows: Sequence[ComparisonRow]) -> Iterator[ComparisonRow]:
    """A row for every burst whose mean and P99 give a beginning, published and predicted."""
    p99 = {_key(row): row for row in rows if row.quantity == _P99}
    for mean in rows:
        tail = p99.get(_key(mean))
        if mean.quantity != _MEAN or mean.load != _BURST or tail is None:
            continue
        if mean.predicted is None or tail.predicted is None:
            continue
        published = _begin_s(mean.published, tail.published)
        predicted = _begin_s(mean.predicted, tail.predicted)
        if published > 0 and predicted > 0:
            ratio = predicted / published
            yield replace(mean, quantity=BEGINNING, published=published, predicted=predicted, ratio=ratio)


def _begin_s(mean_s: float, p99_s: float) -> float:
    """The a of a + x · b, whose mean is at x = 0.5 and whose P99 is at x = 0.99."""
    return (0.99 * mean_s - 0.5 * p99_s) / 0.49


def _key(row: ComparisonRow) -> tuple[object, ...]:
    return row.case_id, row.point, row.variant
