"""How far a drafter's distributions are from the target's, through the target's own head.

A vocabulary of 50,000 makes logits the largest tensors by far. They are made for a chunk of positions at a
time and thrown away; the gradient of KL(target ‖ drafter) with respect to the drafter's logits, q - p, is
written down, so that nothing is kept for a backward pass.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

CHUNK = 256
"""Positions whose logits exist at a time."""


class KlSlope(NamedTuple):
    """How KL rises with a drafter's hidden states. gradient: (m, n, h) of the KL of each position, in nats;
    alpha: (m, n), 1 - total variation, the chance that a draft drawn there is accepted.
    """

    gradient: Tensor
    alpha: Tensor


@torch.no_grad()
def kl_slope(head: nn.Module, wanted: Tensor, found: Tensor, dtype: torch.dtype = torch.bfloat16) -> KlSlope:
    """Return the gradient of KL and alpha for positions whose target distribution `wanted` (n, h) gives.

    found: (m, n, h), m predictions of each position. Both are what the head (a linear layer) multiplies,
    after any norm. `dtype` is that of the matrix products and of the distributions; sums run in float32.
    """
    own = dict(head.named_parameters())
    weight = own["weight"].to(dtype)
    bias = own["bias"].to(dtype) if "bias" in own else None
    gradient = torch.empty_like(found)
    alpha = torch.empty(found.shape[1], dtype=torch.float32, device=found.device)
    for start in range(0, wanted.shape[0], CHUNK):
        part = slice(start, start + CHUNK)
        target_distribution = torch.softmax(linear(wanted[part].to(dtype), weight, bias), -1)
        for index in range(found.shape[0]):
            difference = torch.softmax(linear(found[index, part].to(dtype), weight, bias), -1)
            difference -= target_distribution
            gradient[index, part] = (difference @ weight).to(found.dtype)
            if index == 0:
                alpha[part] = 1.0 - difference.abs().sum(-1, dtype=torch.float32) / 2
    return KlSlope(gradient, alpha)


class DistributionMatch(NamedTuple):
    """How well distributions agree, each (m, n). alpha: 1 - total variation. survival: min(1, q/p) of the
    token that stands there: the chance that it, drawn from the target, had been drafted and accepted. kl:
    nats. same: whether both distributions have the same best token.
    """

    alpha: Tensor
    survival: Tensor
    kl: Tensor
    same: Tensor


@torch.no_grad()
def match(head: nn.Module, wanted: Tensor, found: Tensor, tokens: Tensor) -> DistributionMatch:
    """Return how well the distributions of found (m, n, h) match those of wanted (n, h); in float32.

    tokens: (n,) the token that stands at each position.
    """
    parts: list[tuple[Tensor, ...]] = []
    for start in range(0, wanted.shape[0], CHUNK):
        part = slice(start, start + CHUNK)
        target_logs = torch.log_softmax(head(wanted[part]).float(), -1)
        target_distribution = target_logs.exp()
        place = tokens[part, None]
        rows = []
        for one in found[:, part]:
            logs = torch.log_softmax(head(one).float(), -1)
            rows.append(
                (
                    torch.minimum(target_distribution, logs.exp()).sum(-1),
                    (logs - target_logs).gather(-1, place)[:, 0].clamp(max=0.0).exp(),
                    (target_distribution * (target_logs - logs)).sum(-1),
                    (logs.argmax(-1) == target_logs.argmax(-1)).float(),
                )
            )
        parts.append(tuple(torch.stack(column) for column in zip(*rows, strict=True)))
    return DistributionMatch(*(torch.cat(column, dim=1) for column in zip(*parts, strict=True)))
