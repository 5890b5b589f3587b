"""Profiles from files: what the kernels of one GPU were measured to take, and where each figure came from.

A JSON file (schema `decodesim/profile-1`) of parts, see `profile_parts.py`. `data/profiles/` holds those
built from public kernel tables; a user's own file has the same schema. A GPU without a file, and a file that
names a profile in `inherits`, take missing parts from another one, scaled by datasheet figures, and each
such part says so: `inherit.py` is the one place where that happens.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from simulator.costs.inherit import fill_missing, inherit, parse_gpu
from simulator.costs.ops.numeric import Floats
from simulator.costs.profile_parts import ARITHMETIC, Part, Profile, experts_smooth
from simulator.errors import InputError, unknown_name
from simulator.gpu import GPUS
from simulator.models.matrices import WEIGHT_FORMATS

__all__ = [
    "ARITHMETIC",
    "BASE",
    "SCHEMA",
    "Part",
    "Profile",
    "experts_smooth",
    "load_profile",
    "parse_profile",
    "profile_names",
]

SCHEMA = "decodesim/profile-1"
BASE = "h100-sxm"
"""The profile that others inherit missing parts from."""

STATUSES = ("measured", "inherited", "assumed")
REQUIRED = ("gemm/bf16", "attention/bf16")
"""Parts a file must bring or name a profile to inherit from."""


def profile_names() -> tuple[str, ...]:
    """Names of the profiles that ship; other known GPUs inherit."""
    folder = resources.files("simulator").joinpath("data", "profiles")
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".json")))


def load_profile(name_or_path: str, base_dir: Path | None = None) -> Profile:
    """The profile of a GPU by name, or the profile in a JSON file (relative to `base_dir`).

    A known GPU without a profile of its own inherits all parts from `BASE`. Raises InputError.
    """
    if name_or_path in profile_names():
        return _shipped(name_or_path)
    if name_or_path in GPUS:
        return inherit(load_profile(BASE), GPUS[name_or_path])
    path = Path(base_dir or ".") / name_or_path
    if not path.suffix and not path.exists():
        names = sorted({*GPUS, *profile_names()})
        raise InputError(unknown_name("GPU", name_or_path, names, also="the path of a profile"))
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{name_or_path}: the profile cannot be read: {error}") from error
    return parse_profile(text, name_or_path)


@cache
def _shipped(name: str) -> Profile:
    file = resources.files("simulator").joinpath("data", "profiles", f"{name}.json")
    return parse_profile(file.read_text("utf-8"), f"{name}.json")


def parse_profile(text: str, file: str) -> Profile:
    """A profile from the text of its file. Raises InputError that names the file and what is wrong."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{file}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise InputError(f"{file}: schema: this version reads {SCHEMA!r} (got {found!r})")
    try:
        gpu = parse_gpu(data["gpu"])
        parts = {str(part["name"]): _parse_part(part) for part in data["parts"]}
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
        profile = Profile(str(data["name"]), gpu, parts, data.get("provenance", {}), digest)
        if data.get("inherits"):
            profile = fill_missing(profile, load_profile(str(data["inherits"])))
        missing = [name for name in REQUIRED if name not in profile.parts]
        if missing:
            raise ValueError(f"lacks {', '.join(missing)} and names no profile to inherit from")
        _check(profile)
    except InputError as error:
        raise error.at(file=file) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{file}: not a profile: {what}") from error
    return profile


def _parse_part(raw: Mapping[str, Any]) -> Part:
    part = Part(
        name=str(raw["name"]),
        status=str(raw["status"]),
        source=str(raw.get("source", "")),
        coefficients=MappingProxyType(dict(raw.get("coefficients", {}))),
        table=MappingProxyType(dict(raw.get("table", {}))),
        residual=MappingProxyType(dict(raw.get("residual", {}))),
        note=str(raw.get("note", "")),
    )
    if part.status not in STATUSES:
        raise ValueError(
            f"part {part.name}: status must be one of {', '.join(STATUSES)}, not {part.status!r}"
        )
    for key, value in part.coefficients.items():
        if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise ValueError(f"part {part.name}: {key} must be a finite number >= 0, not {value!r}")
    return part


def _check(profile: Profile) -> None:
    """Builds every operator once, so that a broken table
    is an input error here and not a traceback later.
    """
    for name, part in profile.parts.items():
        family, _, variant = name.partition("/")
        known = ", ".join(WEIGHT_FORMATS)
        if family in ("gemm", "experts") and variant not in WEIGHT_FORMATS:
            raise ValueError(f"part {name}: unknown weight format {variant!r}, known: {known}")
        for key in ("us", "log_ratio"):
            values = np.asarray(part.table.get(key, []), dtype=np.float64)
            if not np.isfinite(values).all() or (key == "us" and (values <= 0).any()):
                raise ValueError(f"part {name}: table {key} must be finite and positive")
        builders: dict[str, Callable[[str], Floats]] = {
            "gemm": lambda v: profile.gemm(v).time_us(1024, 1024, [1, 8]),
            "attention": lambda v: profile.attention(v).time_us([1, 2], 100, 1, 128),
            "mla": lambda v: profile.latent(v).time_us([1, 2], 100, 16),
            "experts": lambda v: profile.experts(v).time_us([1, 2], 1024, 512, 2, 8),
            "prefill": lambda _: np.asarray(profile.prefill().pair_us(1.0)),
            "streamed": lambda _: profile.streamed().time_us(1.0, 1.0),
            "allreduce": lambda _: profile.allreduce().time_us([256, 1e6], 2),
        }
        if family in builders and not np.isfinite(builders[family](variant)).all():
            raise ValueError(f"part {name}: its table gives no finite time")
