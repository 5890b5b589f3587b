"""A profile for a GPU that was not measured: another GPU's, scaled by datasheet figures.

Forms scale by themselves, because they are efficiencies of the GPU's own bandwidth and peak. What a table
holds in µs keeps its start cost; the rest scales with bandwidth (attention), or with the link (all-reduce).
The correction of a form by a table is kept as a ratio: the same kernels, relatively as good. Every such
part is marked `inherited`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from simulator.costs.profile_parts import Part, Profile
from simulator.gpu import Gpu
from simulator.gpu import gpu as known_gpu


def inherit(base: Profile, target: Gpu) -> Profile:
    """`base` as a profile of `target`, every part marked inherited (assumed parts stay assumed)."""
    parts = {name: _inherited(part, base, target) for name, part in base.parts.items()}
    return replace(base, name=target.name, gpu=target, parts=parts)


def fill_missing(profile: Profile, base: Profile) -> Profile:
    """The profile with the parts it lacks taken from `base`."""
    missing = {
        name: _inherited(part, base, profile.gpu)
        for name, part in base.parts.items()
        if name not in profile.parts
    }
    return replace(profile, parts={**profile.parts, **missing})


def parse_gpu(raw: object) -> Gpu:
    """A GPU from a profile: the name of a known one, or an object with the fields of `Gpu`."""
    if isinstance(raw, str):
        return known_gpu(raw)
    if not isinstance(raw, Mapping):
        raise ValueError(f"gpu must be a name or an object, not {type(raw).__name__}")
    fields: dict[str, Any] = dict(raw)
    fields.setdefault("sources", {})
    fields["peak_flops_per_s"] = MappingProxyType(dict(fields["peak_flops_per_s"]))
    return Gpu(**fields)


def _inherited(part: Part, base: Profile, target: Gpu) -> Part:
    status = "assumed" if part.status == "assumed" else "inherited"
    note = f"from {base.name}, scaled by datasheet figures. {part.note}".strip()
    family, _, variant = part.name.partition("/")
    slower = base.gpu.hbm_bandwidth_bytes_per_s / target.hbm_bandwidth_bytes_per_s
    coefficients: dict[str, Any] = dict(part.coefficients)
    table: dict[str, Any] = dict(part.table)
    if family in ("attention", "mla"):
        coefficients["memory_scale"] = coefficients.get("memory_scale", 1.0) * slower
    elif family == "gemm" and table and "log_ratio" not in table:
        operator = base.gemm(variant)
        table = {"knots": operator.knots, "shapes": operator.shapes, "log_ratio": operator.log_ratio}
    elif family == "experts" and "log_ratio" not in table:
        mixture = base.experts(variant)
        table = {"knots": mixture.knots, "shapes": mixture.shapes, "log_ratio": mixture.log_ratio}
    elif family == "allreduce":
        table = {gpus: _scaled_link(rows, int(gpus), base.gpu, target) for gpus, rows in table.items()}
    return replace(
        part,
        status=status,
        note=note,
        coefficients=MappingProxyType(coefficients),
        table=MappingProxyType(table),
    )


def _scaled_link(rows: Mapping[str, Any], gpus: int, base: Gpu, target: Gpu) -> dict[str, Any]:
    us = np.asarray(rows["us"], dtype=np.float64)
    slower = base.link_bytes_per_s(gpus) / target.link_bytes_per_s(gpus)
    return {"bytes": rows["bytes"], "us": us.min() + (us - us.min()) * slower}
