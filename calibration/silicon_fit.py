"""Fits the parts of a profile to public kernel tables: one function per operator family, from points to
`Part`.

Every function is deterministic and accepts any subset of shapes, so that held-out errors (`heldout.py`) come
from the same code that makes the profile. SciPy is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from calibration.smoothing import rounded_table, significant, thin
from simulator.costs.ops.experts import ExpertsForm
from simulator.costs.ops.gemm import GemmForm
from simulator.costs.profiles import ARITHMETIC, Part, experts_smooth
from simulator.gpu import Gpu
from simulator.models.matrices import weight_bytes_each
from simulator.numerics.arrays import Floats

Points = Mapping[tuple[int, ...], float]

GEMM_KNOTS = (1, 16, 32, 64, 65, 96, 128, 129, 192, 256, 257, 512, 513, 768, 1024, 1536, 2048, 3072, 4096)
"""Token counts kept per shape; both sides of a tile edge, because some kernels jump there."""
MOE_KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
ALIGNED_WEIGHT = 4.0
"""Relative weight of token counts that serving engines use (multiples of 64, or few tokens)."""


def grid(points: Points, split: int) -> tuple[Floats, Floats, Floats]:
    """(shapes (s, split), last axis (n,), values (s, n) with NaN for gaps) of points keyed by shape and last
    axis.
    """
    shapes = sorted({key[:split] for key in points})
    axis = sorted({key[split] for key in points})
    values = np.full((len(shapes), len(axis)), np.nan)
    row = {shape: i for i, shape in enumerate(shapes)}
    column = {x: j for j, x in enumerate(axis)}
    for key, value in points.items():
        values[row[key[:split]], column[key[split]]] = value
    return np.array(shapes, dtype=np.float64), np.array(axis, dtype=np.float64), values


def fit_gemm(points: Points, weights: str, gpu: Gpu, source: str, form_only: bool = False) -> Part:
    """Linear layers from points (n, k, m) → µs; shapes with a gap are left out. `form_only`: no table."""
    shapes, tokens, values = grid(points, 2)
    complete = ~np.isnan(values).any(axis=1)
    shapes, values = shapes[complete], values[complete]
    quantised = ARITHMETIC[weights] == "fp8"
    names = [
        "start_us",
        "memory_efficiency",
        "compute_efficiency",
        "smoothness",
        "per_k_us",
        "quantise_efficiency",
    ]
    low, high = [0.5, 0.5, 0.2, 1.0, 0.0, 0.05], [30.0, 1.0, 1.0, 12.0, 2e-3, 1.0]
    start = [4.0, 0.9, 0.7, 2.0, 2e-4, 0.5]
    count = 6 if quantised else 5

    def form(x: Sequence[float]) -> GemmForm:
        return GemmForm(
            bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
            flops_per_s=gpu.peak_flops_per_s[ARITHMETIC[weights]],
            weight_bytes=weight_bytes_each(weights),
            activation_bytes=1.0 if quantised else 2.0,
            **dict(zip(names, x, strict=False)),
        )

    target = np.log(values)

    def error(x: Floats) -> Floats:
        predicted = form(x.tolist()).time_us(shapes[:, :1], shapes[:, 1:], tokens[None, :])
        return np.asarray((np.log(predicted) - target).ravel())

    best = least_squares_fit(error, start[:count], low[:count], high[:count])
    return Part(
        name=f"gemm/{weights}",
        status="measured",
        source=source,
        coefficients=dict(zip(names, best, strict=False)),
        table={} if form_only else _gemm_table(shapes, tokens, values),
        residual={},
        note="m tokens, n outputs, k inputs; isotonic in m; quantising activations included for fp8",
    )


def _gemm_table(shapes: Floats, tokens: Floats, values: Floats) -> dict[str, Any]:
    weight = np.where((tokens < 64) | (tokens % 64 == 0), ALIGNED_WEIGHT, 1.0)
    knots = np.array([k for k in GEMM_KNOTS if tokens[0] <= k <= tokens[-1]], dtype=np.float64)
    return {
        "knots": [int(k) for k in knots],
        "shapes": [[int(n), int(k)] for n, k in shapes],
        "us": rounded_table(thin(values, tokens, knots, weight)),
    }


def fit_experts(points: Points, weights: str, gpu: Gpu, source: str) -> Part:
    """Routed experts from points (hidden, intermediate, per token, experts, tp, ep, tokens) → µs."""
    shapes, tokens, values = grid(points, 6)
    names = ["start_us", "memory_efficiency", "compute_efficiency", "smoothness", "per_expert_us", "skew"]
    low, high = [5.0, 0.3, 0.02, 1.0, 0.0, 0.7], [100.0, 1.0, 1.0, 8.0, 1.0, 1.0]
    start = [30.0, 0.9, 0.5, 1.5, 0.1, 0.95]

    def form(x: Sequence[float]) -> ExpertsForm:
        return ExpertsForm(
            bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
            flops_per_s=gpu.peak_flops_per_s[ARITHMETIC[weights]],
            weight_bytes=weight_bytes_each(weights),
            activation_bytes=1.0 if ARITHMETIC[weights] == "fp8" else 2.0,
            **dict(zip(names, x, strict=True)),
        )

    measured = ~np.isnan(values)
    target = np.log(np.where(measured, values, 1.0))

    def error(x: Floats) -> Floats:
        predicted = np.log(experts_smooth(form(x.tolist()), shapes, tokens))
        return np.asarray(np.where(measured, predicted - target, 0.0).ravel())

    best = least_squares_fit(error, start, low, high)
    knots = np.array([k for k in MOE_KNOTS if tokens[0] <= k <= tokens[-1]], dtype=np.float64)
    rows = [_thin_with_gaps(values[i], tokens, knots) for i in range(len(shapes))]
    return Part(
        name=f"experts/{weights}",
        status="measured",
        source=source,
        coefficients=dict(zip(names, best, strict=True)),
        table={
            "knots": [int(k) for k in knots],
            "shapes": [[int(x) for x in shape] for shape in shapes],
            "us": rounded_table(np.array(rows)),
        },
        residual={},
        note="shapes: hidden, intermediate, experts per token, experts, moe tp, moe ep; routing kernels "
        "included; skewed routing (power law 1.01)",
    )


def fit_allreduce(graph: Points, eager: Points, source: str) -> Part:
    """All-reduce from points (gpus, bytes) → µs, as a graph node and launched eagerly."""
    table: dict[str, Any] = {}
    for gpus in sorted({key[0] for key in graph}):
        rows = sorted((key[1], value) for key, value in graph.items() if key[0] == gpus)
        sizes = [size for size, _ in rows]
        smooth = np.maximum.accumulate(np.array([value for _, value in rows]))
        table[str(gpus)] = {"bytes": sizes, "us": significant(smooth)}
    eager_extra_us = [
        eager[key] - value for key, value in graph.items() if key in eager and key[1] <= 1 << 16
    ]
    return Part(
        name="allreduce",
        status="measured",
        source=source,
        coefficients={
            "eager_start_us": significant([float(np.median(eager_extra_us))] if eager_extra_us else [0.0])[0]
        },
        table=table,
        residual={},
        note="one NVSwitch node; bf16 messages",
    )


def least_squares_fit(
    error: Callable[[Floats], Floats], start: list[float], low: list[float], high: list[float]
) -> list[float]:
    """Robust least squares, rounded to four significant digits so that every machine makes the same file."""
    from scipy.optimize import least_squares

    scale = np.array(start)
    solution = least_squares(
        lambda x: error(x * scale),
        np.ones(len(start)),
        bounds=(np.array(low) / scale, np.array(high) / scale),
        loss="soft_l1",
        f_scale=0.1,
    )
    values = np.where(solution.x < 1e-6, 0.0, solution.x) * scale
    return significant(values, 4)


def _thin_with_gaps(values: Floats, tokens: Floats, knots: Floats) -> Floats:
    measured = ~np.isnan(values)
    rows = thin(values[None, measured], tokens[measured], knots, np.ones(int(measured.sum())))
    return np.asarray(rows[0], dtype=np.float64)


def nested(values: Floats) -> Any:
    if values.ndim == 1:
        return significant(values)
    return [nested(row) for row in values]
