"""A profile: what the kernels of one GPU were measured to take, and where each figure came from.

A JSON file (schema `decodesim/profile-1`) of parts. A part has a status (measured, inherited, assumed),
residuals on held-out points, coefficients and a thin table. `data/profiles/` holds those built from public
kernel tables; a user's own file has the same schema. A GPU or a file that lacks a part takes it from
`BASE`, scaled by datasheet figures, and the part says so: `inherit.py` is the one place where that happens.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from simulator.errors import InputError, unknown_name
from simulator.gpu import GPUS, Gpu
from simulator.matrices import WEIGHT_FORMATS, weight_bytes_each
from simulator.ops.attention import DecodeAttention, LatentAttention, PrefillAttention, StreamedCache
from simulator.ops.collectives import AllReduce
from simulator.ops.experts import ExpertsForm, MixtureOfExperts
from simulator.ops.gemm import Gemm, GemmForm
from simulator.ops.numeric import Floats

SCHEMA = "decodesim/profile-1"
BASE = "h100-sxm"
"""The profile that others inherit missing parts from."""

STATUSES = ("measured", "inherited", "assumed")
REQUIRED = ("gemm/bf16", "attention/bf16")
"""Parts a file must bring or name a profile to inherit from."""

ARITHMETIC = {"bf16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "int4": "bf16", "mxfp4": "bf16"}
"""The tensor-core type that multiplies weights of each format: four-bit weights are widened to bf16
(assumed).
"""


@dataclass(frozen=True)
class Part:
    """One operator family of a profile. `table` and `coefficients` are as in the file (µs, bytes,
    tokens).
    """

    name: str
    status: str
    source: str
    coefficients: Mapping[str, Any]
    table: Mapping[str, Any]
    residual: Mapping[str, Any]
    note: str = ""

    def number(self, key: str) -> float:
        return float(self.coefficients[key])

    def array(self, key: str) -> Floats:
        return np.asarray(self.table[key], dtype=np.float64)


@dataclass(frozen=True)
class Profile:
    """All parts of one GPU, as operators. `sha256` is of the file (of the base file when inherited)."""

    name: str
    gpu: Gpu
    parts: Mapping[str, Part]
    provenance: Mapping[str, Any]
    sha256: str
    _built: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def statuses(self) -> dict[str, str]:
        """Status by part name: measured, inherited or assumed."""
        return {name: part.status for name, part in self.parts.items()}

    def _part(self, name: str, otherwise: str) -> Part:
        return self.parts[name if name in self.parts else otherwise]

    def bandwidth(self) -> float:
        return self.gpu.hbm_bandwidth_bytes_per_s

    def flops_per_s(self, arithmetic: str) -> float:
        """Dense peak; a type without a tensor-core path runs as bf16."""
        return self.gpu.peak_flops_per_s.get(arithmetic, self.gpu.peak_flops_per_s["bf16"])

    def gemm(self, weights: str) -> Gemm:
        """The linear operator for weights of that format.

        Formats without a part of their own (int4, mxfp4; fp8 on a GPU without fp8 arithmetic) take the bf16
        form with fewer weight bytes and no table: assumed.
        """
        own = f"gemm/{weights}"
        if own not in self._built:
            self._built[own] = self._gemm(weights, own)
        built: Gemm = self._built[own]
        return built

    def _gemm(self, weights: str, own: str) -> Gemm:
        widened = own not in self.parts or ARITHMETIC[weights] not in self.gpu.peak_flops_per_s
        part = self.parts["gemm/bf16" if widened else own]
        form = GemmForm(
            bandwidth_bytes_per_s=self.bandwidth(),
            flops_per_s=self.flops_per_s("bf16" if widened else ARITHMETIC[weights]),
            weight_bytes=weight_bytes_each(weights),
            activation_bytes=2.0 if widened or weights == "bf16" else 1.0,
            start_us=part.number("start_us"),
            memory_efficiency=part.number("memory_efficiency"),
            compute_efficiency=part.number("compute_efficiency"),
            smoothness=part.number("smoothness"),
            per_k_us=part.number("per_k_us"),
            quantise_efficiency=0.0 if widened else float(part.coefficients.get("quantise_efficiency", 0.0)),
        )
        knots, shapes = part.array("knots"), part.array("shapes").reshape(-1, 2)
        if widened:
            return Gemm(form, knots, np.zeros((0, 2)), np.zeros((0, len(knots))))
        if "log_ratio" in part.table:
            return Gemm(form, knots, shapes, part.array("log_ratio"))
        smooth = form.time_us(shapes[:, :1], shapes[:, 1:], knots[None, :])
        return Gemm(form, knots, shapes, np.log(part.array("us") / smooth))

    def attention(self, kv_cache: str) -> DecodeAttention:
        part = self._part(f"attention/{kv_cache}", "attention/bf16")
        scale = float(part.coefficients.get("memory_scale", 1.0))
        time = part.array("us")
        start = time.min()
        return DecodeAttention(
            head_dims=part.array("head_dims"),
            kv_heads=part.array("kv_heads"),
            batches=part.array("batches"),
            contexts=part.array("contexts"),
            log_time=np.log(start + (time - start) * scale),
            flops_per_s=self.flops_per_s("bf16"),
            compute_efficiency=part.number("compute_efficiency"),
            tile_penalty=part.number("tile_penalty"),
            window_factors=np.array(
                [part.coefficients.get(f"window_factor_{int(d)}", 1.0) for d in part.table["head_dims"]],
                float,
            ),
        )

    def latent(self, kv_cache: str) -> LatentAttention:
        part = self._part(f"mla/{kv_cache}", "mla/bf16")
        scale = float(part.coefficients.get("memory_scale", 1.0))
        time = part.array("us")
        start = time.min()
        log_time = np.log(start + (time - start) * scale)
        return LatentAttention(part.array("rows"), part.array("batches"), part.array("contexts"), log_time)

    def experts(self, weights: str) -> MixtureOfExperts:
        """The routed-experts operator; formats without a part take the bf16 form with fewer bytes:
        assumed.
        """
        own = f"experts/{weights}"
        if own not in self._built:
            self._built[own] = self._experts(weights, own)
        built: MixtureOfExperts = self._built[own]
        return built

    def _experts(self, weights: str, own: str) -> MixtureOfExperts:
        widened = own not in self.parts or (
            ARITHMETIC[weights] not in self.gpu.peak_flops_per_s and ARITHMETIC[weights] != "bf16"
        )
        part = self.parts["experts/bf16" if widened else own]
        form = ExpertsForm(
            bandwidth_bytes_per_s=self.bandwidth(),
            flops_per_s=self.flops_per_s("bf16" if widened else ARITHMETIC[weights]),
            weight_bytes=weight_bytes_each(weights),
            activation_bytes=2.0 if widened or ARITHMETIC[weights] == "bf16" else 1.0,
            start_us=part.number("start_us"),
            memory_efficiency=part.number("memory_efficiency"),
            compute_efficiency=part.number("compute_efficiency"),
            smoothness=part.number("smoothness"),
            per_expert_us=part.number("per_expert_us"),
            skew=part.number("skew"),
        )
        knots, shapes = part.array("knots"), part.array("shapes").reshape(-1, 6)
        if widened:
            return MixtureOfExperts(form, knots, np.zeros((0, 6)), np.zeros((0, len(knots))))
        if "log_ratio" in part.table:
            return MixtureOfExperts(form, knots, shapes, part.array("log_ratio"))
        return MixtureOfExperts(
            form, knots, shapes, np.log(part.array("us") / experts_smooth(form, shapes, knots))
        )

    def prefill(self) -> PrefillAttention:
        part = self.parts["prefill"]
        efficiency = part.number("compute_efficiency")
        return PrefillAttention(self.flops_per_s("bf16"), part.number("start_us"), efficiency)

    def streamed(self) -> StreamedCache:
        part = self.parts["streamed"]
        return StreamedCache(
            bandwidth_bytes_per_s=self.bandwidth(),
            flops_per_s=self.flops_per_s("bf16"),
            start_us=part.number("start_us"),
            memory_efficiency=part.number("memory_efficiency"),
            compute_efficiency=part.number("compute_efficiency"),
        )

    def allreduce(self) -> AllReduce:
        part = self.parts["allreduce"]
        tables = {
            int(gpus): (np.asarray(rows["bytes"], dtype=np.float64), np.asarray(rows["us"], dtype=np.float64))
            for gpus, rows in part.table.items()
        }
        return AllReduce(MappingProxyType(tables), part.number("eager_start_us"))


def experts_smooth(form: ExpertsForm, shapes: Floats, knots: Floats) -> Floats:
    """(s, j) µs of the smooth form for shapes of `MixtureOfExperts`."""
    rows = [form.time_us(knots, h, i / tp, k, e, ep) for h, i, k, e, tp, ep in shapes.tolist()]
    return np.stack(rows)


def profile_names() -> tuple[str, ...]:
    """Names of the profiles that ship; other known GPUs inherit."""
    folder = resources.files("simulator").joinpath("data", "profiles")
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".json")))


def load_profile(name_or_path: str, base_dir: Path | None = None) -> Profile:
    """The profile of a GPU by name, or the profile in a JSON file (relative to `base_dir`).

    A known GPU without a profile of its own inherits all parts from `BASE`. Raises InputError.
    """
    from simulator.inherit import inherit

    if name_or_path in profile_names():
        file = resources.files("simulator").joinpath("data", "profiles", f"{name_or_path}.json")
        return parse_profile(file.read_text("utf-8"), f"{name_or_path}.json")
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


def parse_profile(text: str, file: str) -> Profile:
    """A profile from the text of its file. Raises InputError that names the file and what is wrong."""
    from simulator.inherit import fill_missing, parse_gpu

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
        profile = fill_missing(profile, data.get("inherits"))
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
    """Builds every operator once, so that a broken table is an input error here and not a traceback
    later.
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


def with_parts(profile: Profile, parts: Mapping[str, Part]) -> Profile:
    """The profile with some parts put in place of its own."""
    return replace(profile, parts={**profile.parts, **parts})
