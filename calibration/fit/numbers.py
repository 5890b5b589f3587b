"""The four numbers of a device: achieved bandwidth, step time by batch, cost of a draft pass, overhead of
verification.

All are computed from the parts of its profile, and their intervals from the parts' errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from calibration.fit.robust import TO_SD, TWO_SIDED
from calibration.profile_json import dumps
from simulator.costs.cost import CostModel, Explained
from simulator.costs.pricing import NetworkPricing
from simulator.costs.profiles import Profile, parse_profile
from simulator.engines.presets import load_preset
from simulator.models.drafter import DrafterModel, drafter_from_model
from simulator.models.model import Model

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DRAFT_LENGTHS = (1, 2, 3, 4, 5, 6, 7)
CPU_MAX_BATCH = 16
CONTEXT_TOKENS = 1024
_UNKNOWN_PERCENT = 20.0
"""Assumed median error of a part that was not measured here, because it is inherited or assumed."""

NumberTable = tuple[str, list[str], list[list[str]]]


@dataclass(frozen=True)
class PassTime:
    """Seconds of a pass, and the standard error that each part of the profile contributes."""

    seconds: float
    errors_s: Mapping[str, float]

    @property
    def error_s(self) -> float:
        return math.hypot(*self.errors_s.values())

    @property
    def json(self) -> dict[str, Any]:
        return _estimate(self.seconds, self.error_s)


def four_numbers(
    profile: Profile | Mapping[str, Any],
    target: Model,
    drafter: DrafterModel | None = None,
    context: int = CONTEXT_TOKENS,
) -> dict[str, Any]:
    """The four keys of the answer of `calibrate`; `profile` may be its JSON.

    The steps are greedy, at one context, as plain torch runs them, in graphs on a GPU, without host time.
    Without a drafter, a draft pass is one layer of the target and its head.
    """
    parsed = profile if isinstance(profile, Profile) else parse_profile(dumps(profile), str(profile["name"]))
    cost = _cost(parsed, target, drafter)
    batches = [b for b in BATCHES if b <= CPU_MAX_BATCH or not parsed.on_cpu]
    plain_cost = replace(cost, sampling=f"plain-{cost.sampling}")
    plain = {b: _step(plain_cost, b, 1, context) for b in batches}
    return {
        "hbm_bandwidth_bytes_per_s": _bandwidth(parsed, cost),
        "batch_response": [_response(plain, b, context) for b in batches],
        "draft_pass_s": [
            {"batch": b, "context": context, **_draft_pass(cost, b, context).json} for b in batches
        ],
        "verify_overhead": [
            _overhead(plain[b], _step(cost, b, k + 1, context), b, k) for b in batches for k in DRAFT_LENGTHS
        ],
    }


def number_tables(numbers: Mapping[str, Any]) -> list[NumberTable]:
    """The numbers as tables (title, columns, rows) for a terminal or a page."""
    from simulator.units import format_number

    bandwidth = numbers["hbm_bandwidth_bytes_per_s"]
    context = numbers["batch_response"][0]["context"]
    by_batch = {row["batch"]: row for row in numbers["batch_response"]}
    drafts = {row["batch"]: row for row in numbers["draft_pass_s"]}
    overhead: dict[int, dict[int, Any]] = {}
    for row in numbers["verify_overhead"]:
        overhead.setdefault(row["batch"], {})[row["draft_length"]] = row

    def ms(estimate: Mapping[str, Any]) -> str:
        low, high = estimate["ci95"]
        return f"{format_number(1e3 * estimate['value'])} ± {format_number(500 * (high - low))}"

    def rate(estimate: Mapping[str, Any]) -> list[str]:
        low, high = estimate["ci95"]
        return [f"{estimate['value'] / 1e9:,.4g}", f"{low / 1e9:,.4g} to {high / 1e9:,.4g}"]

    lengths = sorted(next(iter(overhead.values())))
    return [
        (
            "Memory bandwidth reached",
            ["by", "GB/s", "95 %"],
            [[name, *rate(estimate)] for name, estimate in bandwidth["by"].items()],
        ),
        (
            f"Plain step and draft pass, {context:,} tokens of context",
            ["batch", "step, ms", "× batch 1", "tokens/s", "draft pass, ms", "of the step"],
            [
                [
                    *(str(b), ms(row), _with_error(row["ratio"]), format_number(row["tokens_per_s"])),
                    *(ms(drafts[b]), f"{drafts[b]['value'] / row['value']:.1%}"),
                ]
                for b, row in by_batch.items()
            ],
        ),
        (
            "Verify step ÷ plain step, by drafts K",
            ["batch", *(f"K = {k}" for k in lengths)],
            [[str(b), *(_with_error(rows[k]["ratio"]) for k in lengths)] for b, rows in overhead.items()],
        ),
    ]


def _with_error(estimate: Mapping[str, Any]) -> str:
    low, high = estimate["ci95"]
    return f"{estimate['value']:.2f} ± {(high - low) / 2:.2f}"


def _cost(profile: Profile, target: Model, drafter: DrafterModel | None) -> CostModel:
    preset = load_preset("torch-2")[0]
    first = drafter or drafter_from_model(
        replace(target, layers=(replace(target.layers[0], count=1),)), target
    )
    return CostModel(target, first, profile, 1, 1, 1, "bf16", preset, "greedy", "greedy")


def _step(cost: CostModel, batch: int, queries: int, context: int) -> PassTime:
    rows = batch * queries
    ops = cost.explain_pass(rows, batch, batch * context, queries, logit_rows=rows)
    sampler = cost.profile.sampler_part(cost.sampling).name
    return _pass_time(cost, cost.target_pricing, [*ops, (sampler, cost.sample(rows, batch))])


def _draft_pass(cost: CostModel, batch: int, context: int) -> PassTime:
    assert cost.draft_pricing is not None
    ops = cost.explain_draft_pass(batch, batch, batch * context, 1, logit_rows=batch)
    return _pass_time(cost, cost.draft_pricing, ops)


def _pass_time(cost: CostModel, pricing: NetworkPricing, ops: Explained) -> PassTime:
    """Seconds without host time, with errors by part: fully correlated within a part, independent between
    parts.

    If layers were measured in place, the error of a layer is that of the complete layer.
    """
    by_part: dict[str, float] = {}
    in_place = cost.profile.rest_of_layer(1.0) is not None
    for name, op_cost in ops:
        part = _part_of(name, pricing, in_place)
        by_part[part] = by_part.get(part, 0.0) + op_cost.gpu_s
    errors = {part: part_s * _relative_error(cost.profile, part) for part, part_s in by_part.items()}
    return PassTime(sum(by_part.values()), errors)


def _part_of(name: str, pricing: NetworkPricing, in_place: bool) -> str:
    """The part of the profile that determines the error of an operator."""
    matrices = {matrix.name: matrix.weights for matrix in pricing.network.matrices}
    if name == "lm_head":
        return f"gemm/{pricing.network.head.weights}"
    if in_place and (name in matrices or name.startswith(("norms", "attention"))):
        return "elementwise"
    if name in matrices:
        return f"gemm/{matrices[name]}"
    for start, part in _PARTS.items():
        if name.startswith(start):
            return f"attention/{pricing.kv_cache}" if part == "attention" else part
    return name


_PARTS = {
    "norms": "elementwise",
    "attention": "attention",
    "embedding": "pass",
    "all-reduce": "allreduce",
    "gather": "allreduce",
    "routed experts": "experts/bf16",
    "draft sampler": "draft_sampler/greedy",
}


def _relative_error(profile: Profile, name: str) -> float:
    """Relative standard error of a part, from points left out of its fit, else assumed."""
    part = profile.parts.get(name) or profile.parts.get(name.partition("/")[0])
    if part is None:
        return 0.0
    return TO_SD * float(part.residual.get("p50_percent", _UNKNOWN_PERCENT)) / 100


def _response(plain: Mapping[int, PassTime], batch: int, context: int) -> dict[str, Any]:
    return {
        "batch": batch,
        "context": context,
        **plain[batch].json,
        "ratio": _ratio(plain[batch], plain[1]),
        "tokens_per_s": batch / plain[batch].seconds,
    }


def _overhead(plain: PassTime, verify: PassTime, batch: int, draft_length: int) -> dict[str, Any]:
    return {
        "batch": batch,
        "draft_length": draft_length,
        "plain_s": plain.seconds,
        "verify_s": verify.seconds,
        "ratio": _ratio(verify, plain),
    }


def _ratio(numerator: PassTime, denominator: PassTime) -> dict[str, Any]:
    """The ratio of two passes with its interval.

    A kernel that was timed 5 % too slow is too slow in both passes, but the correlation of the errors is not
    known. So half of a part's error is treated as common to both passes and half as independent.
    """
    value = numerator.seconds / denominator.seconds
    if numerator is denominator:
        return _estimate(value, 0.0)
    variance = 0.0
    for part in {*numerator.errors_s, *denominator.errors_s}:
        up = numerator.errors_s.get(part, 0.0) / numerator.seconds
        down = denominator.errors_s.get(part, 0.0) / denominator.seconds
        variance += 0.5 * (up - down) ** 2 + 0.5 * (up**2 + down**2)
    return _estimate(value, value * math.sqrt(variance))


def _estimate(value: float, error: float) -> dict[str, Any]:
    ends = [max(value - TWO_SIDED * error, 0.0), value + TWO_SIDED * error]
    return {"value": value, "ci95": ends, "band": ends}


def _bandwidth(profile: Profile, cost: CostModel) -> dict[str, Any]:
    """The bandwidth of timed arrays if there are any, else the rate at which matrices read their weights."""
    part = profile.parts.get("memory")
    if part is not None:
        intervals = part.residual.get("intervals", {})
        by = {
            name.removesuffix("_bytes_per_s"): {"value": rate, "ci95": intervals.get(name, [rate, rate])}
            for name, rate in part.coefficients.items()
        }
        best = max(by, key=lambda name: float(by[name]["value"]))
        return {**by[best], "of": best, "by": by}
    weights = cost.target_pricing.network.head.weights
    rate = profile.bandwidth() * profile.gemm(weights).form.memory_efficiency
    estimate = _estimate(rate, rate * _relative_error(profile, f"gemm/{weights}"))
    return {**estimate, "of": "weights of large matrices", "by": {"weights of large matrices": estimate}}
