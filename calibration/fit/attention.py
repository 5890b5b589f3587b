"""Attention: decode and verify as a table over (batch, context, queries), prompts as a rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from calibration.fit.parts import (
    US,
    FittedPart,
    HeldOutErrors,
    column,
    intervals_json,
    nested,
    noise_percent,
    rounded_values,
    us_of,
)
from calibration.fit.solve import FormParameter, Solved, solve
from calibration.measurements import Measurement
from calibration.smoothing import isotonic
from simulator.costs.ops.attention import AttentionForm, MeasuredAttention
from simulator.costs.ops.numeric import Floats
from simulator.costs.profiles import Part
from simulator.gpu import Gpu
from simulator.models.model import KV_CACHE_BYTES

_AXES = ("head_dim", "kv_heads", "batch", "context", "queries")
_PARAMETERS = (
    FormParameter("start_us", 20.0, 0.0, 5000.0),
    FormParameter("memory_efficiency", 0.7, 0.01, 5.0),
    FormParameter("compute_efficiency", 0.3, 0.0005, 2.0),
    FormParameter("per_query_us", 0.5, 0.0, 1000.0),
)
_SWEEPS = 3
_NOISE = 0.03
"""By how much, relative, a table may be moved to make it rise; what falls by more stays as measured."""
_FAR = 0.25
"""A point further from the form times its neighbours' correction than this is measured again."""


def fit_decode(points: Sequence[Measurement], kv_cache: str, gpu: Gpu) -> FittedPart:
    """The part `attention/<kv>`: by cache and query tokens, the cache read once for all of a sequence.

    Heads of a KV head and query tokens are rows alike: what has twice the heads counts as twice the queries.
    """
    group = min(_group(p) for p in points)
    pairs = [(as_one, p) for p in points if (as_one := _regrouped(p, group)) is not None]
    kept = [as_one for as_one, _ in pairs]
    axes = [sorted({p.shape[name] for p in kept}) for name in _AXES]
    solved = solve(_PARAMETERS, lambda x: _form_us(kept, _form(x, group, kv_cache, gpu)), us_of(kept))
    form = _form(rounded_values(solved.values), group, kv_cache, gpu)
    raw, known = _table(kept, axes, form)
    table = _rising(raw)
    errors = _left_out(table, np.where(known, raw, np.nan), axes, form)
    residual = errors.summary("each batch, context and query count from its neighbours, on the form")
    residual |= {"noise_percent": noise_percent(kept), "intervals": intervals_json(solved.intervals)}
    residual |= {"form_percent": round(100 * float(np.median(np.abs(solved.errors))), 2)}
    names = ("head_dims", "kv_heads", "batches", "contexts", "queries")
    empty = known.size - int(known.sum())
    holes = f"; {empty} of {known.size} points from the form" if empty else ""
    others = len(points) - len(kept)
    part = Part(
        name=f"attention/{kv_cache}",
        status="measured",
        source="torch attention, several query tokens a sequence, cold cache",
        coefficients={"group": group} | rounded_values(solved.values),
        table={name: [int(x) for x in axis] for name, axis in zip(names, axes, strict=True)}
        | {"us": nested(table)},
        residual=residual,
        note=f"head_dims, kv_heads, batches, contexts, queries; {group:g} query heads per KV head{holes}",
    )
    notes = (f"attention: {others} points have no whole number of rows and are left out",) if others else ()
    far = [p for (_, p), error in zip(pairs, _lonely(kept, solved), strict=True) if error > _FAR]
    return FittedPart(part, tuple(far), notes)


def _group(point: Measurement) -> float:
    """Query heads per KV head."""
    return point.shape["heads"] / point.shape["kv_heads"]


def _regrouped(point: Measurement, group: float) -> Measurement | None:
    """The point as if it had `group` query heads per KV head, with as many rows; None when that is no whole
    number of query tokens.
    """
    queries = point.shape["queries"] * _group(point) / group
    if queries == point.shape["queries"]:
        return point
    return replace(point, shape={**point.shape, "queries": int(queries)}) if queries.is_integer() else None


def _form(x: Mapping[str, float], group: float, kv_cache: str, gpu: Gpu) -> AttentionForm:
    return AttentionForm(
        bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
        flops_per_s=gpu.peak_flops_per_s["bf16"],
        cache_bytes=KV_CACHE_BYTES[kv_cache],
        group=group,
        **x,
    )


def _form_us(points: Sequence[Measurement], form: AttentionForm) -> Floats:
    dim, kv_heads, batch, context, queries = (column(points, name) for name in _AXES)
    return form.time_us(batch, context, kv_heads, dim, queries)


def _table(
    points: Sequence[Measurement], axes: Sequence[list[int]], form: AttentionForm
) -> tuple[Floats, NDArray[np.bool_]]:
    """Measured µs over the axes; holes take the form, corrected as at the nearest point that was measured."""
    at = np.array(
        [[axis.index(p.shape[name]) for axis, name in zip(axes, _AXES, strict=True)] for p in points]
    )
    ratio = np.full(tuple(len(axis) for axis in axes), np.nan)
    ratio[tuple(at.T)] = us_of(points) / _form_us(points, form)
    known = ~np.isnan(ratio)
    for hole in zip(*np.nonzero(~known), strict=True):
        nearest = at[int(np.argmin(np.abs(at - np.array(hole)).sum(axis=1)))]
        ratio[hole] = ratio[tuple(nearest)]
    d, h, b, c, q = np.meshgrid(*axes, indexing="ij")
    return ratio * form.time_us(b, c, h, d, q), known


def _rising(table: Floats) -> Floats:
    """The table made to rise with batch, context and queries, where that changes no more than noise does."""
    smooth = np.log(table)
    for _ in range(_SWEEPS):
        for axis in (2, 3, 4):
            smooth = np.apply_along_axis(lambda row: isotonic(row, np.ones(len(row))), axis, smooth)
    changed = np.abs(smooth - np.log(table))
    return np.where(changed <= _NOISE, np.exp(smooth), table)


def _left_out(
    table: Floats, measured: Floats, axes: Sequence[list[int]], form: AttentionForm
) -> HeldOutErrors:
    """What was measured (nan: not) at every inner knot of batch, context and queries, and what the form says
    with the corrections of the table without it. The form itself has seen all.
    """
    errors = HeldOutErrors()
    for axis in (2, 3, 4):
        for j in range(1, len(axes[axis]) - 1):
            kept = [i for i in range(len(axes[axis])) if i != j]
            fewer, held = [[list(a) for a in axes] for _ in range(2)]
            fewer[axis], held[axis] = [axes[axis][i] for i in kept], [axes[axis][j]]
            operator = _operator(np.take(table, kept, axis=axis), fewer, form)
            true = np.take(measured, [j], axis=axis)
            for (d, dim), (h, heads) in product(enumerate(axes[0]), enumerate(axes[1])):
                for k, queries in enumerate(held[4]):
                    rows = queries * form.group
                    found = operator.time_us(np.array(held[2])[:, None], np.array(held[3]), heads, dim, rows)
                    there = ~np.isnan(true[d, h, :, :, k])
                    errors.add(found[there].tolist(), true[d, h, :, :, k][there].tolist())
    return errors


def _operator(table: Floats, axes: Sequence[list[int]], form: AttentionForm) -> MeasuredAttention:
    names = ("head_dims", "kv_heads", "batches", "contexts", "queries")
    arrays = {name: np.array(axis, float) for name, axis in zip(names, axes, strict=True)}
    d, h, b, c, q = np.meshgrid(*arrays.values(), indexing="ij")
    return MeasuredAttention(form=form, log_ratio=np.log(table / form.time_us(b, c, h, d, q)), **arrays)


def _lonely(points: Sequence[Measurement], solved: Solved) -> list[float]:
    """How far each point's error of the form is from the median of its neighbours' on the grid."""
    keys = [tuple(p.shape[name] for name in _AXES) for p in points]
    axes = [sorted({key[i] for key in keys}) for i in range(len(_AXES))]
    error = dict(zip(keys, solved.errors.tolist(), strict=True))
    found = []
    for key in keys:
        near = []
        for i, axis in enumerate(axes):
            at = axis.index(key[i])
            for other in axis[max(at - 1, 0) : at] + axis[at + 1 : at + 2]:
                neighbour = (*key[:i], other, *key[i + 1 :])
                near += [error[neighbour]] if neighbour in error else []
        found.append(abs(error[key] - float(np.median(near))) if near else 0.0)
    return found


def fit_prompts(points: Sequence[Measurement], gpu: Gpu) -> FittedPart:
    """The part `prefill`: attention of prompts by (query, key) pairs, as the step counts them."""
    batch, tokens, heads, dim = (column(points, name) for name in ("batch", "tokens", "heads", "head_dim"))
    flops = batch * tokens * tokens / 2 * 4.0 * heads * dim
    us = us_of(points)
    parameters = (
        FormParameter("compute_efficiency", 0.3, 1e-4, 2.0),
        FormParameter("start_us", 20.0, 0.0, 1e5),
    )
    used = parameters[: min(len(points), 2)]

    def predict(x: Mapping[str, float], of: Floats = flops) -> Floats:
        return x.get("start_us", 0.0) + US * of / (gpu.peak_flops_per_s["bf16"] * x["compute_efficiency"])

    errors = HeldOutErrors()
    for out in range(len(points) if len(points) > len(used) else 0):
        kept = np.arange(len(points)) != out
        others = solve(used, lambda x, kept=kept: predict(x, flops[kept]), us[kept])  # type: ignore[misc]
        errors.add([float(predict(others.values)[out])], [float(us[out])])
    solved = solve(used, predict, us)
    residual = errors.summary("each prompt from the others") | {"noise_percent": noise_percent(points)}
    part = Part(
        name="prefill",
        status="measured",
        source="torch scaled_dot_product_attention, causal, no earlier context",
        coefficients={"start_us": 0.0} | rounded_values(solved.values) | {"memory_efficiency": 0.0},
        table={},
        residual=residual | {"intervals": intervals_json(solved.intervals)},
    )
    return FittedPart(part)
