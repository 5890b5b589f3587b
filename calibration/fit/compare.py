"""Two profiles op by op: ratios of what the same shapes take, at those that both know."""

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
"""Query heads per KV head where neither profile was measured with a number of them."""
MESSAGE_BYTES = (4096, 65536, 1 << 20, 1 << 24)
PROMPT_PAIR_FLOPS = 4.0 * 32 * 128
LAYERS_OF = "llama-3.1-8b-instruct"
"""Whose layers stand for what small kernels and samplers are compared on."""

Point = tuple[str, str, float, float]
"""(operator, where, µs of the one, µs of the other)"""


def compare(base: Profile, other: Profile) -> dict[str, Any]:
    """The answer of `profile compare`: other ÷ base, a row per operator and size."""
    points = [
        point for find in (_linear, _attention, _experts, _allreduce, _rest) for point in find(base, other)
    ]
    grouped: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for op, where, one, two in points:
        grouped.setdefault((op, where), []).append((one, two))
    rows = []
    for (op, where), found in grouped.items():
        ratios = np.array([two / one for one, two in found])
        rows.append(
            {
                "op": op,
                "at": where,
                "n": len(found),
                "base_us": float(np.median([one for one, _ in found])),
                "other_us": float(np.median([two for _, two in found])),
                "ratio": float(np.median(ratios)),
                "p10": float(np.percentile(ratios, 10)),
                "p90": float(np.percentile(ratios, 90)),
                "base_status": _status(base, op),
                "other_status": _status(other, op),
            }
        )
    compared = {row["op"] for row in rows}
    alone = [
        name
        for name in _common(base, other, "gemm") + _common(base, other, "attention")
        if name not in compared
    ]
    left_out = sorted(
        name for name in base.parts if "inherited" in (_status(base, name), _status(other, name))
    )
    notes: list[str] = []
    if left_out:
        notes.append(f"not compared, as one of the two inherits them: {', '.join(left_out)}")
    if alone:
        notes.append(f"not compared, as no shape is known to both: {', '.join(alone)}")
    return {"base": base.name, "other": other.name, "rows": rows, "notes": notes}


def _status(profile: Profile, op: str) -> str:
    name = op if op in profile.parts else op.partition(" ")[0]
    return profile.parts[name].status if name in profile.parts else "assumed"


def _linear(base: Profile, other: Profile) -> Iterator[Point]:
    for name in _common(base, other, "gemm"):
        weights = name.partition("/")[2]
        one, two = base.gemm(weights), other.gemm(weights)
        both = {tuple(shape) for shape in one.shapes.tolist()} & {
            tuple(shape) for shape in two.shapes.tolist()
        }
        limit = min(float(gemm.knots[-1]) for gemm in (one, two))
        for tokens in (t for t in TOKENS if t <= limit):
            for n, k in sorted(both):
                yield (
                    name,
                    f"m = {tokens}",
                    float(one.time_us(n, k, tokens)),
                    float(two.time_us(n, k, tokens)),
                )


def _attention(base: Profile, other: Profile) -> Iterator[Point]:
    for name in _common(base, other, "attention"):
        if name.count("/") > 1:
            continue
        one, two = (profile.attention(name.partition("/")[2]) for profile in (base, other))
        dims = sorted({float(d) for d in one.head_dims} & {float(d) for d in two.head_dims})
        heads = sorted({float(h) for h in one.kv_heads} & {float(h) for h in two.kv_heads})
        batches, contexts = (
            [x for x in axis if x <= min(ends)]
            for axis, ends in (
                (BATCHES, (one.batches[-1], two.batches[-1])),
                (CONTEXTS, (one.contexts[-1], two.contexts[-1])),
            )
        )
        group = one.group or two.group or USUAL_GROUP
        for queries in QUERIES:
            for d, h, b, c in product(dims, heads, batches, contexts):
                times = [float(x.time_us(b, c, h, d, group * queries)) for x in (one, two)]
                yield name, "1 query" if queries == 1 else f"{queries} queries", times[0], times[1]


def _experts(base: Profile, other: Profile) -> Iterator[Point]:
    for name in _common(base, other, "experts"):
        one, two = (profile.experts(name.partition("/")[2]) for profile in (base, other))
        both = {tuple(s) for s in one.shapes.tolist()} & {tuple(s) for s in two.shapes.tolist()}
        limit = min(float(one.knots[-1]), float(two.knots[-1]))
        for tokens in (t for t in TOKENS if t <= limit):
            for h, i, k, e, tp, ep in sorted(both):
                times = [float(x.time_us(tokens, h, i / tp, k, e, ep)) for x in (one, two)]
                yield name, counted(tokens, "token"), times[0], times[1]


def _allreduce(base: Profile, other: Profile) -> Iterator[Point]:
    if not _both_own(base, other, "allreduce"):
        return
    one, two = base.allreduce(), other.allreduce()
    for gpus in sorted(set(one.tables) & set(two.tables)):
        for size in MESSAGE_BYTES:
            yield "allreduce", f"{gpus} GPUs", float(one.time_us(size, gpus)), float(two.time_us(size, gpus))


def _rest(base: Profile, other: Profile) -> Iterator[Point]:
    """Prompts, the rest of a layer, and accepting, for one well-known model."""
    model = network(load_model(LAYERS_OF))
    preset = load_preset("torch-2")[0]  # as operators run one by one, where a profile measured that
    one, two = (NetworkPricing(model, profile, preset, "bf16") for profile in (base, other))
    if _both_own(base, other, "prefill"):
        yield (
            "prefill",
            "a pair",
            base.prefill().pair_us(PROMPT_PAIR_FLOPS),
            other.prefill().pair_us(PROMPT_PAIR_FLOPS),
        )
    for tokens in (1, 16, 128, 1024):
        times = [float(x.small_us(tokens)) / model.layers for x in (one, two)]
        yield "elementwise", counted(tokens, "token"), times[0], times[1]
    for rows in (1, 16, 128):
        yield "sampler", counted(rows, "row"), float(one.sample_us(rows)), float(two.sample_us(rows))


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _common(base: Profile, other: Profile, family: str) -> list[str]:
    names = [name for name in base.parts if name.partition("/")[0] == family and name in other.parts]
    return sorted(name for name in names if _both_own(base, other, name))


def _both_own(base: Profile, other: Profile, name: str) -> bool:
    """Whether neither has the part from another GPU: what was scaled by a datasheet is no measurement."""
    return "inherited" not in (_status(base, name), _status(other, name))
