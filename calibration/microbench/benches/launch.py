"""Launches: a kernel with almost no work, launched by the host, and in a chain in a graph."""

from __future__ import annotations

from collections.abc import Iterator

from calibration.microbench.lab import Lab
from calibration.microbench.point import BenchPoint
from calibration.microbench.timing import Work

CHAIN = 200
"""Kernels in a row."""


def launch_points(on_gpu: bool) -> Iterator[BenchPoint]:
    """Seconds of one kernel of the chain; the graph only on a GPU."""
    for op in ("eager", "graph") if on_gpu else ("eager",):

        def prepare(lab: Lab, op: str = op) -> Work:
            value = lab.random(32, dtype="fp32")

            def chain(_: int) -> None:
                for _ in range(CHAIN):
                    value.mul_(1.0)

            return Work(chain, calls=CHAIN, eager=op == "eager")

        yield BenchPoint("launch", op, {"kernels": CHAIN}, "fp32", 256.0, 32.0, 0.0, prepare)
