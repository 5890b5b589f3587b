"""What costs by rows alone: sampling kernels, and what a layer or a pass does besides its large operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from simulator.numerics.arrays import Floats


@dataclass(frozen=True)
class StreamedRows:
    """Start + `passes` over fp32 rows ÷ (BW·e)."""

    bandwidth_bytes_per_s: float
    start_us: float
    memory_efficiency: float
    passes: float

    def time_us(self, rows: ArrayLike, width: float) -> Floats:
        """µs for rows of `width` values."""
        r = np.asarray(rows, dtype=np.float64)
        moved = self.passes * r * width * 4
        stream = moved / (self.bandwidth_bytes_per_s * self.memory_efficiency) * 1e6
        return np.where(r > 0, self.start_us + stream, 0.0)


@dataclass(frozen=True)
class RowTable:
    """A line, start + each · rows, corrected by what was measured: `us` (j,) at `rows` (j,) of `width` each.

    Between the rows and beyond them the line is followed, as `Gemm` follows its form. For rows of another
    width (values, or bytes) what lies above the starts of kernels grows with the width: above `start_us`, or
    above the least that was measured where that is less.
    """

    rows: Floats
    us: Floats
    width: float
    start_us: float
    per_row_us: float

    def time_us(self, rows: ArrayLike, width: float) -> Floats:
        """µs for rows of `width`; 0 for none."""
        r = np.asarray(rows, dtype=np.float64)
        correction = np.log(self.us / (self.start_us + self.per_row_us * self.rows))
        ratio = np.exp(np.interp(np.log(np.maximum(r, 1e-9)), np.log(self.rows), correction))
        time = (self.start_us + self.per_row_us * r) * ratio
        starts = min(self.start_us, float(self.us.min()))
        return np.where(r > 0, starts + (time - starts) * (width / self.width), 0.0)
