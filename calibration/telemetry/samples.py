"""Measurements of any number in bounded memory: durations for percentiles, blocks for resampling."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable

import numpy as np

from calibration.telemetry.reading import Latency, RoundBlock

_KEPT = 1 << 20
"""Durations that are kept as they are, 8 MiB."""
_BINS_PER_E = 1000
"""Bins per factor of e: each is 0.1 % wide."""
_BLOCKS = 4096
"""Blocks that are kept; beyond them neighbours are merged."""

PERCENTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


class Samples:
    """Durations in s: exact up to a million, from there on in bins of 0.1 %. The mean stays exact."""

    def __init__(self) -> None:
        self._kept = array("d")
        self._bins: Counter[int] = Counter()
        self._count, self._sum = 0, 0.0

    def __len__(self) -> int:
        return self._count

    def add(self, duration_s: float) -> None:
        """One more duration, finite and not negative."""
        self._kept.append(duration_s)
        self._count += 1
        self._sum += duration_s
        if len(self._kept) >= _KEPT:
            self._to_bins()

    def extend(self, durations_s: Iterable[float]) -> None:
        """Several more durations."""
        for duration_s in durations_s:
            self.add(duration_s)

    def latency(self) -> Latency | None:
        """Mean and percentiles (linear between order statistics); None without a sample."""
        if not self._count:
            return None
        mean = self._sum / self._count
        if not self._bins:
            quantiles = np.quantile(np.array(self._kept), list(PERCENTILES.values()))
            percentiles = dict(zip(PERCENTILES, map(float, quantiles), strict=True))
            return Latency({"mean": mean, **percentiles}, self._count)
        self._to_bins()
        bins = np.array(sorted(self._bins))
        below = np.cumsum([self._bins[int(place)] for place in bins])
        at = {name: bins[np.searchsorted(below, share * self._count)] for name, share in PERCENTILES.items()}
        return Latency(
            {"mean": mean, **{name: _middle_s(int(place)) for name, place in at.items()}}, self._count
        )

    def _to_bins(self) -> None:
        durations_s = np.maximum(np.array(self._kept), 1e-12)
        places, counts = np.unique(
            np.floor(np.log(durations_s) * _BINS_PER_E).astype(np.int64), return_counts=True
        )
        self._bins.update(dict(zip(places.tolist(), counts.tolist(), strict=True)))
        self._kept = array("d")


def _middle_s(place: int) -> float:
    return math.exp((place + 0.5) / _BINS_PER_E)


class BlockSeries:
    """Blocks in the order in which they come; neighbours are merged when there are too many to keep.

    A block bootstrap loses nothing by that: it only resamples longer stretches.
    """

    def __init__(self) -> None:
        self._blocks: list[RoundBlock] = []
        self._pending: RoundBlock | None = None
        self._merged, self._in_pending = 1, 0

    def add(self, block: RoundBlock) -> None:
        """One more block."""
        self._pending = block if self._pending is None else _joined(self._pending, block)
        self._in_pending += 1
        if self._in_pending < self._merged:
            return
        self._blocks.append(self._pending)
        self._pending, self._in_pending = None, 0
        if len(self._blocks) >= _BLOCKS:
            pairs = zip(self._blocks[::2], self._blocks[1::2], strict=True)
            self._blocks = [_joined(first, second) for first, second in pairs]
            self._merged *= 2

    def blocks(self) -> tuple[RoundBlock, ...]:
        """All blocks; the last one may be shorter."""
        return (*self._blocks, *([self._pending] if self._pending else []))


def _joined(first: RoundBlock, second: RoundBlock) -> RoundBlock:
    """Two blocks as one; running requests are weighted by rounds."""
    running = None
    if first.running is not None and second.running is not None:
        weights = first.counts.rounds + second.counts.rounds
        weighted = first.running * first.counts.rounds + second.running * second.counts.rounds
        running = weighted / weights if weights else first.running
    return RoundBlock(first.counts + second.counts, running)
