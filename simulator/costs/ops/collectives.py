"""All-reduce of one tensor-parallel group, as a node of a CUDA graph or launched eagerly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from simulator.costs.ops.numeric import Floats, loglog


@dataclass(frozen=True)
class AllReduce:
    """Measured µs by message bytes: `tables[gpus]` = (bytes (j,), µs (j,)) ascending; log-log.

    A group between two measured sizes takes the next larger one.
    Eager launches start `eager_start_us` later.
    """

    tables: Mapping[int, tuple[Floats, Floats]]
    eager_start_us: float

    def time_us(self, message_bytes: ArrayLike, gpus: int) -> Floats:
        """µs in a graph; 0 for one GPU or an empty message. Never falls as the message grows."""
        size = np.asarray(message_bytes, dtype=np.float64)
        if gpus <= 1 or not self.tables:
            return np.zeros(size.shape)
        known = sorted(self.tables)
        knots, values = self.tables[next((g for g in known if g >= gpus), known[-1])]
        return loglog(size, knots, np.maximum.accumulate(values))
