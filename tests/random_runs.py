"""Seeded random scenarios of real models on real prices, small and full of rare events.

`tests/scenarios.py` draws engines and prices freely, for the step and the oracle; here everything goes the
way a user's file does: scenario → variant → run. So leaps and stage by stage meet what the oracle leaves out:
prefix hashes, sessions, hierarchical acceptance with drift, replayed traces, policies of K, recorded traffic.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulator.runs.variant import CompiledVariant
from simulator.scenario import scenario_from_data
from simulator.step.build import cannot_run
from simulator.traffic.workload import Requests, generate

MECHANISMS = (
    "prefill graph_padding heterogeneity stop_trim ghost_rows expert_union host_overlap context_growth"
).split()
PRESETS = ("vllm-0.10", "vllm-0.33", "sglang-0.5", "trtllm-1")
TARGETS = {
    "llama-3.1-8b-instruct": ("eagle3", "eagle3-llama-3.1-8b"),
    "qwen3-30b-a3b": ("eagle3", "eagle3-qwen3-30b-a3b"),
    "llama-3-8b-instruct": ("eagle", "eagle-llama-3-8b-instruct"),
}
DRAFT_MODELS = {"qwen3-30b-a3b": "qwen3-0.6b"}
METHODS = ("eagle", "eagle", "ngram", "draft_model", "plain")


def random_variant(seed: int, folder: Path, **changes: Any) -> CompiledVariant:
    """Return one random variant, compiled, on an engine whose memory is often tight.
    `changes` are those of `run` in the scenario."""
    rng = random.Random(f"arm {seed}")
    data = random_data(rng, seed, folder)
    data["run"] |= changes
    scenario = scenario_from_data(data, folder)
    variant = CompiledVariant.compile(scenario, scenario.speculation[0] if scenario.speculation else None)
    return _with_tight_memory(rng, variant)


def serves_any(variant: CompiledVariant, requests: Requests) -> bool:
    """Whether at least one of the requests can run; a variant that can serve none is refused."""
    return not cannot_run(variant.settings, requests.prompt_tokens, requests.output_tokens).all()


def chance(rng: random.Random, probability: float) -> bool:
    return rng.random() < probability


def random_data(rng: random.Random, seed: int, folder: Path) -> dict[str, Any]:
    """A scenario as plain data; files it names are written to `folder`."""
    target = rng.choice(list(TARGETS))
    method = METHODS[seed % len(METHODS)]
    longest = rng.randint(1, 6)
    off = rng.sample(MECHANISMS, rng.choice((1, 2))) if chance(rng, 0.3) else []
    data: dict[str, Any] = {
        "target": {"model": target, "kv_cache": rng.choice(("bf16", "fp8"))},
        "hardware": {"gpu": rng.choice(("h100-sxm", "h200-sxm")), "router": "round-robin"},
        "engine": _engine(rng),
        "speculation": [] if method == "plain" else [_variant(rng, target, method, longest, seed, folder)],
        "workload": _workload(rng, seed, folder),
        "run": {"seed": seed, "mechanisms": dict.fromkeys(off, False)},
    }
    if data["speculation"] and chance(rng, 0.4):
        classes = [{"name": "code", "share": 0.4, "drafts": chance(rng, 0.5)}]
        if method != "ngram" and data["speculation"][0]["acceptance"]["model"] in ("geometric", "decay"):
            classes[0]["acceptance"] = {"a": {"model": "geometric", "alpha": 0.3}}
        data["workload"]["classes"] = classes
    return data


def _engine(rng: random.Random) -> dict[str, Any]:
    tokens = rng.choice((10, 24, 64, 256, 2048))
    return {
        "preset": rng.choice(PRESETS),
        "scheduler": rng.choice((None, None, "mixed", "prefill-apart")),
        "max_num_seqs": rng.choice((2, 4, 8, 16, 48)),
        "max_num_batched_tokens": tokens,
        "chunked_prefill": chance(rng, 0.8),
        "prefix_caching": chance(rng, 0.8),
    }


def _variant(
    rng: random.Random, target: str, method: str, longest: int, seed: int, folder: Path
) -> dict[str, Any]:
    low = rng.randint(1, longest)
    by_batch = [[1, 3, longest], [4, 7, low], [8, None, rng.choice((0, low))]]
    length: Any = rng.choice((longest, longest, by_batch, {"policy": "goodput", "max": longest}))
    variant: dict[str, Any] = {"name": "a", "draft_length": length, "acceptance": _acceptance(rng, longest)}
    if method == "ngram":
        rates = {"match": rng.uniform(0.1, 0.9), "stickiness": rng.random(), "first": 0.6, "run": 0.9}
        return {**variant, "method": "ngram", "acceptance": {"model": "gated", **rates}}
    if chance(rng, 0.15):
        path = folder / f"accepted-{seed}.json"
        rows = [[rng.randint(1, longest + 1) for _ in range(rng.randint(5, 40))] for _ in range(4)]
        path.write_text(json.dumps(rows), encoding="utf-8")
        variant["acceptance"] = {"model": "trace", "file": path.name}
    if chance(rng, 0.2):
        variant["max_context_tokens"] = rng.randint(60, 200)
    if method == "draft_model":
        return {**variant, "method": method, "draft": DRAFT_MODELS.get(target, "llama-3.2-1b-instruct")}
    kind, draft = TARGETS[target]
    return {**variant, "method": kind, "draft": draft}


def _acceptance(rng: random.Random, longest: int) -> dict[str, Any]:
    alpha = rng.choice((0.0, 0.4, 0.7, 0.9, 1.0))
    inner = min(max(alpha, 0.05), 0.95)
    spread = {"request_sd": rng.choice((0.0, 0.8)), "drift_sd": 0.7, "drift_correlation": 0.9}
    return rng.choice(
        (
            {"model": "geometric", "alpha": alpha},
            {"model": "positional", "conditional": [rng.random() for _ in range(longest)]},
            {"model": "decay", "alpha": inner, "delta": 0.2},
            {"model": "fixed", "rate": rng.random()},
            {"model": "hierarchical", "alpha": inner, "delta": 0.05, **spread},
        )
    )


def _workload(rng: random.Random, seed: int, folder: Path) -> dict[str, Any]:
    rate = rng.choice((5.0, 30.0, 200.0))
    arrivals: dict[str, Any] = rng.choice(
        (
            {"kind": "closed", "concurrency": rng.randint(1, 20), "think_time_s": rng.choice((0, 0.02))},
            {"kind": "burst"},
            {"kind": "poisson", "rate_per_s": rate},
            {"kind": "gamma", "rate_per_s": rate, "cv": 3.0},
            {"kind": "profile", "rates_per_s": [[0, rate], [0.2, 10 * rate]]},
            {"kind": "trace", "file": f"requests-{seed}.jsonl", "rate_scale": rng.choice((0.5, 1.0))},
            {"kind": "trace", "file": f"requests-{seed}.jsonl", "start_s": 0.05, "max_output_tokens": 40},
        )
    )
    if arrivals["kind"] == "trace":
        _write_trace(rng, folder / arrivals["file"])
    sessions = {"turns": rng.randint(2, 4), "gap_s": rng.choice((0, 0.03)), "shared_prefix_tokens": 80}
    return {
        "arrivals": arrivals,
        "requests": rng.randint(20, 50),
        "prompt_tokens": {"kind": "uniform", "low": 1, "high": rng.choice((30, 150, 400))},
        "output_tokens": {"kind": "uniform", "low": 1, "high": rng.choice((5, 20, 60))},
        "ends": rng.choice(("eos", "max_tokens")),
        "timeout_s": rng.choice((0.1, 0.4, 2.0)) if chance(rng, 0.35) else None,
        "cancel_fraction": 0.3 if chance(rng, 0.3) else 0,
        "sessions": sessions if arrivals["kind"] != "trace" and chance(rng, 0.4) else None,
    }


def _write_trace(rng: random.Random, path: Path) -> None:
    """Thirty requests in the Mooncake format: blocks of 512 tokens, many prompts with common beginnings."""
    at, rows = 0, []
    for _ in range(30):
        at += rng.choice((0, 5, 40))
        blocks = rng.choice(([1, 2], [1, 2, 3], [1, 4], [5], [6, 7]))
        tokens = 512 * len(blocks) - rng.choice((0, 100, 300))
        entry = {"timestamp": at, "input_length": tokens, "output_length": rng.randint(1, 60)}
        rows.append({**entry, "hash_ids": blocks})
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def _with_tight_memory(rng: random.Random, variant: CompiledVariant) -> CompiledVariant:
    """Room for one to a few of the largest requests, every second time; now and then not even for that."""
    factor = rng.choice((0.9, 1.0, 1.2, 2.0, 4.0))
    if chance(rng, 0.5):
        return variant
    requests = generate(variant.scenario.workload, variant.scenario.run.seed, variant.scenario.base_dir)
    tokens = int((requests.prompt_tokens + requests.output_tokens).max()) + variant.settings.lookahead_tokens
    blocks = max(1, round(factor * -(-tokens // variant.settings.block_tokens)))
    return replace(variant, settings=replace(variant.settings, total_blocks=blocks))
