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
from simulator.costs.profiles import Part
from simulator.gpu import Gpu
from simulator.models.model import KV_CACHE_BYTES
from simulator.numerics.arrays import Floats

_AXES = ("head_dim", "kv_heads", "batch", "context", "queries")
_PARAMETERS = (
    FormParameter("start_us", 20.0, 0.0, 5000.0),
    FormParameter("memory_efficiency", 0.7, 0.01, 5.0),
    FormParameter("compute_efficiency", 0.3, 0.0005, 2.0),
    FormParameter("per_query_us", 0.5, 0.0, 1000.0),
)
_SWEEPS = 3
_NOISE = 0.03
"""Largest relative change that makes a table monotone; larger falls stay as measured."""
_FAR = 0.25
"""A point is measured again if it is further than this from the form times its neighbours' correction."""


def fit_decode(points: Sequence[Measurement], kv_cache: str, gpu: Gpu) -> FittedPart:
    """The part `attention/<kv>`, by cache and query tokens; the cache is read once for all queries of a
    sequence.

    Query heads of a KV head and query tokens are both rows, so that twice the heads count as twice the
    queries.
    """
    group = min(_group(p) for p in points)
    pairs = [(regrouped, p) for p in points if (regrouped := _regrouped(p, group)) is not None]
    used = [regrouped for regrouped, _ in pairs]
    axes = [sorted({p.shape[name] for p in used}) for name in _AXES]
    solved = solve(_PARAMETERS, lambda x: _form_us(used, _form(x, group, kv_cache, gpu)), us_of(used))
    form = _form(rounded_values(solved.values), group, kv_cache, gpu)
    raw, measured = _table(used, axes, form)
    table = _rising(raw)
    errors = _held_out_errors(table, np.where(measured, raw, np.nan), axes, form)
    residual = errors.summary("each batch, context and query count from its neighbours, on the form")
    residual |= {"noise_percent": noise_percent(used), "intervals": intervals_json(solved.intervals)}
    residual |= {"form_percent": round(100 * float(np.median(np.abs(solved.errors))), 2)}
    names = ("head_dims", "kv_heads", "batches", "contexts", "queries")
    empty = measured.size - int(measured.sum())
    holes = f"; {empty} of {measured.size} points from the form" if empty else ""
    unused = len(points) - len(used)
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
    notes = (
        (f"attention: {unused} points are left out: their number of rows is no integer",) if unused else ()
    )
    far = [
        p
        for (_, p), error in zip(pairs, _distance_from_neighbours(used, solved), strict=True)
        if error > _FAR
    ]
    return FittedPart(part, tuple(far), notes)


def _group(point: Measurement) -> float:
    """Query heads per KV head."""
    return point.shape["heads"] / point.shape["kv_heads"]


def _regrouped(point: Measurement, group: float) -> Measurement | None:
    """The point with `group` query heads per KV head and the same number of rows; None if its query tokens
    are then not an integer.
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
    """Measured µs over the axes, and where they are measured. Holes get the form with the nearest point's
    correction.
    """
    indices = np.array(
        [[axis.index(p.shape[name]) for axis, name in zip(axes, _AXES, strict=True)] for p in points]
    )
    ratio = np.full(tuple(len(axis) for axis in axes), np.nan)
    ratio[tuple(indices.T)] = us_of(points) / _form_us(points, form)
    measured = ~np.isnan(ratio)
    for hole in zip(*np.nonzero(~measured), strict=True):
        nearest = indices[int(np.argmin(np.abs(indices - np.array(hole)).sum(axis=1)))]
        ratio[hole] = ratio[tuple(nearest)]
    d, h, b, c, q = np.meshgrid(*axes, indexing="ij")
    return ratio * form.time_us(b, c, h, d, q), measured


def _rising(table: Floats) -> Floats:
    """The table made monotone in batch, context and queries, where this changes it by no more than noise."""
    smooth = np.log(table)
    for _ in range(_SWEEPS):
        for axis in (2, 3, 4):
            smooth = np.apply_along_axis(lambda row: isotonic(row, np.ones(len(row))), axis, smooth)
    changed = np.abs(smooth - np.log(table))
    return np.where(changed <= _NOISE, np.exp(smooth), table)


def _held_out_errors(
    table: Floats, measured: Floats, axes: Sequence[list[int]], form: AttentionForm
) -> HeldOutErrors:
    """Errors at every inner knot of batch, context and queries, predicted from the table without that knot.

    `measured` is nan where nothing was measured. The form itself was fitted to all points.
    """
    errors = HeldOutErrors()
    for axis in (2, 3, 4):
        for j in range(1, len(axes[axis]) - 1):
            others = [i for i in range(len(axes[axis])) if i != j]
            remaining, held_out = [[list(a) for a in axes] for _ in range(2)]
            remaining[axis], held_out[axis] = [axes[axis][i] for i in others], [axes[axis][j]]
            operator = _operator(np.take(table, others, axis=axis), remaining, form)
            true = np.take(measured, [j], axis=axis)
            for (d, dim), (h, heads) in product(enumerate(axes[0]), enumerate(axes[1])):
                for k, queries in enumerate(held_out[4]):
                    rows = queries * form.group
                    predicted = operator.time_us(
                        np.array(held_out[2])[:, None], np.array(held_out[3]), heads, dim, rows
                    )
                    measured_here = ~np.isnan(true[d, h, :, :, k])
                    errors.add(predicted[measured_here].tolist(), true[d, h, :, :, k][measured_here].tolist())
    return errors


def _operator(table: Floats, axes: Sequence[list[int]], form: AttentionForm) -> MeasuredAttention:
    names = ("head_dims", "kv_heads", "batches", "contexts", "queries")
    arrays = {name: np.array(axis, float) for name, axis in zip(names, axes, strict=True)}
    d, h, b, c, q = np.meshgrid(*arrays.values(), indexing="ij")
    return MeasuredAttention(form=form, log_ratio=np.log(table / form.time_us(b, c, h, d, q)), **arrays)


def _distance_from_neighbours(points: Sequence[Measurement], solved: Solved) -> list[float]:
    """Distance of each point's error of the form from the median error of its neighbours on the grid."""
    keys = [tuple(p.shape[name] for name in _AXES) for p in points]
    axes = [sorted({key[i] for key in keys}) for i in range(len(_AXES))]
    error = dict(zip(keys, solved.errors.tolist(), strict=True))
    distances = []
    for key in keys:
        neighbour_errors = []
        for i, axis in enumerate(axes):
            place = axis.index(key[i])
            for other in axis[max(place - 1, 0) : place] + axis[place + 1 : place + 2]:
                neighbour = (*key[:i], other, *key[i + 1 :])
                neighbour_errors += [error[neighbour]] if neighbour in error else []
        distances.append(abs(error[key] - float(np.median(neighbour_errors))) if neighbour_errors else 0.0)
    return distances


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
    for index in range(len(points) if len(points) > len(used) else 0):
        mask = np.arange(len(points)) != index
        others = solve(used, lambda x, mask=mask: predict(x, flops[mask]), us[mask])  # type: ignore[misc]
        errors.add([float(predict(others.values)[index])], [float(us[index])])
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
