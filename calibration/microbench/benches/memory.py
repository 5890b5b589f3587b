"""Memory: bandwidth of reads, of copies (one read, one written) and of triads a = b + s·c (two read)."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from calibration.microbench.lab import Lab
from calibration.microbench.point import BenchPoint
from calibration.microbench.subject import ShapeGrid
from calibration.microbench.timing import Work

_FP32 = 4
_ARRAYS = {"read": 1, "copy": 2, "triad": 3}
"""Arrays that each op reads or writes once."""


def memory_points(grid: ShapeGrid) -> Iterator[BenchPoint]:
    """Each op on fp32 arrays of the grid's sizes; bytes are the sum over its arrays."""
    for size in grid.memory_bytes:
        for op, arrays in _ARRAYS.items():

            def prepare(lab: Lab, op: str = op, size: int = size) -> Work:
                return _work(lab, op, size // _FP32)

            # Its three arrays exist once, whereas other benches need two copies of `holds_bytes`.
            holds = 3.0 * size / 2
            yield BenchPoint("memory", op, {"bytes": size}, "fp32", arrays * size, 0.0, holds, prepare)


def _work(lab: Lab, op: str, values: int) -> Work:
    a, b, c = lab.shared("memory", 3, values, dtype="fp32")
    if op == "read":
        return Work(lambda _: a.sum())
    if op == "copy":
        return Work(lambda _: a.copy_(b))
    return Work(lambda _: torch.add(b, c, alpha=3.0, out=a))
