"""What is to be measured: a point is one operator at one shape, and how to set it up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from calibration.measurements import point_key
from calibration.microbench.lab import Lab
from calibration.microbench.timing import Work

BYTES = {"bf16": 2, "fp8": 1, "fp32": 4}
"""Bytes of one value by type."""


@dataclass(frozen=True)
class Point:
    """One operator at one shape. `bytes` and `flops` of one call.

    `holds_bytes`: memory it needs besides what all points share; `prepare` sets it up on a device.
    """

    bench: str
    op: str
    shape: Mapping[str, int]
    dtype: str
    bytes: float
    flops: float
    holds_bytes: float
    prepare: Callable[[Lab], Work]

    @property
    def key(self) -> str:
        """As the key of its rows."""
        return point_key(self.bench, self.op, self.shape, self.dtype)
