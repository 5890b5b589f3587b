"""Linear layers: a form for unmeasured shapes, and the measured times as a table on it.

Between measured token counts the curve follows the form (`Gemm.follows_form`): bf16 kernels are affine in m
to 1 %, and a log-log line would be 1 % too high between octaves. If the data show that fewer tokens take
longer, the table is not made monotone (fp32 on CPUs has a pattern in m modulo 4, which only a full set of
knots can represent).
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
from simulator.costs.profiles import ARITHMETIC, Part
from simulator.gpu import Gpu
from simulator.models.matrices import weight_bytes_each
from simulator.numerics.arrays import Floats

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
"""A fall of the time with more tokens is real if it exceeds this relative amount …"""
_DIP_SD = 3.0
"""… and this many standard errors of the measurement."""
_MAX_DIP_SHARE = 0.03
"""With a larger share of such points, a table is kept as measured."""


@dataclass(frozen=True)
class ShapeTimes:
    """Times `us` (s, j) in µs of `shapes` (s, 2: n, k) at `knots` (j,) tokens; nan where not measured."""

    shapes: Floats
    knots: Floats
    us: Floats
    points: tuple[Measurement, ...]
    index: tuple[tuple[int, int], ...]  # (row, column) of each point


def fit_linear(
    points: Sequence[Measurement], weights: str, gpu: Gpu, kind: str, quantise: Sequence[Measurement] = ()
) -> FittedPart:
    """The part `gemm/<weights>` from points by n, k, m; `quantise`: points of quantising fp8 inputs."""
    times = _shape_times(points, _quantising(quantise) if ARITHMETIC[weights] == "fp8" else (0.0, 0.0))
    measured = ~np.isnan(times.us)
    form, solved = _best_form(times, measured, weights, gpu, kind)
    us = _filled(times, measured, form)
    table, rises = _rising(us, times)
    gemm = Gemm(form, times.knots, times.shapes, _ratio(form, times, table), True, rises)
    residual = _held_out_errors(gemm, times, measured).summary(
        "each token count from its neighbours, on the form"
    )
    residual |= {"noise_percent": noise_percent(times.points), "form_percent": _percent(solved.errors)}
    residual |= {"intervals": intervals_json(solved.intervals)}
    coefficients = rounded_values(solved.values) | {"tile_tokens": form.tile_tokens, "follows_form": 1.0}
    part = Part(
        name=f"gemm/{weights}",
        status="measured",
        source=f"torch {weights} linear layers, cold weights",
        coefficients=coefficients | ({} if rises else {"rises": 0.0}),
        table={
            "knots": [int(m) for m in times.knots],
            "shapes": [[int(n), int(k)] for n, k in times.shapes],
            "us": nested(table),
        },
        residual=residual,
        note="m tokens, n outputs, k inputs; lm_head with the final norm"
        + ("" if rises else "; as measured, because fewer tokens take longer at some shapes"),
    )
    far = [
        point
        for point, (i, j) in zip(times.points, times.index, strict=True)
        if _is_outlier(us, form, times, i, j)
    ]
    return FittedPart(part, tuple(far))


def _shape_times(points: Sequence[Measurement], quantise_us: tuple[float, float]) -> ShapeTimes:
    by_shape = Counter((p.shape["n"], p.shape["k"]) for p in points)
    by_tokens = Counter(p.shape["m"] for p in points)
    knots = sorted(m for m, count in by_tokens.items() if 2 * count >= len(by_shape))
    shapes = sorted({(p.shape["n"], p.shape["k"]) for p in points if p.shape["m"] in knots})
    us = np.full((len(shapes), len(knots)), np.nan)
    used, index = [], []
    for p in points:
        if p.shape["m"] in knots:
            cell = shapes.index((p.shape["n"], p.shape["k"])), knots.index(p.shape["m"])
            us[cell] = p.seconds * US + quantise_us[0] + quantise_us[1] * p.shape["m"] * p.shape["k"]
            used.append(p)
            index.append(cell)
    return ShapeTimes(np.array(shapes, float), np.array(knots, float), us, tuple(used), tuple(index))


def _quantising(points: Sequence[Measurement]) -> tuple[float, float]:
    """µs of quantising the input of a matrix: constant, and per value."""
    if len(points) < 2:
        return 0.0, 0.0
    values = np.array([p.shape["tokens"] * p.shape["width"] for p in points], float)
    parameters = (FormParameter("start", 5.0, 0.0, 1e3), FormParameter("each", 1e-5, 0.0, 1.0))
    solved = solve(
        parameters, lambda x: x["start"] + x["each"] * values, np.array([p.seconds * US for p in points])
    )
    return solved.values["start"], solved.values["each"]


def _best_form(
    times: ShapeTimes, is_measured: NDArray[np.bool_], weights: str, gpu: Gpu, kind: str
) -> tuple[GemmForm, Solved]:
    """The form with the tile that fits best."""
    n, k = (np.broadcast_to(times.shapes[:, i : i + 1], is_measured.shape)[is_measured] for i in (0, 1))
    m = np.broadcast_to(times.knots, is_measured.shape)[is_measured]
    measured_us = times.us[is_measured]
    candidates = []
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

        solved = solve(_PARAMETERS, lambda x, form=form: form(x).time_us(n, k, m), measured_us)  # type: ignore[misc]
        candidates.append((float(np.abs(solved.errors).mean()), form(rounded_values(solved.values)), solved))
    return min(candidates, key=lambda candidate: candidate[0])[1:]


def _ratio(form: GemmForm, times: ShapeTimes, us: Floats) -> Floats:
    return np.asarray(np.log(us / form.time_us(times.shapes[:, :1], times.shapes[:, 1:], times.knots)))


def _filled(times: ShapeTimes, is_measured: NDArray[np.bool_], form: GemmForm) -> Floats:
    """The table with gaps filled by the form, with the correction interpolated from the neighbours."""
    us = times.us.copy()
    for i in np.flatnonzero((~is_measured).any(axis=1)):
        row_mask = is_measured[i]
        n, k = times.shapes[i].tolist()
        smooth = form.time_us(n, k, times.knots)
        ratio = np.interp(
            np.log(times.knots), np.log(times.knots[row_mask]), np.log(us[i, row_mask] / smooth[row_mask])
        )
        us[i, ~row_mask] = (smooth * np.exp(ratio))[~row_mask]
    return us


def _rising(us: Floats, times: ShapeTimes) -> tuple[Floats, bool]:
    """The table made monotone in m, and True; or as measured, and False, if the data contradict that."""
    smooth = np.exp(np.array([isotonic(np.log(row), np.ones(len(row))) for row in us]))
    error = np.zeros(us.shape)
    for point, at in zip(times.points, times.index, strict=True):
        error[at] = noise(point)
    dips = np.abs(np.log(smooth / us)) > np.maximum(_DIP, _DIP_SD * error)
    return (us, False) if dips.mean() > _MAX_DIP_SHARE else (smooth, True)


def _held_out_errors(gemm: Gemm, times: ShapeTimes, is_measured: NDArray[np.bool_]) -> HeldOutErrors:
    """Errors at every inner knot of every shape, predicted from the form with the corrections of the other
    knots.

    The form itself was fitted to all points.
    """
    errors = HeldOutErrors()
    for row, (n, k) in enumerate(gemm.shapes.tolist()):
        for j in range(1, len(gemm.knots) - 1):
            if not is_measured[row, j]:
                continue
            others = np.arange(len(gemm.knots)) != j
            without_knot = replace(
                gemm,
                knots=gemm.knots[others],
                shapes=gemm.shapes[row : row + 1],
                log_ratio=gemm.log_ratio[row : row + 1, others],
            )
            errors.add([float(without_knot.time_us(n, k, gemm.knots[j]))], [float(times.us[row, j])])
    return errors


def _is_outlier(us: Floats, form: GemmForm, times: ShapeTimes, i: int, j: int) -> bool:
    """Whether a knot is far from the line between its neighbours, relative to the form."""
    if not 0 < j < len(times.knots) - 1:
        return False
    n, k = times.shapes[i].tolist()
    ratio = np.log(us[i] / form.time_us(n, k, times.knots))
    x = np.log(times.knots)
    share = (x[j] - x[j - 1]) / (x[j + 1] - x[j - 1])
    return bool(abs(ratio[j] - (1 - share) * ratio[j - 1] - share * ratio[j + 1]) > _FAR)


_FAR = 0.15


def _percent(errors: Floats) -> float:
    return round(100 * float(np.median(np.abs(errors))), 2)
