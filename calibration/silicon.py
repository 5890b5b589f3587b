"""Builds a shipped profile from public kernel tables.

    python -m calibration.silicon --from-tables DIR --system h100-sxm -o FILE

DIR is an unpacked `aiconfigurator-core` package (or a folder of filtered copies of its tables, see
`tables.py`). The same tables give the same bytes: nothing depends on the clock; dates come from the caller.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from calibration import heldout
from calibration.profile_json import dumps
from calibration.silicon_attention import fit_attention, fit_latent, fit_prefill, fit_streamed
from calibration.silicon_exchange import exchange_part
from calibration.silicon_fit import Points, fit_allreduce, fit_experts, fit_gemm
from calibration.tables import Columns, Tables, medians, open_tables
from simulator.costs.profiles import SCHEMA, Part
from simulator.errors import InputError
from simulator.gpu import Gpu
from simulator.gpu import gpu as known_gpu

LICENCE = "Apache-2.0"
NOTICE = "Derived from tables of aiconfigurator-core, Copyright NVIDIA CORPORATION & AFFILIATES, Apache-2.0"
MODIFIED = "filtered, smoothed, fitted"

VLLM, SGLANG, TRTLLM = ("vllm", "0.24.0"), ("sglang", "0.5.14"), ("trtllm", "1.3.0rc20")
GEMMS = {"bf16": ("bfloat16", VLLM), "fp8": ("fp8", VLLM), "fp8_block": ("fp8_block", SGLANG)}
"""Weight format → (dtype in the tables, framework). SGLang's fp8_block: vLLM's rows were timed eagerly."""
EXPERTS = {
    "bf16": ("bfloat16", VLLM),
    "fp8": ("fp8", TRTLLM),
    "fp8_block": ("fp8_block", VLLM),
    "int4": ("int4_wo", VLLM),
    "mxfp4": ("w4a16_mxfp4", VLLM),
}
"""Weight format → (dtype in the tables, framework).

All fp8 rows of vLLM 0.24.0 are of an untuned kernel: 2.5 times slower than bf16 at half the bytes, no faster
on H200 than on H100, and five times slower than vLLM 0.19.0 (H200). TensorRT-LLM's are within 4 % of vLLM
0.19.0's, and of fp8_block, up to 1024 tokens.
"""
UNTUNED = 1.5
"""Experts of fewer bytes that take longer than this × bf16 (median over tokens) ran an untuned kernel."""
OWN_GEMMS = (("fp8", TRTLLM),)
"""Weight formats for which a framework has its own matrix kernel: TensorRT-LLM's is as fast as vLLM's up to
64 tokens, and 15 to 25 % faster at 256 to 4096.
"""
OWN_HEAD_DIM = 128
KV_CACHES = {"bf16": "bfloat16", "fp8": "fp8"}
OWN_ATTENTION = (("fp8", TRTLLM),)
"""KV caches for which a framework has its own attention kernel: TensorRT-LLM reads fp8 at the rate of bf16
(2.8 of H100's 3.35 TB/s, 3.7 of H200's 4.8 TB/s at batch 128, 1k); vLLM's FlashAttention 3 reaches 2.0 and
2.2 TB/s.
"""
OWN_ALLREDUCES = (TRTLLM,)
"""Frameworks with their own all-reduce: on eight GPUs TensorRT-LLM's takes a third less time up to 64 KB, and
half as much again at 1 to 8 MB. SGLang up to 0.5.10 uses vLLM's.
"""
GEMM_KEYS = ("n", "k", "m")
ATTENTION_KEYS = ("heads", "kv_heads", "head_dim", "batch", "context")
EXPERT_KEYS = ("hidden", "inter", "topk", "experts", "moe_tp", "moe_ep", "tokens")


def gemm_points(tables: Tables, weights: str) -> Points:
    """(n, k, m) → µs: matrices of 256 to 65536, up to 4096 tokens."""
    dtype, (framework, version) = GEMMS[weights]
    rows = _need(tables, "gemm", framework, version)
    selected = (
        (rows["dtype"].astype(str) == dtype) & (rows["m"] <= 4096) & (rows["n"] >= 256) & (rows["k"] >= 256)
    )
    return medians(rows, GEMM_KEYS, selected)


def own_gemm_points(tables: Tables, weights: str, framework: tuple[str, str]) -> Points:
    """(n, k, m) → µs of a framework's linear layers, for checkpoints that include the scales of their inputs.

    The rows also compute the scale of every input (AIConfigurator's collector loads no input scale). The time
    of that is in a separate table and is subtracted. Quantising by the scale remains. {} if a table is
    missing.
    """
    rows, scaling = tables.read("gemm", *framework), tables.read("scaling", *framework)
    if rows is None or scaling is None:
        return {}
    selected = (rows["dtype"].astype(str) == GEMMS[weights][0]) & (rows["m"] <= 4096)
    selected &= (rows["n"] >= 256) & (rows["k"] >= 256)
    scaling_us = medians(scaling, ("k", "m"), np.ones(len(scaling["us"]), dtype=np.bool_))
    linear_us = medians(rows, GEMM_KEYS, selected)
    return {key: us - scaling_us[key[1:]] for key, us in linear_us.items() if key[1:] in scaling_us}


def attention_points(
    tables: Tables, kv_cache: str, framework: tuple[str, str] = VLLM, window: bool = False
) -> Points:
    """(heads, kv heads, head dim, batch, context) → µs; with `window`, (…, window) → µs of windowed rows."""
    rows = _need(tables, "attention", *framework)
    selected = (rows["kv_dtype"].astype(str) == KV_CACHES[kv_cache]) & np.isin(rows["head_dim"], (64, 128))
    selected &= rows["batch"] <= 512
    selected &= (rows["window_size"] > 0) if window else (rows["window_size"] == 0)
    return medians(rows, (*ATTENTION_KEYS, "window_size") if window else ATTENTION_KEYS, selected)


def latent_points(tables: Tables, kv_cache: str) -> Points:
    """(heads, batch, context) → µs of the MLA core kernel.

    The rows are TensorRT-LLM's. SGLang's agree in bf16, but its fp8 kernel converts the cache first (9 times
    slower at batch 128), which does not show in vLLM's module timings.
    """
    rows = _need(tables, "mla", *TRTLLM)
    return medians(rows, ("heads", "batch", "context"), rows["kv_dtype"].astype(str) == KV_CACHES[kv_cache])


def expert_points(tables: Tables, weights: str) -> Points:
    """(hidden, intermediate, per token, experts, tp, ep, tokens) → µs under skewed routing; {} without a
    table.

    Only gated experts, with either tensor or expert parallelism. Untuned shapes are left out.
    """
    dtype, framework = EXPERTS[weights]
    wide = _expert_rows(_need(tables, "moe", *VLLM), EXPERTS["bf16"][0])
    rows = tables.read("moe", *framework)
    return {} if rows is None else tuned(_expert_rows(rows, dtype), wide)


def _expert_rows(rows: Columns, dtype: str) -> Points:
    selected = (rows["dtype"].astype(str) == dtype) & (rows["distribution"].astype(str) == "power_law_1.01")
    selected &= (rows["tokens"] <= 4096) & (rows["moe_ep"] <= 16) & (rows["moe_tp"] <= 8)
    selected &= (rows["moe_ep"] == 1) | (rows["moe_tp"] == 1)
    selected &= ~np.char.endswith(rows["kernel"].astype(str), "_nongated")
    return medians(rows, EXPERT_KEYS, selected)


def tuned(points: Points, wide: Points) -> Points:
    """The points of shapes whose times are plausible relative to the same shape in bf16 (`wide`)."""
    ratios: dict[tuple[int, ...], list[float]] = {}
    for key, us in points.items():
        if key in wide:
            ratios.setdefault(key[:-1], []).append(us / wide[key])
    untuned = {shape for shape, values in ratios.items() if np.median(values) > UNTUNED}
    return {key: us for key, us in points.items() if key[:-1] not in untuned}


def allreduce_points(tables: Tables, mode: str, framework: tuple[str, str] = VLLM) -> Points:
    """(gpus, bytes) → µs; mode `graph` or `eager`."""
    rows = _need(tables, "allreduce", *framework)
    return medians(rows, ("gpus", "bytes"), rows["mode"].astype(str) == mode)


def build_profile(directory: Path, system: str, date: str = "") -> dict[str, Any]:
    """The profile of `system` (a name in `GPUS`) as JSON data. Raises InputError when tables are missing."""
    target = known_gpu(system)
    tables = open_tables(directory, system)
    parts = [_gemm(tables, weights, target) for weights in GEMMS]
    parts += [part for own_gemm in OWN_GEMMS if (part := _own_gemm(tables, *own_gemm, target))]
    parts += [_attention(tables, kv, target) for kv in KV_CACHES]
    parts += [_own_attention(tables, kv, framework, target) for kv, framework in OWN_ATTENTION]
    parts += [_latent(tables, kv, target) for kv in KV_CACHES]
    parts += [part for weights in EXPERTS if (part := _experts(tables, weights, target))]
    parts += [
        _allreduce(tables, target),
        *(_own_allreduce(tables, framework, target) for framework in OWN_ALLREDUCES),
    ]
    parts += [part for part in (exchange_part(tables),) if part]
    parts += [_prefill(tables, target), _streamed(tables, target)]
    parts += assumed_parts()
    return {
        "schema": SCHEMA,
        "name": system,
        "gpu": system,
        "provenance": {
            "package": tables.package,
            "version": tables.version,
            "date": date,
            "licence": LICENCE,
            "notice": NOTICE,
            "modified": MODIFIED,
            "builder": "calibration.silicon",
            "files": [tables.files[key] for key in sorted(tables.files)],
        },
        "parts": [_as_json(part) for part in parts],
    }


def assumed_parts() -> list[Part]:
    """Parts that no table measures: element-wise traffic and the sampler."""
    elementwise = Part(
        name="elementwise",
        status="assumed",
        source="norm, activation and rope traffic at 80 % of the bandwidth",
        coefficients={"memory_efficiency": 0.8},
        table={},
        residual={},
        note="the silu-mul kernel of LLMServingSim's H100 tables streams at 2.7 TB/s",
    )
    sampler = Part(
        name="sampler",
        status="assumed",
        source="one pass over fp32 logits; start from arXiv 2601.11580 Fig. 4 (1.6 % of 8.4 ms at batch 1)",
        coefficients={"start_us": 120.0, "memory_efficiency": 0.8, "passes": 1.0},
        table={},
        residual={},
    )
    return [elementwise, sampler]


def _as_json(part: Part) -> dict[str, Any]:
    fields = ("name", "status", "source", "note", "residual", "coefficients", "table")
    return {field: getattr(part, field) for field in fields}


def _need(tables: Tables, op: str, framework: str, version: str) -> Columns:
    rows = tables.read(op, framework, version)
    if rows is None:
        raise InputError(f"{tables.root}: no {op} table of {framework} {version} for {tables.system}")
    return rows


def _gemm(tables: Tables, weights: str, target: Gpu) -> Part:
    points = gemm_points(tables, weights)
    dtype, framework = GEMMS[weights]
    part = fit_gemm(points, weights, target, f"{' '.join(framework)} {dtype} linear layers")
    return replace(part, residual=heldout.gemm_error(points, weights, target))


def _own_gemm(tables: Tables, weights: str, framework: tuple[str, str], target: Gpu) -> Part | None:
    """The form without a table, because a table would change it by less than its error."""
    points = own_gemm_points(tables, weights, framework)
    if not points:
        return None
    part = fit_gemm(points, weights, target, f"{' '.join(framework)} {weights} linear layers", form_only=True)
    residual = heldout.gemm_error(points, weights, target, form_only=True)
    note = "the form without a table; scales of inputs are known, quantising by them is included"
    return replace(part, name=f"{part.name}/{framework[0]}", residual=residual, note=note)


def _attention(tables: Tables, kv_cache: str, target: Gpu) -> Part:
    points = attention_points(tables, kv_cache)
    windows = attention_points(tables, kv_cache, window=True)
    penalties = attention_points(tables, "bf16", SGLANG)
    part = fit_attention(points, kv_cache, f"{' '.join(VLLM)} FlashAttention 3", windows, penalties)
    return replace(part, residual=heldout.attention_error(points, kv_cache, target))


def _own_attention(tables: Tables, kv_cache: str, framework: tuple[str, str], target: Gpu) -> Part:
    """A framework's own kernel for grouped queries: 4 to 8 heads of 128 per KV head, at most 8 KV heads per
    GPU.

    Only every second context is kept, which saves bytes and costs 1 % of accuracy.
    """
    kernels = framework[0]
    every_shape = attention_points(tables, kv_cache, framework).items()
    points = {
        key: us
        for key, us in every_shape
        if key[1] <= 8 and 4 <= key[0] / key[1] <= 8 and key[2] == OWN_HEAD_DIM
    }
    part = fit_attention(points, kv_cache, f"{' '.join(framework)} decode attention", every=2)
    residual = heldout.attention_error(points, kv_cache, target, every=2)
    return replace(part, name=f"{part.name}/{kernels}", residual=residual)


def _latent(tables: Tables, kv_cache: str, target: Gpu) -> Part:
    points = latent_points(tables, kv_cache)
    part = fit_latent(points, kv_cache, f"{' '.join(TRTLLM)} MLA decode")
    return replace(part, residual=heldout.latent_error(points, kv_cache, target))


def _experts(tables: Tables, weights: str, target: Gpu) -> Part | None:
    points = expert_points(tables, weights)
    if not points:
        return None
    source = f"{' '.join(EXPERTS[weights][1])} fused mixture of experts"
    part = fit_experts(points, weights, target, source)
    return replace(part, residual=heldout.experts_error(points, weights, target))


def _allreduce(tables: Tables, target: Gpu) -> Part:
    graph, eager = allreduce_points(tables, "graph"), allreduce_points(tables, "eager")
    part = fit_allreduce(graph, eager, f"{' '.join(VLLM)} custom all-reduce")
    return replace(part, residual=heldout.allreduce_error(graph, target))


def _own_allreduce(tables: Tables, framework: tuple[str, str], target: Gpu) -> Part:
    graph = allreduce_points(tables, "graph", framework)
    part = fit_allreduce(graph, {}, f"{' '.join(framework)} all-reduce")
    return replace(part, name=f"{part.name}/{framework[0]}", residual=heldout.allreduce_error(graph, target))


def _prefill(tables: Tables, target: Gpu) -> Part:
    rows = tables.read("prefill", *VLLM)
    if rows is None:
        return _assumed("prefill", {"start_us": 13.0, "compute_efficiency": 0.7, "memory_efficiency": 0.4})
    selected = (
        (rows["kv_dtype"].astype(str) == "bfloat16") & (rows["window_size"] == 0) & (rows["head_dim"] == 128)
    )
    points = medians(rows, ("batch", "isl", "heads", "kv_heads", "head_dim"), selected)
    return fit_prefill(points, target, f"{' '.join(VLLM)} FlashAttention 3, prefill")


def _streamed(tables: Tables, target: Gpu) -> Part:
    rows = tables.read("gdn", *VLLM)
    if rows is None:
        return _assumed("streamed", {"start_us": 7.0, "memory_efficiency": 0.85, "compute_efficiency": 0.5})
    decode = rows["phase"].astype(str) == "generation"
    keys = ("num_v_heads", "head_k_dim", "head_v_dim", "num_k_heads", "d_model", "batch")
    kernel_times: dict[tuple[int, ...], list[float]] = {}
    for kernel in sorted(set(rows["kernel"].astype(str)[decode])):
        for key, value in medians(rows, keys, decode & (rows["kernel"].astype(str) == kernel)).items():
            kernel_times.setdefault(key, []).append(value)
    states = [
        (2.0 * 4.0 * k[0] * k[1] * k[2] * k[5], sum(us)) for k, us in kernel_times.items() if len(us) == 2
    ]
    return fit_streamed(states, target, f"{' '.join(VLLM)} gated delta net decode")


def _assumed(name: str, coefficients: dict[str, float]) -> Part:
    return Part(name, "assumed", "not in these tables", coefficients, {}, {})


@click.command()
@click.option(
    "--from-tables", "directory", required=True, type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@click.option("--system", required=True, help="GPU name, e.g. h100-sxm")
@click.option("--date", default="", help="date of the tables, written into the provenance")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path, dir_okay=False))
def main(directory: Path, system: str, date: str, output: Path) -> None:
    """Make a profile with held-out residuals from public kernel tables."""
    try:
        profile = build_profile(directory, system, date)
    except InputError as error:
        raise click.UsageError(str(error)) from error
    output.write_text(dumps(profile), encoding="utf-8")
    for part in profile["parts"]:
        residual = part["residual"]
        held_out = f"{residual.get('mape_percent', '–')} %  {residual.get('split', '')}"
        click.echo(f"{part['name']:18} {part['status']:9} {held_out}")


if __name__ == "__main__":
    main()
