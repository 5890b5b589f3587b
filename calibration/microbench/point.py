"""A point of a plan: one operator at one shape, and how to set it up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calibration.measurements import Operation
from calibration.microbench.lab import Lab
from calibration.microbench.timing import Work

BYTES = {"bf16": 2, "fp8": 1, "fp32": 4}
"""Bytes of one value by type."""


@dataclass(frozen=True)
class BenchPoint(Operation):
    """An operation with its setup.

    `holds_bytes`: memory that it needs in addition to the memory that all points share. `prepare` sets it up
    on a device.
    """

    holds_bytes: float
    prepare: Callable[[Lab], Work]
