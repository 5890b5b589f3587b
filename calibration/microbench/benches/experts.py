"""Routed experts: tokens sorted by expert, two grouped products, and the weighted sum; with two routings."""

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
"""Exponent of the power law of expert popularity, as in public kernel tables."""
_ROUTINGS = 8


def expert_points(subject: BenchSubject, grid: ShapeGrid) -> Iterator[BenchPoint]:
    """Each layer of experts (bf16, gated) by tokens, with two routings."""
    for layer in subject.network.experts:
        if layer.weights == "bf16" and layer.matrices == 3 and layer.expert_parallel == 1:
            for tokens in grid.few_tokens:
                yield from (expert_point(layer, routing, tokens) for routing in ("random", "skewed"))


def expert_point(layer: RoutedExperts, routing: str, tokens: int) -> BenchPoint:
    """One layer at `tokens` tokens. `bytes` are of the experts that uniform routing reads on average."""
    experts_read = layer.experts * (1.0 - (1.0 - layer.per_token / layer.experts) ** tokens)
    expert_values = layer.matrices * layer.hidden * layer.intermediate
    shape = {"tokens": tokens, "hidden": layer.hidden, "intermediate": layer.intermediate}
    shape |= {"per_token": layer.per_token, "experts": layer.experts, "matrices": layer.matrices}

    def prepare(lab: Lab) -> Work:
        gate_up = lab.cold("gate_up", layer.experts, layer.hidden, 2 * layer.intermediate)
        down = lab.cold("down", layer.experts, layer.intermediate, layer.hidden)
        hidden = lab.random(tokens, layer.hidden)
        routings = [_routing(lab, layer, routing, tokens) for _ in range(_ROUTINGS)]

        def run(i: int) -> Tensor:
            turn = i // _ROUTINGS
            weights = gate_up[turn % len(gate_up)], down[turn % len(down)]
            return routed_experts(hidden, *weights, routings[i % _ROUTINGS])

        return Work(run, _ROUTINGS * min(len(gate_up), len(down)))

    moved = _BF16 * (experts_read * expert_values + 2.0 * tokens * layer.hidden)
    flops = 2.0 * tokens * layer.per_token * expert_values
    holds = _BF16 * layer.experts * expert_values
    return BenchPoint("experts", routing, shape, "bf16", moved, flops, holds, prepare)


@dataclass(frozen=True)
class Routing:
    """Assignments of tokens to experts, sorted by expert.

    tokens: (t·k,) token of each assignment. ends: (experts,) end of each expert's assignments, int32.
    weights: (t·k, 1).
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
    """torch's product of groups of rows with one matrix per group. Raises AttributeError before torch 2.8."""
    return getattr(functional, "grouped_mm", None) or torch._grouped_mm


def _routing(lab: Lab, layer: RoutedExperts, routing: str, tokens: int) -> Routing:
    device = lab.device.torch_device
    exponent = _SKEW if routing == "skewed" else 0.0
    popular = torch.arange(1, layer.experts + 1, dtype=torch.float32, device=device) ** -exponent
    # The k largest log weights with Gumbel noise are k draws without replacement.
    noise = -torch.log(-torch.log(lab.uniforms(tokens, layer.experts).clamp(min=1e-12)))
    chosen = (popular.log() + noise).topk(layer.per_token).indices.flatten()
    order = chosen.argsort(stable=True)
    ends = torch.bincount(chosen, minlength=layer.experts).cumsum(0).to(torch.int32)
    weights = torch.full((len(order), 1), 1.0 / layer.per_token, dtype=torch.bfloat16, device=device)
    return Routing(order // layer.per_token, ends, weights)
