"""Linear layers y = x·Wᵀ of the target and the drafter, with cold weights, as in a step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from calibration.microbench.lab import DTYPES, Lab
from calibration.microbench.point import BYTES, BenchPoint
from calibration.microbench.subject import BenchSubject, ShapeGrid
from calibration.microbench.timing import Work
from simulator.costs.network import Matrix


def linear_points(subject: BenchSubject, grid: ShapeGrid) -> Iterator[BenchPoint]:
    """Every matrix of the network by tokens; fp8 without quantising x, which `elementwise` times."""
    for matrix in (*subject.network.matrices, subject.network.head):
        if matrix.weights in BYTES:
            for m in grid.tokens:
                yield linear_point(matrix, m)


def linear_point(matrix: Matrix, m: int) -> BenchPoint:
    """One matrix at m tokens."""
    n, k, dtype = matrix.n, matrix.k, matrix.weights
    value_bytes = BYTES[dtype]
    moved_bytes = value_bytes * (n * k + m * k) + BYTES["bf16"] * m * n

    def prepare(lab: Lab) -> Work:
        weights = lab.cold("weights", n, k, dtype=dtype)
        x = lab.random(m, k, dtype=dtype)
        if dtype == "fp8":
            scale = torch.ones((), device=x.device)
            return Work(lambda i: _scaled(x, weights[i % len(weights)], scale), len(weights))
        return Work(lambda i: functional.linear(x, weights[i % len(weights)]), len(weights))

    return BenchPoint(
        "linear",
        matrix.name,
        {"n": n, "k": k, "m": m},
        dtype,
        moved_bytes,
        2.0 * m * n * k,
        moved_bytes,
        prepare,
    )


def _scaled(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """fp8 times fp8 with one scale each, to bf16."""
    return torch._scaled_mm(x, weight.t(), scale_a=scale, scale_b=scale, out_dtype=DTYPES["bf16"])
