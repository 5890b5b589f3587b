"""A profile of this machine under vLLM, from passes of plain decoding alone.

A pass consists of its head, its attention layers and the rest. The rest is divided into what a layer costs
and what a pass costs by two networks that differ in layers only, and lies in the tables of the matrices in
proportion to their weights: a timer cannot separate the operators within a compiled layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from calibration.engine_loop.calibration_points import SMALL_LAYERS
from calibration.engine_loop.checkpoints import SMOLLM2, TARGET_LAYERS
from simulator.costs.network import Network, network
from simulator.costs.profile_file import SCHEMA
from simulator.models.catalogue import load_model
from simulator.numerics.arrays import Floats

_US = 1e6
CONTEXT_KNOTS = (32, 64, 128, 256, 512)
_NOTHING_US = 1e-6
"""A table of a profile holds times above 0."""
_BANDWIDTH, _BF16_FLOPS = 20e9, 200e9
_GPU: dict[str, Any] = {
    "name": "cpu-core",
    "title": "one CPU core",
    "memory_bytes": 8_000_000_000,
    "hbm_bandwidth_bytes_per_s": _BANDWIDTH,
    "l2_bytes": 32_000_000,
    "sms": 1,
    "nvlink_bandwidth_bytes_per_s": _BANDWIDTH,
    "interconnect": "none",
    "peak_flops_per_s": {"bf16": _BF16_FLOPS},
}
"""Nominal figures: every price is a table, so they are only what its forms are relative to."""


def profile_of(
    target: Mapping[str, Any], small: Mapping[str, Any], host: Mapping[str, Any]
) -> dict[str, Any]:
    """The JSON document of the profile. `target`, `small`: answers of `core_spans.py`; `host`: by method."""
    shape = network(load_model(SMOLLM2), 1, 1)
    per_layer, pass_us = layers_and_pass(target["points"], small["points"])
    heads = {entry["rows"]: entry["head_s"] * _US for entry in target["heads"]} | _heads_in_steps(
        target["points"]
    )
    parts = [
        _matrices(shape, per_layer, heads),
        _attention(target["points"]),
        _prefill(target["points"], shape),
        _rows(
            "elementwise",
            "tokens",
            {1: _NOTHING_US, 2048: _NOTHING_US},
            traffic_bytes_per_token=shape.traffic_bytes_per_token / shape.layers,
        ),
        _rows("pass", "tokens", {1: pass_us, 2048: pass_us}, hidden=shape.hidden),
        *_samplers(host, shape.head.n),
        {
            "name": "launch",
            "status": "assumed",
            "source": "the host is the device",
            "coefficients": {"eager_call_us": 0.0},
            "table": {},
        },
    ]
    return {
        "schema": SCHEMA,
        "name": "vllm-cpu",
        "inherits": "h100-sxm",
        "gpu": _GPU,
        "provenance": {"builder": "decodesim closure --engine vllm", "kind": "cpu"},
        "parts": parts,
    }


def layers_and_pass(
    target: Sequence[Mapping[str, Any]], small: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, float], float]:
    """µs of a layer without attention by tokens, and of a pass without its layers.

    The cost of a pass is the median over the decode steps that both networks ran: it is the call of a
    compiled graph, and hardly grows with tokens.
    """
    large, few = _rest_us(target), _rest_us([point for point in small if point["context"]])
    difference = TARGET_LAYERS - SMALL_LAYERS
    passes = [us - SMALL_LAYERS * (large[tokens] - us) / difference for tokens, us in few.items()]
    pass_us = max(median(passes), _NOTHING_US)
    per_layer = {tokens: max(us - pass_us, _NOTHING_US) / TARGET_LAYERS for tokens, us in large.items()}
    return per_layer, pass_us


def _rest_us(points: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """µs of a forward without attention by tokens, the median over contexts."""
    spans_by_step: dict[int, list[float]] = defaultdict(list)
    for point in points:
        seconds = point["seconds"]
        spans_by_step[point["batch"] * point["queries"]].append(
            (seconds["forward"] - seconds["attention"]) * _US
        )
    return {tokens: median(values) for tokens, values in sorted(spans_by_step.items())}


def _heads_in_steps(points: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """µs of the head within plain steps, by rows."""
    spans_by_step: dict[int, list[float]] = defaultdict(list)
    for point in points:
        if point["queries"] == 1:
            spans_by_step[point["batch"]].append(point["seconds"]["head"] * _US)
    return {rows: median(values) for rows, values in spans_by_step.items()}


def _matrices(shape: Network, per_layer: Mapping[int, float], heads: Mapping[int, float]) -> dict[str, Any]:
    """The part of all matrices: those of a layer share its time by their weights."""
    knots = sorted({*per_layer, *heads})
    layer_us = _log_interpolated(knots, per_layer)
    weights = sum(matrix.n * matrix.k for matrix in shape.matrices)
    rows = [(layer_us * (matrix.n * matrix.k / weights)).tolist() for matrix in shape.matrices]
    rows.append(_log_interpolated(knots, heads).tolist())
    shapes = [[matrix.n, matrix.k] for matrix in (*shape.matrices, shape.head)]
    form = {
        "start_us": 1.0,
        "memory_efficiency": 0.5,
        "compute_efficiency": 0.5,
        "smoothness": 1.0,
        "per_k_us": 0.0,
        "rises": 0.0,  # a step of 4 tokens takes another kernel than one of 2, and less time
    }
    return _part("gemm/bf16", form, {"shapes": shapes, "knots": knots, "us": rows})


def _log_interpolated(knots: Sequence[int], times_us: Mapping[int, float]) -> Floats:
    """µs at the knots; proportional beyond the last that was measured."""
    at = sorted(times_us)
    inside = np.exp(np.interp(np.log(knots), np.log(at), [np.log(times_us[t]) for t in at]))
    return np.asarray(inside * np.maximum(np.asarray(knots) / at[-1], 1.0))


def _attention(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One layer by batch, context and tokens a step: a line in the context for each of the others."""
    decodes = [point for point in points if point["context"]]
    batches = sorted({point["batch"] for point in decodes})
    queries = sorted({point["queries"] for point in decodes})
    table = [[[0.0] * len(queries) for _ in CONTEXT_KNOTS] for _ in batches]
    for row, batch in zip(table, batches, strict=True):
        for column, tokens in enumerate(queries):
            same = [p for p in decodes if (p["batch"], p["queries"]) == (batch, tokens)]
            contexts, times = [p["context"] for p in same], [_layer_us(p) for p in same]
            slope, start = np.polyfit(contexts, times, 1)
            for knot, context in zip(row, CONTEXT_KNOTS, strict=True):
                knot[column] = max(float(start + slope * context), min(times) / 2)
    form = {
        "start_us": 5.0,
        "memory_efficiency": 0.5,
        "compute_efficiency": 0.5,
        "per_query_us": 1.0,
        "group": 3.0,
    }
    axes = {
        "head_dims": [64],
        "kv_heads": [3],
        "batches": batches,
        "contexts": list(CONTEXT_KNOTS),
        "queries": queries,
    }
    return _part("attention/bf16", form, {**axes, "us": [[table]]})


def _layer_us(point: Mapping[str, Any]) -> float:
    return float(point["seconds"]["attention"]) * _US / TARGET_LAYERS


def _prefill(points: Sequence[Mapping[str, Any]], shape: Network) -> dict[str, Any]:
    """A start, a time of each (query, key) pair and one of each token, by relative least squares."""
    prompts = [p for p in points if not p["context"]]
    pairs = np.array([p["batch"] * p["queries"] ** 2 / 2 for p in prompts])
    tokens = np.array([float(p["batch"] * p["queries"]) for p in prompts])
    times = np.array([_layer_us(p) for p in prompts])
    from scipy.optimize import nnls

    columns = np.stack([np.ones_like(pairs), pairs, tokens], axis=1)
    (start_us, pair_us, token_us), _ = nnls(columns / times[:, None], np.ones_like(times))
    layer = shape.attentions[0]
    pair_flops = 2.0 * layer.heads * (layer.attention.head_dim + layer.attention.v_head_dim)
    token_bytes = 2.0 * (layer.heads + layer.kv_heads) * 2 * layer.attention.head_dim
    return _part(
        "prefill",
        {
            "start_us": float(start_us),
            "compute_efficiency": pair_flops / (_BF16_FLOPS * max(pair_us, 1e-9) / _US),
            "memory_efficiency": token_bytes / (_BANDWIDTH * max(token_us, 1e-9) / _US),
        },
        {},
    )


def _samplers(host: Mapping[str, Any], vocabulary: int) -> list[dict[str, Any]]:
    """Choosing tokens plainly, verifying drafts, and choosing a draft, by rows."""
    plain = {p["batch"]: p["seconds"]["sampler"] * _US for p in host["plain"]["points"]}
    verified: dict[int, float] = {}
    for name, answer in host.items():
        if name.startswith("draft-"):
            rows = int(name.removeprefix("draft-")) + 1
            verified |= {p["batch"] * rows: p["seconds"]["sampler"] * _US for p in answer["points"]}
    drafted = {entry["rows"]: entry["argmax_s"] * _US for entry in host["plain"]["heads"]}
    named = {
        "sampler": verified,
        "sampler/plain-greedy": plain,
        "sampler/greedy": verified,
        "draft_sampler": drafted,
    }
    return [_rows(name, "rows", times, vocab=vocabulary) for name, times in named.items()]


def _rows(name: str, axis: str, times_us: Mapping[int, float], **width: float) -> dict[str, Any]:
    """A table by rows with the line that it is relative to."""
    at = sorted(times_us)
    values = [times_us[rows] for rows in at]
    slope = max((values[-1] - values[0]) / (at[-1] - at[0]), _NOTHING_US)
    line = {"start_us": max(values[0] - slope * at[0], _NOTHING_US), "per_row_us": slope}
    return _part(name, {**line, **width}, {axis: at, "us": values})


def _part(name: str, coefficients: dict[str, float], table: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "status": "measured",
        "source": "spans of an engine core of vLLM",
        "coefficients": coefficients,
        "table": table,
    }
