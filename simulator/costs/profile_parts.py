"""The parts of a profile and the operators they make: measured coefficients and tables of one GPU.

A part has a status (measured, inherited, assumed), residuals on held-out points, coefficients and a thin
table. `profiles.py` reads the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from simulator.costs.ops.attention import (
    AttentionForm,
    DecodeAttention,
    LatentAttention,
    MeasuredAttention,
    PrefillAttention,
    StreamedCache,
)
from simulator.costs.ops.collectives import AllReduce, Exchange
from simulator.costs.ops.experts import ExpertsForm, MixtureOfExperts
from simulator.costs.ops.gemm import TILE_TOKENS, Gemm, GemmForm
from simulator.costs.ops.rows import RowTable, StreamedRows
from simulator.gpu import Gpu
from simulator.models.matrices import weight_bytes_each
from simulator.models.model import KV_CACHE_BYTES
from simulator.numerics.arrays import Floats

ARITHMETIC = {"bf16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "int4": "bf16", "mxfp4": "bf16"}
"""The tensor-core type that multiplies weights of each format:
four-bit weights are widened to bf16 (assumed).
"""


@dataclass(frozen=True)
class Part:
    """One operator family of a profile. `table` and `coefficients` are
    as in the file (µs, bytes, tokens).
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

    def gemm(self, weights: str, kernels: str = "") -> Gemm:
        """The linear operator for weights of that format; `kernels`: a framework whose own kernel is taken
        where it was measured.

        Formats without a part of their own (int4, mxfp4; fp8 on a GPU without fp8 arithmetic) take the bf16
        form with fewer weight bytes and no table: assumed.
        """
        own = f"gemm/{weights}"
        own = f"{own}/{kernels}" if f"{own}/{kernels}" in self.parts else own
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
            tile_tokens=float(part.coefficients.get("tile_tokens", TILE_TOKENS)),
        )
        how = {
            "follows_form": bool(part.coefficients.get("follows_form", False)),
            "rises": bool(part.coefficients.get("rises", True)),
        }
        if not part.table:
            return Gemm(form, np.ones(1), np.zeros((0, 2)), np.zeros((0, 1)), follows_form=True)
        knots, shapes = part.array("knots"), part.array("shapes").reshape(-1, 2)
        if widened:
            return Gemm(form, knots, np.zeros((0, 2)), np.zeros((0, len(knots))), **how)
        if "log_ratio" in part.table:
            return Gemm(form, knots, shapes, part.array("log_ratio"), **how)
        smooth = form.time_us(shapes[:, :1], shapes[:, 1:], knots[None, :])
        return Gemm(form, knots, shapes, np.log(part.array("us") / smooth), **how)

    def attention(self, kv_cache: str, kernels: str = "") -> DecodeAttention | MeasuredAttention:
        """Decode attention; `kernels`: a framework whose own kernel is taken where it was measured."""
        own = f"attention/{kv_cache}"
        own = f"{own}/{kernels}" if f"{own}/{kernels}" in self.parts else own
        part = self._part(own, "attention/bf16")
        if "queries" in part.table:
            return self._measured_attention(part)
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

    def _measured_attention(self, part: Part) -> MeasuredAttention:
        """With query tokens among the axes of its table. `cache_bytes` are those of the part's own cache."""
        numbers = ("start_us", "memory_efficiency", "compute_efficiency", "per_query_us")
        form = AttentionForm(
            bandwidth_bytes_per_s=self.bandwidth(),
            flops_per_s=self.flops_per_s("bf16"),
            cache_bytes=KV_CACHE_BYTES[part.name.split("/")[1]],
            group=part.number("group"),
            **{name: part.number(name) for name in numbers},
        )
        names = ("head_dims", "kv_heads", "batches", "contexts", "queries")
        axes = {name: part.array(name) for name in names}
        d, h, b, c, q = np.meshgrid(*axes.values(), indexing="ij")
        return MeasuredAttention(
            form=form, log_ratio=np.log(part.array("us") / form.time_us(b, c, h, d, q)), **axes
        )

    def latent(self, kv_cache: str) -> LatentAttention:
        part = self._part(f"mla/{kv_cache}", "mla/bf16")
        scale = float(part.coefficients.get("memory_scale", 1.0))
        time = part.array("us")
        start = time.min()
        log_time = np.log(start + (time - start) * scale)
        return LatentAttention(part.array("rows"), part.array("batches"), part.array("contexts"), log_time)

    def experts(self, weights: str) -> MixtureOfExperts:
        """The routed-experts operator; formats without a part take
        the bf16 form with fewer bytes: assumed.
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
        return PrefillAttention(
            flops_per_s=self.flops_per_s("bf16"),
            bandwidth_bytes_per_s=self.bandwidth(),
            start_us=part.number("start_us"),
            compute_efficiency=part.number("compute_efficiency"),
            memory_efficiency=float(part.coefficients.get("memory_efficiency", 0.0)),
        )

    def streamed(self) -> StreamedCache:
        part = self.parts["streamed"]
        return StreamedCache(
            bandwidth_bytes_per_s=self.bandwidth(),
            flops_per_s=self.flops_per_s("bf16"),
            start_us=part.number("start_us"),
            memory_efficiency=part.number("memory_efficiency"),
            compute_efficiency=part.number("compute_efficiency"),
        )

    def allreduce(self, kernels: str = "") -> AllReduce:
        """All-reduce; `kernels`: a framework whose own is taken where it was measured."""
        part = self._part(f"allreduce/{kernels}", "allreduce")
        tables = {
            int(gpus): (np.asarray(rows["bytes"], dtype=np.float64), np.asarray(rows["us"], dtype=np.float64))
            for gpus, rows in part.table.items()
        }
        return AllReduce(MappingProxyType(tables), part.number("eager_start_us"))

    def exchange(self) -> Exchange | None:
        """Tokens sent to experts on other GPUs and back; None: not measured."""
        if "exchange" not in self.parts:
            return None
        part = self.parts["exchange"]
        tables = {
            int(gpus): (
                np.asarray(rows["tokens"], dtype=np.float64),
                np.asarray(rows["us"], dtype=np.float64),
            )
            for gpus, rows in part.table.items()
        }
        return Exchange(MappingProxyType(tables), part.number("hidden") * part.number("per_token"))

    def sampler(self, how: str = "") -> StreamedRows | RowTable:
        """Accepting and sampling of one round, by logit rows. `how`: greedy or sampled, with `plain-` before
        it where nothing is verified, or "" for not known; the nearest part that is there is taken.
        """
        return self._rows(self.sampler_part(how), "rows", "vocab")

    def sampler_sequence_us(self, how: str = "") -> float:
        """What accepting costs for each sequence beside its rows."""
        return float(self.sampler_part(how).coefficients.get("per_sequence_us", 0.0))

    def sampler_part(self, how: str = "") -> Part:
        """The part that `sampler` takes."""
        names = (f"sampler/{how}", f"sampler/{how.removeprefix('plain-')}")
        return self.parts[next((name for name in names if name in self.parts), "sampler")]

    def draft_sampler(self, how: str = "") -> StreamedRows | RowTable | None:
        """What one pass of a drafter does on its logits; None: not measured, and left out."""
        own = f"draft_sampler/{how}" if f"draft_sampler/{how}" in self.parts else "draft_sampler"
        return self._rows(self.parts[own], "rows", "vocab") if own in self.parts else None

    @property
    def on_cpu(self) -> bool:
        """Whether it was measured on a CPU, where operators are called one by one whatever the engine."""
        return self.provenance.get("kind") == "cpu"

    def rest_of_layer(self, traffic_bytes_per_token: float) -> RowTable | None:
        """A layer measured in place less its matrices and its attention, by tokens of so many bytes of
        traffic: everything a preset's small kernels stand for. Of several kinds of layers the one with the
        nearest traffic; None: not measured.
        """
        return self._nearest("elementwise", "tokens", "traffic_bytes_per_token", traffic_bytes_per_token)

    def preparation(self, hidden: float) -> RowTable | None:
        """Embedding, positions, mask: once a pass, by tokens of so many hidden values. None: not measured."""
        return self._nearest("pass", "tokens", "hidden", hidden)

    def _nearest(self, family: str, axis: str, width: str, size: float) -> RowTable | None:
        """The table of a family whose width is nearest."""
        parts = [
            part
            for name, part in self.parts.items()
            if name.partition("/")[0] == family and "us" in part.table
        ]
        if not parts:
            return None
        part = min(parts, key=lambda candidate: abs(np.log(candidate.number(width) / size)))
        return _row_table(part, axis, width)

    def eager_call_us(self) -> float | None:
        """Host time of one operation that plain torch launches; None: not measured."""
        return self.parts["launch"].number("eager_call_us") if "launch" in self.parts else None

    def _rows(self, part: Part, rows: str, width: str) -> StreamedRows | RowTable:
        if "us" in part.table:
            return _row_table(part, rows, width)
        number = part.number
        return StreamedRows(
            self.bandwidth(), number("start_us"), number("memory_efficiency"), number("passes")
        )


def _row_table(part: Part, rows: str, width: str) -> RowTable:
    line = {name: part.number(name) for name in ("start_us", "per_row_us")}
    return RowTable(part.array(rows), part.array("us"), part.number(width), **line)


def experts_smooth(form: ExpertsForm, shapes: Floats, knots: Floats) -> Floats:
    """(s, j) µs of the smooth form for shapes of `MixtureOfExperts`."""
    rows = [form.time_us(knots, h, i / tp, k, e, ep) for h, i, k, e, tp, ep in shapes.tolist()]
    return np.stack(rows)
