"""Routed experts: tokens sorted by expert, two grouped products, the weighted sum; two routings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from calibration.decoder.ops import silu_mul
from calibration.microbench.lab import Lab
from calibration.microbench.point import BenchPoint
from calibration.microbench.subject import BenchSubject, ShapeGrid
from calibration.microbench.timing import Work
from simulator.costs.network import RoutedExperts

_BF16 = 2.0
_SKEW = 1.01
"""Exponent of the power law of popular experts, as public kernel tables take it."""
_ROUTINGS = 8


def expert_points(subject: BenchSubject, grid: ShapeGrid) -> Iterator[BenchPoint]:
    """Each layer of experts (bf16, gated) by tokens; `experts_read` of the simulator says what is read."""
    for one in subject.network.experts:
        if one.weights == "bf16" and one.matrices == 3 and one.expert_parallel == 1:
            for tokens in grid.few_tokens:
                yield from (expert_point(one, routing, tokens) for routing in ("random", "skewed"))


def expert_point(one: RoutedExperts, routing: str, tokens: int) -> BenchPoint:
    """One layer at so many tokens. `bytes` are of the experts that uniform routing reads on average."""
    read = one.experts * (1.0 - (1.0 - one.per_token / one.experts) ** tokens)
    each = one.matrices * one.hidden * one.intermediate
    shape = {"tokens": tokens, "hidden": one.hidden, "intermediate": one.intermediate}
    shape |= {"per_token": one.per_token, "experts": one.experts, "matrices": one.matrices}

    def prepare(lab: Lab) -> Work:
        gate_up = lab.cold("gate_up", one.experts, one.hidden, 2 * one.intermediate)
        down = lab.cold("down", one.experts, one.intermediate, one.hidden)
        hidden = lab.random(tokens, one.hidden)
        routings = [_routing(lab, one, routing, tokens) for _ in range(_ROUTINGS)]

        def run(i: int) -> Tensor:
            turn = i // _ROUTINGS
            weights = gate_up[turn % len(gate_up)], down[turn % len(down)]
            return routed_experts(hidden, *weights, routings[i % _ROUTINGS])

        return Work(run, _ROUTINGS * min(len(gate_up), len(down)))

    moved = _BF16 * (read * each + 2.0 * tokens * one.hidden)
    flops = 2.0 * tokens * one.per_token * each
    holds = _BF16 * one.experts * each
    return BenchPoint("experts", routing, shape, "bf16", moved, flops, holds, prepare)


@dataclass(frozen=True)
class Routing:
    """Which tokens go to which expert, sorted by expert: what a router and a sort of its choice give.

    tokens (t·k,) of each assignment; ends (experts,) of each expert's run of them, int32; weights (t·k, 1).
    """

    tokens: Tensor
    ends: Tensor
    weights: Tensor


def routed_experts(hidden: Tensor, gate_up: Tensor, down: Tensor, routing: Routing) -> Tensor:
    """Hidden states (t, h) through their experts: gate_up (e, h, 2 i), down (e, i, h)."""
    product = grouped_product()
    mixed = silu_mul(product(hidden[routing.tokens], gate_up, offs=routing.ends))
    out = product(mixed, down, offs=routing.ends) * routing.weights
    return torch.zeros_like(hidden).index_add_(0, routing.tokens, out)


def grouped_product() -> Any:
    """torch's product of runs of rows with a matrix each. Raises AttributeError before torch 2.8."""
    return getattr(functional, "grouped_mm", None) or torch._grouped_mm


def _routing(lab: Lab, one: RoutedExperts, routing: str, tokens: int) -> Routing:
    device = lab.device.torch_device
    exponent = _SKEW if routing == "skewed" else 0.0
    popular = torch.arange(1, one.experts + 1, dtype=torch.float32, device=device) ** -exponent
    # The k best of log weights with Gumbel noise are k draws without replacement.
    noise = -torch.log(-torch.log(lab.uniforms(tokens, one.experts).clamp(min=1e-12)))
    chosen = (popular.log() + noise).topk(one.per_token).indices.flatten()
    order = chosen.argsort(stable=True)
    ends = torch.bincount(chosen, minlength=one.experts).cumsum(0).to(torch.int32)
    weights = torch.full((len(order), 1), 1.0 / one.per_token, dtype=torch.bfloat16, device=device)
    return Routing(order // one.per_token, ends, weights)
