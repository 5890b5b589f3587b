"""Small kernels by themselves: norm with the residual sum, rope, gated activation, quantising to fp8."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from calibration.decoder.ops import add_norm, rope, rope_tables, silu_mul
from calibration.decoder.shape import DecoderShape
from calibration.microbench.lab import DTYPES, Lab
from calibration.microbench.point import BenchPoint
from calibration.microbench.subject import BenchSubject, ShapeGrid
from calibration.microbench.timing import Work

_BF16 = 2.0
_EPS, _THETA = 1e-5, 1e5


def elementwise_points(subject: BenchSubject, grid: ShapeGrid, fp8: bool) -> Iterator[BenchPoint]:
    """Each kernel by tokens. `layer` measures them between matrices, where they cost more."""
    shape = subject.decoder
    if shape is None:
        return
    for tokens in grid.few_tokens:
        yield _add_norm(shape.hidden, tokens)
        yield _rope(shape, tokens)
        yield _silu_mul(shape.intermediate, tokens)
        if fp8:
            yield _quantise(shape.hidden, tokens)


def _add_norm(width: int, tokens: int) -> BenchPoint:
    def prepare(lab: Lab) -> Work:
        hidden, delta = lab.random(2, 1, tokens, width)
        weight = lab.random(width)
        return Work(lambda _: add_norm(hidden, delta, weight, _EPS))

    return _point("add_norm", tokens, width, 4 * _BF16 * tokens * width, prepare)


def _rope(shape: DecoderShape, tokens: int) -> BenchPoint:
    heads, dim = shape.heads + shape.kv_heads, shape.head_dim

    def prepare(lab: Lab) -> Work:
        turned = lab.random(1, tokens, heads, dim)
        positions = torch.arange(tokens, device=turned.device)[None]
        tables = rope_tables(positions, dim, _THETA, DTYPES["bf16"])
        return Work(lambda _: rope(turned, *tables))

    return _point("rope", tokens, heads * dim, 2 * _BF16 * tokens * heads * dim, prepare)


def _silu_mul(width: int, tokens: int) -> BenchPoint:
    def prepare(lab: Lab) -> Work:
        gate_up = lab.random(1, tokens, 2 * width)
        return Work(lambda _: silu_mul(gate_up))

    return _point("silu_mul", tokens, width, 3 * _BF16 * tokens * width, prepare)


def _quantise(width: int, tokens: int) -> BenchPoint:
    """Quantise to fp8 with one known scale."""

    def prepare(lab: Lab) -> Work:
        x = lab.random(tokens, width)
        scale = torch.ones((), dtype=x.dtype, device=x.device)
        return Work(lambda _: (x * scale).to(DTYPES["fp8"]))

    return _point("quantise", tokens, width, 3.0 * tokens * width, prepare)


def _point(op: str, tokens: int, width: int, moved: float, prepare: Callable[[Lab], Work]) -> BenchPoint:
    return BenchPoint(
        "elementwise", op, {"tokens": tokens, "width": width}, "bf16", moved, 0.0, moved, prepare
    )
