"""What costs by rows alone: sampling kernels, and what a layer or a pass does besides its large operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from simulator.costs.ops.numeric import Floats


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
    """Measured µs (j,) at `rows` (j,) of `width` each (values, or bytes); a line from knot to knot, and on
    with the mean slope beyond the last.

    For rows of another width what lies above the first row's time grows with the width: that time itself is
    starts of kernels.
    """

    rows: Floats
    us: Floats
    width: float

    @property
    def start_us(self) -> float:
        return float(self.us[0])

    def time_us(self, rows: ArrayLike, width: float) -> Floats:
        """µs for rows of `width`; 0 for none."""
        r = np.asarray(rows, dtype=np.float64)
        time = np.interp(r, self.rows, self.us)
        if len(self.rows) > 1:
            slope = (self.us[-1] - self.us[0]) / (self.rows[-1] - self.rows[0])
            time = time + np.maximum(r - self.rows[-1], 0.0) * max(float(slope), 0.0)
        else:
            time = time * np.maximum(r / self.rows[-1], 1.0)
        return np.where(r > 0, self.us[0] + (time - self.us[0]) * (width / self.width), 0.0)
