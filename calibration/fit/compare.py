"""Compares two profiles by operator: ratios of times at shapes that both know."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from simulator.costs.network import network
from simulator.costs.pricing import NetworkPricing
from simulator.costs.profiles import Profile
from simulator.engines.presets import load_preset
from simulator.models.catalogue import load_model

TOKENS = (1, 8, 32, 64, 96, 128, 192, 256, 320, 512, 1024, 4096)
BATCHES, CONTEXTS, QUERIES = (1, 4, 16, 64, 256), (128, 512, 2048, 8192), (1, 2, 4, 6, 8, 16)
USUAL_GROUP = 4.0
"""Query heads per KV head if neither profile states the number it was measured with."""
MESSAGE_BYTES = (4096, 65536, 1 << 20, 1 << 24)
PROMPT_PAIR_FLOPS = 4.0 * 32 * 128
LAYERS_OF = "llama-3.1-8b-instruct"
"""The model for comparing small kernels and samplers."""

PairedTime = tuple[str, str, float, float]
"""(operator, shape, µs of the base profile, µs of the other)"""


def compare(base: Profile, other: Profile) -> dict[str, Any]:
    """The answer of `profile compare`: other ÷ base, one row per operator and shape."""
    points = [
        point
        for find in (_linear, _attention, _experts, _allreduce, _other_operators)
        for point in find(base, other)
    ]
    grouped: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for op, where, base_us, other_us in points:
        grouped.setdefault((op, where), []).append((base_us, other_us))
    rows = []
    for (op, where), times in grouped.items():
        ratios = np.array([other_us / base_us for base_us, other_us in times])
        rows.append(
            {
                "op": op,
                "at": where,
                "n": len(times),
                "base_us": float(np.median([base_us for base_us, _ in times])),
                "other_us": float(np.median([other_us for _, other_us in times])),
                "ratio": float(np.median(ratios)),
                "p10": float(np.percentile(ratios, 10)),
                "p90": float(np.percentile(ratios, 90)),
                "base_status": _status(base, op),
                "other_status": _status(other, op),
            }
        )
    compared = {row["op"] for row in rows}
    without_shapes = [
        name
        for name in _common(base, other, "gemm") + _common(base, other, "attention")
        if name not in compared
    ]
    left_out = sorted(
        name for name in base.parts if "inherited" in (_status(base, name), _status(other, name))
    )
    notes: list[str] = []
    if left_out:
        notes.append(f"not compared, because one profile inherits them: {', '.join(left_out)}")
    if without_shapes:
        notes.append(f"not compared, because the profiles share no shape: {', '.join(without_shapes)}")
    return {"base": base.name, "other": other.name, "rows": rows, "notes": notes}


def _status(profile: Profile, op: str) -> str:
    name = op if op in profile.parts else op.partition(" ")[0]
    return profile.parts[name].status if name in profile.parts else "assumed"


def _linear(base: Profile, other: Profile) -> Iterator[PairedTime]:
    for name in _common(base, other, "gemm"):
        weights = name.partition("/")[2]
        base_gemm, other_gemm = base.gemm(weights), other.gemm(weights)
        shared_shapes = {tuple(shape) for shape in base_gemm.shapes.tolist()} & {
            tuple(shape) for shape in other_gemm.shapes.tolist()
        }
        limit = min(float(gemm.knots[-1]) for gemm in (base_gemm, other_gemm))
        for tokens in (t for t in TOKENS if t <= limit):
            for n, k in sorted(shared_shapes):
                yield (
                    name,
                    f"m = {tokens}",
                    float(base_gemm.time_us(n, k, tokens)),
                    float(other_gemm.time_us(n, k, tokens)),
                )


def _attention(base: Profile, other: Profile) -> Iterator[PairedTime]:
    for name in _common(base, other, "attention"):
        if name.count("/") > 1:
            continue
        base_attention, other_attention = (
            profile.attention(name.partition("/")[2]) for profile in (base, other)
        )
        dims = sorted(
            {float(d) for d in base_attention.head_dims} & {float(d) for d in other_attention.head_dims}
        )
        heads = sorted(
            {float(h) for h in base_attention.kv_heads} & {float(h) for h in other_attention.kv_heads}
        )
        batches, contexts = (
            [x for x in axis if x <= min(ends)]
            for axis, ends in (
                (BATCHES, (base_attention.batches[-1], other_attention.batches[-1])),
                (CONTEXTS, (base_attention.contexts[-1], other_attention.contexts[-1])),
            )
        )
        group = base_attention.group or other_attention.group or USUAL_GROUP
        for queries in QUERIES:
            for d, h, b, c in product(dims, heads, batches, contexts):
                times = [
                    float(x.time_us(b, c, h, d, group * queries)) for x in (base_attention, other_attention)
                ]
                yield name, "1 query" if queries == 1 else f"{queries} queries", times[0], times[1]


def _experts(base: Profile, other: Profile) -> Iterator[PairedTime]:
    for name in _common(base, other, "experts"):
        base_experts, other_experts = (profile.experts(name.partition("/")[2]) for profile in (base, other))
        shared_shapes = {tuple(s) for s in base_experts.shapes.tolist()} & {
            tuple(s) for s in other_experts.shapes.tolist()
        }
        limit = min(float(base_experts.knots[-1]), float(other_experts.knots[-1]))
        for tokens in (t for t in TOKENS if t <= limit):
            for h, i, k, e, tp, ep in sorted(shared_shapes):
                times = [float(x.time_us(tokens, h, i / tp, k, e, ep)) for x in (base_experts, other_experts)]
                yield name, counted(tokens, "token"), times[0], times[1]


def _allreduce(base: Profile, other: Profile) -> Iterator[PairedTime]:
    if not _neither_inherits(base, other, "allreduce"):
        return
    base_reduce, other_reduce = base.allreduce(), other.allreduce()
    for gpus in sorted(set(base_reduce.tables) & set(other_reduce.tables)):
        for size in MESSAGE_BYTES:
            yield (
                "allreduce",
                f"{gpus} GPUs",
                float(base_reduce.time_us(size, gpus)),
                float(other_reduce.time_us(size, gpus)),
            )


def _other_operators(base: Profile, other: Profile) -> Iterator[PairedTime]:
    """Prompts, small kernels and samplers, for one well-known model."""
    model = network(load_model(LAYERS_OF))
    preset = load_preset("torch-2")[0]  # eager operators, if a profile measured them
    base_pricing, other_pricing = (
        NetworkPricing(model, profile, preset, "bf16") for profile in (base, other)
    )
    if _neither_inherits(base, other, "prefill"):
        yield (
            "prefill",
            "a pair",
            base.prefill().pair_us(PROMPT_PAIR_FLOPS),
            other.prefill().pair_us(PROMPT_PAIR_FLOPS),
        )
    for tokens in (1, 16, 128, 1024):
        times = [float(x.small_us(tokens)) / model.layers for x in (base_pricing, other_pricing)]
        yield "elementwise", counted(tokens, "token"), times[0], times[1]
    for rows in (1, 16, 128):
        yield (
            "sampler",
            counted(rows, "row"),
            float(base_pricing.sample_us(rows)),
            float(other_pricing.sample_us(rows)),
        )


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _common(base: Profile, other: Profile, family: str) -> list[str]:
    names = [name for name in base.parts if name.partition("/")[0] == family and name in other.parts]
    return sorted(name for name in names if _neither_inherits(base, other, name))


def _neither_inherits(base: Profile, other: Profile, name: str) -> bool:
    """Whether neither profile inherits the part: a part scaled by a datasheet is not a measurement."""
    return "inherited" not in (_status(base, name), _status(other, name))
