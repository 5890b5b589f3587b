"""Held-out errors of fitted operators: seeded k-fold cross-validation by shape; each point predicted once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from calibration.silicon_attention import fit_attention, fit_latent
from calibration.silicon_fit import Points, fit_allreduce, fit_experts, fit_gemm
from simulator.costs.profiles import Part, Profile
from simulator.gpu import Gpu
from simulator.numerics.arrays import Floats

FOLDS = 5
SEED = 0


def summary(predicted: Floats, measured: Floats, split: str) -> dict[str, Any]:
    """Errors in per cent of the measured value."""
    error = 100.0 * (predicted / measured - 1.0)
    size = np.abs(error)
    return {
        "split": split,
        "mape_percent": round(float(size.mean()), 2),
        "p50_percent": round(float(np.median(size)), 2),
        "p95_percent": round(float(np.percentile(size, 95)), 1),
        "bias_percent": round(float(error.mean()), 2),
        "n": len(error),
    }


def held_out(
    points: Points,
    shape_keys: tuple[int, ...],
    predictor: Callable[[Points], Callable[[Floats], Floats]],
    unit: str,
    ends: bool = True,
) -> dict[str, Any]:
    """Cross-validate: `predictor(training points)` returns a function from keys (n, d) to µs (n,).

    `ends` False: the first and last shape are never held out, so that nothing is extrapolated.
    """
    keys = list(points)
    shapes = sorted({tuple(key[i] for i in shape_keys) for key in keys})
    shapes = shapes if ends else shapes[1:-1]
    order = np.random.default_rng(SEED).permutation(len(shapes))
    fold_of = {shapes[at]: i % FOLDS for i, at in enumerate(order)}
    predicted, measured = [], []
    for fold in range(FOLDS):
        in_fold = {key: fold_of.get(tuple(key[i] for i in shape_keys)) == fold for key in keys}
        test = [key for key in keys if in_fold[key]]
        train = {key: points[key] for key in keys if not in_fold[key]}
        if not test:
            continue
        predict = predictor(train)
        predicted.append(predict(np.array(test, dtype=np.float64)))
        measured.append(np.array([points[key] for key in test]))
    split = f"{FOLDS} folds by {unit}, seed {SEED}"
    return summary(np.concatenate(predicted), np.concatenate(measured), split)


def gemm_error(points: Points, weights: str, gpu: Gpu, form_only: bool = False) -> dict[str, Any]:
    def predictor(train: Points) -> Callable[[Floats], Floats]:
        operator = _profile(gpu, fit_gemm(train, weights, gpu, "", form_only)).gemm(weights)
        return lambda keys: _by_shape(keys, 2, lambda shape, m: operator.time_us(shape[0], shape[1], m))

    return held_out(points, (0, 1), predictor, "shape (n, k)")


def experts_error(points: Points, weights: str, gpu: Gpu, by_model: bool = False) -> dict[str, Any]:
    """`by_model`: all parallelisms of a model are held out together."""

    def predictor(train: Points) -> Callable[[Floats], Floats]:
        operator = _profile(gpu, fit_experts(train, weights, gpu, "")).experts(weights)

        def time_us(shape: Floats, tokens: Floats) -> Floats:
            h, i, k, e, tp, ep = shape
            return operator.time_us(tokens, h, i / tp, k, e, ep)

        return lambda keys: _by_shape(keys, 6, time_us)

    shape_keys = (0, 1, 2, 3) if by_model else (0, 1, 2, 3, 4, 5)
    return held_out(points, shape_keys, predictor, "model" if by_model else "shape and parallelism")


def attention_error(points: Points, kv_cache: str, gpu: Gpu, every: int = 1) -> dict[str, Any]:
    def predictor(train: Points) -> Callable[[Floats], Floats]:
        part = fit_attention(train, kv_cache, "", every=every)
        operator = _profile(gpu, part).attention(kv_cache)

        def time_us(shape: Floats, rest: Floats) -> Floats:
            heads, kv_heads, dim = shape
            return operator.time_us(rest[:, 0], rest[:, 1], kv_heads, dim, heads / kv_heads)

        return lambda keys: _by_shape(keys, 3, time_us)

    return held_out(points, (0, 1, 2), predictor, "shape (heads, kv_heads, head_dim)")


def latent_error(points: Points, kv_cache: str, gpu: Gpu) -> dict[str, Any]:
    def predictor(train: Points) -> Callable[[Floats], Floats]:
        operator = _profile(gpu, fit_latent(train, kv_cache, "")).latent(kv_cache)
        return lambda keys: _by_shape(keys, 1, lambda s, rest: operator.time_us(rest[:, 0], rest[:, 1], s[0]))

    return held_out(points, (0,), predictor, "heads, least and most kept", ends=False)


def allreduce_error(points: Points, gpu: Gpu) -> dict[str, Any]:
    def predictor(train: Points) -> Callable[[Floats], Floats]:
        operator = _profile(gpu, fit_allreduce(train, {}, "")).allreduce()
        return lambda keys: _by_shape(keys, 1, lambda s, size: operator.time_us(size, int(s[0])))

    return held_out(points, (0, 1), predictor, "message size")


def _profile(gpu: Gpu, part: Part) -> Profile:
    return Profile("held-out", gpu, {part.name: part}, {}, "")


def _by_shape(keys: Floats, split: int, time_us: Callable[[Floats, Floats], Floats]) -> Floats:
    """Evaluate `time_us(shape, rest)` once per distinct shape (first `split` columns) of `keys` (n, d)."""
    out = np.empty(len(keys))
    rows_by_shape: dict[tuple[float, ...], list[int]] = {}
    for i, key in enumerate(keys[:, :split].tolist()):
        rows_by_shape.setdefault(tuple(key), []).append(i)
    for shape, rows in rows_by_shape.items():
        rest = keys[rows, split:]
        out[rows] = time_us(np.array(shape), rest[:, 0] if rest.shape[1] == 1 else rest)
    return out
