"""The draft length by the number of requests in a step, in the form that scenarios and vLLM take.

The schedule takes the K with the most tokens per second at each load, from closed loops of every K on common
random numbers, interpolated between loads. A new row begins only where the next K gains more than `MIN_GAIN`,
so that noise and ties make no rows. Near the batch of the peak, K does not exceed the one that was chosen
there, because that one meets the SLO.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.capacity.grid import LoadPoint

ScheduleRow = tuple[int, int | None, int]
"""(first, last, K): first and last number of requests in the step, inclusive; None: no upper end."""

MIN_GAIN = 0.01
"""Least gain of a change of K, as a fraction of the throughput."""
PEAK_BATCH_SHARE = 0.5
"""Share of the peak's mean batch that counts as near the peak, because the batch often falls to it."""


@dataclass(frozen=True)
class Schedule:
    """Draft length by batch."""

    rows: tuple[ScheduleRow, ...]

    def to_json(self) -> list[list[int | None]]:
        """`[[1, 15, 5], [16, 63, 3], [64, null, 0]]`."""
        return [list(row) for row in self.rows]

    def draft_length(self, batch: int) -> int:
        """K at a number of requests in the step."""
        return next(
            length for low, high, length in self.rows if low <= batch and (high is None or batch <= high)
        )

    def boundaries_within(self, low: float, high: float) -> list[int]:
        """First batches of the rows that begin inside a range of batches."""
        return [first_batch for first_batch, _, _ in self.rows[1:] if low < first_batch <= high]


def schedule_of(
    points: Mapping[int, Sequence[LoadPoint]],
    longest: int | None = None,
    peak_batch: float = math.inf,
) -> Schedule:
    """The schedule from closed loops by draft length, all at the same loads.

    From `PEAK_BATCH_SHARE` × `peak_batch` on, K does not exceed `longest`, which is also the initial K.
    """
    loads = [point.concurrency for point in next(iter(points.values()))]
    logs = {k: [math.log(point.tokens_per_s) for point in row] for k, row in points.items()}
    current = -1 if longest is None else longest
    starts: list[tuple[int, int]] = []
    for batch in _batches(loads):
        near_peak = longest is not None and batch >= PEAK_BATCH_SHARE * peak_batch
        log_throughputs = {
            k: _interpolated(loads, values, batch)
            for k, values in logs.items()
            if longest is None or not near_peak or k <= longest
        }
        best = max(log_throughputs, key=lambda k: (log_throughputs[k], -k))
        if current not in log_throughputs or log_throughputs[best] - log_throughputs[current] > math.log1p(
            MIN_GAIN
        ):
            current = best
        if not starts or starts[-1][1] != current:
            starts.append((batch, current))
    ends = [*(first - 1 for first, _ in starts[1:]), None]
    return Schedule(tuple((first, end, k) for (first, k), end in zip(starts, ends, strict=True)))


def _batches(loads: Sequence[int]) -> list[int]:
    """Every batch up to 64, then batches about 2 % apart."""
    batches, batch = [], 1
    while batch <= loads[-1]:
        batches.append(batch)
        batch = max(batch + 1, round(batch * 1.02))
    return batches


def _interpolated(loads: Sequence[int], values: Sequence[float], batch: int) -> float:
    """The value at a batch, interpolated linearly over the logarithm of the load."""
    for (low, below), (high, above) in zip(
        zip(loads, values, strict=True), zip(loads[1:], values[1:], strict=True), strict=False
    ):
        if low <= batch <= high:
            return below + (above - below) * math.log(batch / low) / math.log(high / low)
    return values[-1]
