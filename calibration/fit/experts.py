"""Routed experts under skewed routing: the simulator's form, and the measured times as a table on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calibration.fit.parts import (
    FittedPart,
    HeldOutErrors,
    intervals_json,
    nested,
    noise_percent,
    rounded_values,
    us_of,
)
from calibration.fit.solve import FormParameter, solve
from calibration.measurements import Measurement
from simulator.costs.ops.experts import ExpertsForm
from simulator.costs.profiles import Part
from simulator.gpu import Gpu
from simulator.models.matrices import weight_bytes_each
from simulator.numerics.arrays import Floats

_PARAMETERS = (
    FormParameter("start_us", 50.0, 0.0, 1e5),
    FormParameter("memory_efficiency", 0.7, 0.01, 3.0),
    FormParameter("compute_efficiency", 0.3, 1e-3, 1.5),
    FormParameter("per_expert_us", 1.0, 0.0, 1e4),
)
_SMOOTHNESS, _SKEW = 1.5, 0.94
"""Fixed, because few token counts do not determine them; the skew is that of the measured routing (arXiv
2505.19645).
"""


def fit_experts(points: Sequence[Measurement], gpu: Gpu) -> FittedPart:
    """The part `experts/bf16` from points of tokens, hidden, intermediate, per_token, experts, matrices."""
    keys = ("hidden", "intermediate", "per_token", "experts", "matrices")
    arguments = [(p.shape["tokens"], *(p.shape[name] for name in keys)) for p in points]

    def form(x: Mapping[str, float]) -> ExpertsForm:
        return ExpertsForm(
            bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s,
            flops_per_s=gpu.peak_flops_per_s["bf16"],
            weight_bytes=weight_bytes_each("bf16"),
            activation_bytes=2.0,
            smoothness=_SMOOTHNESS,
            skew=_SKEW,
            **x,
        )

    def predict(x: Mapping[str, float]) -> Floats:
        experts = form(x)
        return np.array([float(experts.time_us(t, h, i, k, e, 1, m)) for t, h, i, k, e, m in arguments])

    us = us_of(points)
    solved, errors = solve(_PARAMETERS, predict, us), HeldOutErrors()
    for index in range(len(points) if len(points) > len(_PARAMETERS) else 0):
        mask = np.arange(len(points)) != index
        others = solve(_PARAMETERS, lambda x, mask=mask: predict(x)[mask], us[mask])  # type: ignore[misc]
        errors.add([float(predict(others.values)[index])], [float(us[index])])
    shapes = sorted({tuple(p.shape[name] for name in keys[:4]) for p in points})
    knots = sorted({p.shape["tokens"] for p in points})
    smooth = form(solved.values)
    table = np.array(
        [[float(smooth.time_us(t, h, i, k, e, 1)) for t in knots] for h, i, k, e in shapes], dtype=np.float64
    )
    for p in points:
        cell = shapes.index(tuple(p.shape[name] for name in keys[:4])), knots.index(p.shape["tokens"])
        table[cell] = p.seconds * 1e6
    part = Part(
        name="experts/bf16",
        status="measured",
        source="torch grouped products, skewed routing",
        coefficients=rounded_values(solved.values) | {"smoothness": _SMOOTHNESS, "skew": _SKEW},
        table={
            "knots": knots,
            "shapes": [[*shape, 1, 1] for shape in shapes],
            "us": nested(np.maximum.accumulate(table, axis=1)),
        },
        residual=errors.summary("each point from the form of the others")
        | {"noise_percent": noise_percent(points), "intervals": intervals_json(solved.intervals)},
        note="shapes: hidden, intermediate, experts per token, experts, tensor and expert parallelism",
    )
    return FittedPart(part)
