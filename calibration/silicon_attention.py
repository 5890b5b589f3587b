"""Fits of the attention operators from public kernel tables: decode, latent, prefill, streamed states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibration.silicon_fit import Points, least_squares_fit, nested
from calibration.smoothing import significant
from simulator.costs.profiles import Part
from simulator.gpu import Gpu
from simulator.numerics.arrays import Floats

_OUTLIER_FACTOR = 1.5
"""A point that is this many times slower than its neighbour with more work is an outlier."""


def fit_attention(
    points: Points,
    kv_cache: str,
    source: str,
    windows: Points | None = None,
    penalties: Points | None = None,
    every: int = 1,
) -> Part:
    """Decode attention from points (heads, kv_heads, head_dim, batch, context) → µs: median over heads.

    `windows`: the same keys followed by the window. `penalties`: points of a framework with more than 64
    query heads per KV head, for the cost of a second tile of rows. Unmeasured cells (large batch × long
    context) are extrapolated with the bytes of the cache. `every` = n: only every n-th context counted from
    the last one, and the first.
    """
    by_cell: dict[tuple[int, ...], list[float]] = {}
    for (_, *cell), value in points.items():
        by_cell.setdefault(tuple(cell), []).append(value)
    axes = [sorted({cell[i] for cell in by_cell}) for i in range(4)]
    heads, dims, batches, contexts = axes
    time = np.full((len(dims), len(heads), len(batches), len(contexts)), np.nan)
    for (kv, dim, batch, context), values in by_cell.items():
        time[dims.index(dim), heads.index(kv), batches.index(batch), contexts.index(context)] = np.median(
            values
        )
    for d in range(len(dims)):
        for h in range(len(heads)):
            time[d, h] = _extend(time[d, h], np.array(batches, float), np.array(contexts, float))
    time = _monotone(time, (3, 2))
    selected = sorted({0, *range(len(contexts) - 1, -1, -every)})
    time, contexts = time[:, :, :, selected], [contexts[i] for i in selected]
    coefficients = {"compute_efficiency": 0.58, "tile_penalty": _tile_penalty(penalties or {})}
    for dim in dims:
        coefficients[f"window_factor_{dim}"] = _window_factor(points, windows or {}, dim)
    return Part(
        name=f"attention/{kv_cache}",
        status="measured",
        source=source,
        coefficients=coefficients,
        table={
            "head_dims": dims,
            "kv_heads": heads,
            "batches": batches,
            "contexts": contexts,
            "us": nested(time),
        },
        residual={},
        note="median over query heads (g·q <= 64 rows: no effect on held-out head counts)",
    )


def _tile_penalty(points: Points) -> float:
    """Additional relative time per tile of 64 rows: 96 or 128 query heads on one KV head against 32, above 30
    µs.
    """
    ratios = []
    for (heads, kv_heads, *rest), value in points.items():
        base = points.get((32, 1, *rest))
        if kv_heads == 1 and heads > 64 and base is not None and base > 30.0:
            ratios.append(value / base - 1.0)
    return significant([float(np.median(ratios))])[0] if ratios else 0.15


def _window_factor(full: Points, windows: Points, dim: int) -> float:
    """Median ratio of windowed attention (contexts beyond the window) to full attention over the window."""
    ratios = []
    for (*shape, context, window), value in windows.items():
        base = full.get((*shape, min(context, window)))
        if shape[2] == dim and context > window and base is not None:
            ratios.append(value / base)
    return significant([max(1.0, float(np.median(ratios)))])[0] if ratios else 1.0


def fit_latent(points: Points, kv_cache: str, source: str) -> Part:
    """MLA decode from points (heads, batch, context) → µs."""
    axes = [sorted({key[i] for key in points}) for i in range(3)]
    rows, batches, contexts = axes
    time = np.full(tuple(len(axis) for axis in axes), np.nan)
    for (head, batch, context), value in points.items():
        time[rows.index(head), batches.index(batch), contexts.index(context)] = value
    for r in range(len(rows)):
        time[r] = _extend(time[r], np.array(batches, float), np.array(contexts, float))
    time = _monotone(time, (2, 1, 0))
    return Part(
        name=f"mla/{kv_cache}",
        status="measured",
        source=source,
        coefficients={},
        table={"rows": rows, "batches": batches, "contexts": contexts, "us": nested(time)},
        residual={},
        note="core kernel in absorbed form, without projections; rows = heads per GPU × query tokens",
    )


def fit_prefill(points: Points, gpu: Gpu, source: str) -> Part:
    """Prefill attention from points (batch, prompt, heads, kv_heads, head_dim) → µs.

    All batches are used, to separate the start of the kernel from the time of each prompt.
    """
    keys = np.array(
        [key for key in points if key[0] * key[1] <= 32768 and key[1] >= 64 and key[2] >= 8], dtype=np.float64
    )
    target = np.log([points[tuple(int(x) for x in key)] for key in keys])
    batch, prompt, heads, kv_heads, head_dim = keys.T
    compute = 2.0 * batch * heads * head_dim * prompt * (prompt + 1) / gpu.peak_flops_per_s["bf16"] * 1e6
    moved = 4.0 * batch * prompt * (heads + kv_heads) * head_dim / gpu.hbm_bandwidth_bytes_per_s * 1e6

    def error(x: Floats) -> Floats:
        return np.asarray(np.log(x[0] + compute / x[1] + moved / x[2]) - target)

    start, arithmetic, memory = least_squares_fit(
        error, [15.0, 0.6, 0.5], [1.0, 0.1, 0.05], [100.0, 1.0, 1.0]
    )
    residuals = np.exp(error(np.array([start, arithmetic, memory]))) - 1.0
    return Part(
        name="prefill",
        status="measured",
        source=source,
        coefficients={
            "start_us": start,
            "compute_efficiency": arithmetic,
            "memory_efficiency": memory,
        },
        table={},
        residual={
            "split": "none: three coefficients",
            "mape_percent": round(100.0 * float(np.abs(residuals).mean()), 1),
            "bias_percent": round(100.0 * float(residuals.mean()), 1),
            "n": len(keys),
        },
        note="causal; per layer: the start once for all chunks of a step, 4·heads·head_dim FLOPs a "
        "(query, key) pair, 4·(heads + kv_heads)·head_dim bytes a token",
    )


def fit_streamed(states: Sequence[tuple[float, float]], gpu: Gpu, source: str) -> Part:
    """State layers from (bytes moved, µs): start + bytes / (bandwidth · efficiency)."""
    moved, us = (np.array(column) for column in zip(*states, strict=True))

    def error(x: Floats) -> Floats:
        return np.asarray(np.log((x[0] + moved / (gpu.hbm_bandwidth_bytes_per_s * x[1]) * 1e6) / us))

    start, efficiency = least_squares_fit(error, [6.0, 0.8], [1.0, 0.2], [30.0, 1.0])
    mape = 100.0 * float(np.abs(np.exp(error(np.array([start, efficiency]))) - 1.0).mean())
    return Part(
        name="streamed",
        status="measured",
        source=source,
        coefficients={"start_us": start, "memory_efficiency": efficiency, "compute_efficiency": 0.5},
        table={},
        residual={"split": "none: two coefficients", "mape_percent": round(mape, 1), "n": len(us)},
        note="gated delta net; a state is read once and written once per query token; used for states, "
        "indexers and compressed caches too (assumed there)",
    )


def _extend(time: Floats, batches: Floats, contexts: Floats) -> Floats:
    """Fill the (b, c) cells beyond the measured ones: the time above the start grows in proportion to the
    tokens, from the previous context or else the previous batch.
    """
    out = time.copy()
    start = np.nanmin(out)
    for b in range(len(batches)):
        for c in range(len(contexts)):
            if np.isnan(out[b, c]):
                previous = out[b, c - 1] if c else out[b - 1, c]
                ratio = contexts[c] / contexts[c - 1] if c else batches[b] / batches[b - 1]
                out[b, c] = start + (previous - start) * ratio
    return out


def _monotone(time: Floats, axes: tuple[int, ...]) -> Floats:
    """The times made monotone along `axes`. A point far above one with more work is an outlier and is
    lowered.
    """
    out = time.copy()
    for axis in axes:
        next_times = np.roll(out, -1, axis=axis)
        last = [slice(None)] * out.ndim
        last[axis] = slice(-1, None)
        next_times[tuple(last)] = np.inf
        out = np.where(out > _OUTLIER_FACTOR * next_times, next_times, out)
    for axis in axes:
        out = np.maximum.accumulate(out, axis=axis)
    return out
