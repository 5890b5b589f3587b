"""What GPUs tell one another: sums of a tensor-parallel group, and tokens sent to experts elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from simulator.costs.ops.numeric import loglog
from simulator.numerics.arrays import Floats


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


@dataclass(frozen=True)
class Exchange:
    """Measured µs of sending tokens to the GPUs of their experts and of bringing the results back (an
    all-to-all each way): `tables[gpus]` = (tokens of one GPU (j,), µs (j,)) ascending, log-log.

    A token has `values`, its hidden values times the experts that it is sent to; a token with others counts
    as more or less than one. GPUs between two measured counts take the next larger one.
    """

    tables: Mapping[int, tuple[Floats, Floats]]
    values: float

    def time_us(self, tokens: ArrayLike, values: float, gpus: int) -> Floats:
        """µs for so many tokens of each GPU; 0 for none. Never falls as they grow."""
        known = sorted(self.tables)
        knots, us = self.tables[next((g for g in known if g >= gpus), known[-1])]
        alike = np.asarray(tokens, dtype=np.float64) * (values / self.values)
        return loglog(alike, knots, np.maximum.accumulate(us))
