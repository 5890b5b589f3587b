"""The draft length by the number of requests in a step, in the form that scenarios and vLLM take.

From closed loops of every K on common luck: the K with the most tokens per second at each load, between loads
on the straight line. A row changes only where the next K gains more than `MARGIN`, so that noise and ties
make no rows, and engines do not change to and fro for nothing. Near the batch of the peak no K is longer than
the one that was chosen there, as that keeps the SLO.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.capacity.grid import Point

Row = tuple[int, int | None, int]
"""[first, last, K] by requests in the step, both included; last None: without end."""

MARGIN = 0.01
"""What a change of K must gain, as a fraction of the throughput."""
NEAR = 0.5
"""Share of the mean batch at the peak that the batch often falls to there."""


@dataclass(frozen=True)
class Schedule:
    """The rows, and the loads at which K changes."""

    rows: tuple[Row, ...]

    def to_json(self) -> list[list[int | None]]:
        """`[[1, 15, 5], [16, 63, 3], [64, null, 0]]`."""
        return [list(row) for row in self.rows]

    def draft_length(self, batch: int) -> int:
        """K at a number of requests in the step."""
        return next(
            length for low, high, length in self.rows if low <= batch and (high is None or batch <= high)
        )

    def boundaries_within(self, low: float, high: float) -> list[int]:
        """First batches of rows that begin strictly inside a range of batches."""
        return [first for first, _, _ in self.rows[1:] if low < first <= high]


def schedule_of(
    points: Mapping[int, Sequence[Point]],
    longest: int | None = None,
    peak_batch: float = math.inf,
) -> Schedule:
    """The schedule of closed loops by draft length; each has the same loads.

    From `NEAR` of `peak_batch` on, no K is longer than `longest`, which is also the K to be beaten first.
    """
    loads = [point.concurrency for point in next(iter(points.values()))]
    logs = {k: [math.log(point.tokens_per_s) for point in row] for k, row in points.items()}
    current = -1 if longest is None else longest
    starts: list[tuple[int, int]] = []
    for batch in _batches(loads):
        near = longest is not None and batch >= NEAR * peak_batch
        here = {
            k: _interpolated(loads, values, batch)
            for k, values in logs.items()
            if longest is None or not near or k <= longest
        }
        best = max(here, key=lambda k: (here[k], -k))
        if current not in here or here[best] - here[current] > math.log1p(MARGIN):
            current = best
        if not starts or starts[-1][1] != current:
            starts.append((batch, current))
    ends = [*(first - 1 for first, _ in starts[1:]), None]
    return Schedule(tuple((first, end, k) for (first, k), end in zip(starts, ends, strict=True)))


def _batches(loads: Sequence[int]) -> list[int]:
    """Every batch up to 64, then about 2 % apart."""
    batches, batch = [], 1
    while batch <= loads[-1]:
        batches.append(batch)
        batch = max(batch + 1, round(batch * 1.02))
    return batches


def _interpolated(loads: Sequence[int], values: Sequence[float], batch: int) -> float:
    """The value at a batch, straight between the logarithms of the loads."""
    for (low, below), (high, above) in zip(
        zip(loads, values, strict=True), zip(loads[1:], values[1:], strict=True), strict=False
    ):
        if low <= batch <= high:
            return below + (above - below) * math.log(batch / low) / math.log(high / low)
    return values[-1]
