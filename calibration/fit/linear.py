"""Linear layers: a form for shapes nobody measured, and what was measured as a table on it.

Between the measured token counts the form carries the curve (`Gemm.follows_form`): bf16 kernels are affine in
m to 1 %, where a log-log line is 1 % too high between octaves. A kernel that takes longer for fewer tokens is
kept as it is where the data insist (fp32 on CPUs has a pattern in m modulo 4, which no knots but all show).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.fit.parts import (
    US,
    FittedPart,
    HeldOutErrors,
    intervals_json,
    nested,
    noise,
    noise_percent,
    rounded_values,
)
from calibration.fit.solve import FormParameter, Solved, solve
from calibration.measurements import Measurement
from calibration.smoothing import isotonic
from simulator.costs.ops.gemm import Gemm, GemmForm
from simulator.costs.ops.numeric import Floats
from simulator.costs.profiles import ARITHMETIC, Part
from simulator.gpu import Gpu
from simulator.models.matrices import weight_bytes_each

_TILES = {"cpu": (1, 16), "cuda": (64, 16, 1)}
"""Rows that a kernel may compute at once."""
_PARAMETERS = (
    FormParameter("start_us", 5.0, 0.0, 500.0),
    FormParameter("memory_efficiency", 0.8, 0.02, 3.0),
    FormParameter("compute_efficiency", 0.7, 0.005, 1.5),
    FormParameter("smoothness", 1.5, 1.0, 12.0),
    FormParameter("per_k_us", 1e-4, 0.0, 0.05),
)
_DIP = 0.03
"""By how much a time may fall with more tokens before it is the kernel's doing, relative …"""
_DIP_SD = 3.0
"""… and in standard errors of the measurement."""
_DIPPING = 0.03
"""Share of such points from which a table is kept as measured."""


@dataclass(frozen=True)
class ShapeTimes:
    """Times (s, j) of `shapes` (s, 2: n, k) at `knots` (j,) tokens, µs, nan where not measured."""

    shapes: Floats
    knots: Floats
    us: Floats
    points: tuple[Measurement, ...]
    index: tuple[tuple[int, int], ...]  # (row, column) of each point


def fit_linear(
    points: Sequence[Measurement], weights: str, gpu: Gpu, kind: str, quantise: Sequence[Measurement] = ()
) -> FittedPart:
    """The part `gemm/<weights>` from points of n, k, m; `quantise`: what fp8 inputs cost before."""
    curves = _curves(points, _quantising(quantise) if ARITHMETIC[weights] == "fp8" else (0.0, 0.0))
    known = ~np.isnan(curves.us)
    form, solved = _best_form(curves, known, weights, gpu, kind)
    us = _filled(curves, known, form)
    table, rises = _rising(us, curves)
    gemm = Gemm(form, curves.knots, curves.shapes, _ratio(form, curves, table), True, rises)
    residual = _left_out(gemm, curves, known).summary("each token count from its neighbours, on the form")
    residual |= {"noise_percent": noise_percent(curves.points), "form_percent": _percent(solved.errors)}
    residual |= {"intervals": intervals_json(solved.intervals)}
    coefficients = rounded_values(solved.values) | {"tile_tokens": form.tile_tokens, "follows_form": 1.0}
    part = Part(
        name=f"gemm/{weights}",
        status="measured",
        source=f"torch {weights} linear layers, cold weights",
        coefficients=coefficients | ({} if rises else {"rises": 0.0}),
        table={
            "knots": [int(m) for m in curves.knots],
            "shapes": [[int(n), int(k)] for n, k in curves.shapes],
            "us": nested(table),
        },
        residual=residual,
        note="m tokens, n outputs, k inputs; lm_head with the final norm"
        + ("" if rises else "; as measured, where fewer tokens take longer"),
    )
    far = [
        point
        for point, (i, j) in zip(curves.points, curves.index, strict=True)
        if _off(us, form, curves, i, j)
    ]
    return FittedPart(part, tuple(far))


def _curves(points: Sequence[Measurement], quantising: tuple[float, float]) -> ShapeTimes:
    by_shape = Counter((p.shape["n"], p.shape["k"]) for p in points)
    by_tokens = Counter(p.shape["m"] for p in points)
    knots = sorted(m for m, count in by_tokens.items() if 2 * count >= len(by_shape))
    shapes = sorted({(p.shape["n"], p.shape["k"]) for p in points if p.shape["m"] in knots})
    us = np.full((len(shapes), len(knots)), np.nan)
    kept, index = [], []
    for p in points:
        if p.shape["m"] in knots:
            at = shapes.index((p.shape["n"], p.shape["k"])), knots.index(p.shape["m"])
            us[at] = p.seconds * US + quantising[0] + quantising[1] * p.shape["m"] * p.shape["k"]
            kept.append(p)
            index.append(at)
    return ShapeTimes(np.array(shapes, float), np.array(knots, float), us, tuple(kept), tuple(index))


def _quantising(points: Sequence[Measurement]) -> tuple[float, float]:
    """µs once, and per value, of quantising the input of a matrix."""
    if len(points) < 2:
        return 0.0, 0.0
    values = np.array([p.shape["tokens"] * p.shape["width"] for p in points], float)
    parameters = (FormParameter("start", 5.0, 0.0, 1e3), FormParameter("each", 1e-5, 0.0, 1.0))
    solved = solve(
        parameters, lambda x: x["start"] + x["each"] * values, np.array([p.seconds * US for p in points])
    )
    return solved.values["start"], solved.values["each"]


def _best_form(
    curves: ShapeTimes, known: NDArray[np.bool_], weights: str, gpu: Gpu, kind: str
) -> tuple[GemmForm, Solved]:
    """The form of the tile that fits best."""
    n, k = (np.broadcast_to(curves.shapes[:, i : i + 1], known.shape)[known] for i in (0, 1))
    m = np.broadcast_to(curves.knots, known.shape)[known]
    measured = curves.us[known]
    tried = []
    for tile in _TILES[kind]:

        def form(values: Mapping[str, float], tile: int = tile) -> GemmForm:
            return GemmForm(
                bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
                flops_per_s=gpu.peak_flops_per_s[ARITHMETIC[weights]],
                weight_bytes=weight_bytes_each(weights),
                activation_bytes=1.0 if ARITHMETIC[weights] == "fp8" else 2.0,
                tile_tokens=tile,
                **values,
            )

        solved = solve(_PARAMETERS, lambda x, form=form: form(x).time_us(n, k, m), measured)  # type: ignore[misc]
        tried.append((float(np.abs(solved.errors).mean()), form(rounded_values(solved.values)), solved))
    return min(tried, key=lambda one: one[0])[1:]


def _ratio(form: GemmForm, curves: ShapeTimes, us: Floats) -> Floats:
    return np.asarray(np.log(us / form.time_us(curves.shapes[:, :1], curves.shapes[:, 1:], curves.knots)))


def _filled(curves: ShapeTimes, known: NDArray[np.bool_], form: GemmForm) -> Floats:
    """The table with its gaps as the form, corrected as around them."""
    us = curves.us.copy()
    for i in np.flatnonzero((~known).any(axis=1)):
        there = known[i]
        n, k = curves.shapes[i].tolist()
        smooth = form.time_us(n, k, curves.knots)
        ratio = np.interp(
            np.log(curves.knots), np.log(curves.knots[there]), np.log(us[i, there] / smooth[there])
        )
        us[i, ~there] = (smooth * np.exp(ratio))[~there]
    return us


def _rising(us: Floats, curves: ShapeTimes) -> tuple[Floats, bool]:
    """The table made to rise with m, and whether the data agree; as measured where they do not."""
    smooth = np.exp(np.array([isotonic(np.log(row), np.ones(len(row))) for row in us]))
    error = np.zeros(us.shape)
    for point, at in zip(curves.points, curves.index, strict=True):
        error[at] = noise(point)
    dips = np.abs(np.log(smooth / us)) > np.maximum(_DIP, _DIP_SD * error)
    return (us, False) if dips.mean() > _DIPPING else (smooth, True)


def _left_out(gemm: Gemm, curves: ShapeTimes, known: NDArray[np.bool_]) -> HeldOutErrors:
    """What was measured at every inner knot of every shape, and what the form says with the corrections of
    the other knots. The form itself has seen all.
    """
    errors = HeldOutErrors()
    for row, (n, k) in enumerate(gemm.shapes.tolist()):
        for j in range(1, len(gemm.knots) - 1):
            if not known[row, j]:
                continue
            kept = np.arange(len(gemm.knots)) != j
            one = replace(
                gemm,
                knots=gemm.knots[kept],
                shapes=gemm.shapes[row : row + 1],
                log_ratio=gemm.log_ratio[row : row + 1, kept],
            )
            errors.add([float(one.time_us(n, k, gemm.knots[j]))], [float(curves.us[row, j])])
    return errors


def _off(us: Floats, form: GemmForm, curves: ShapeTimes, i: int, j: int) -> bool:
    """Whether a knot lies far from the line between its neighbours, on the form."""
    if not 0 < j < len(curves.knots) - 1:
        return False
    n, k = curves.shapes[i].tolist()
    ratio = np.log(us[i] / form.time_us(n, k, curves.knots))
    x = np.log(curves.knots)
    share = (x[j] - x[j - 1]) / (x[j + 1] - x[j - 1])
    return bool(abs(ratio[j] - (1 - share) * ratio[j - 1] - share * ratio[j + 1]) > _FAR)


_FAR = 0.15


def _percent(errors: Floats) -> float:
    return round(100 * float(np.median(np.abs(errors))), 2)
