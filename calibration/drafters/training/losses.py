"""Distances of a drafter's distributions from the target's, through the target's output matrix.

With a vocabulary of 50,000, logits are by far the largest tensors. They are computed for a chunk of positions
at a time and discarded. The gradient of KL(target ‖ drafter) with respect to the drafter's logits is q - p,
so that nothing has to be kept for a backward pass.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

CHUNK = 256
"""Positions whose logits exist at the same time."""


class KlSlope(NamedTuple):
    """The gradient (m, n, h) of each position's KL, in nats, with respect to a drafter's hidden states, and
    alpha (n,): 1 - total variation of the first prediction, the probability that a draft drawn from it is
    accepted.
    """

    gradient: Tensor
    alpha: Tensor


@torch.no_grad()
def kl_slope(
    head: nn.Module, target_states: Tensor, draft_states: Tensor, dtype: torch.dtype = torch.bfloat16
) -> KlSlope:
    """Return the gradient of KL, and alpha, for m predictions of each of n positions.

    wanted: (n, h), the target's states; found: (m, n, h), the drafter's. Both are inputs of the head, a
    linear layer, after any norm. `dtype` is that of the matrix products and of the distributions; sums run in
    float32.
    """
    parameters = dict(head.named_parameters())
    weight = parameters["weight"].to(dtype)
    bias = parameters["bias"].to(dtype) if "bias" in parameters else None
    gradient = torch.empty_like(draft_states)
    alpha = torch.empty(draft_states.shape[1], dtype=torch.float32, device=draft_states.device)
    for start in range(0, target_states.shape[0], CHUNK):
        part = slice(start, start + CHUNK)
        target_distribution = torch.softmax(linear(target_states[part].to(dtype), weight, bias), -1)
        for index in range(draft_states.shape[0]):
            difference = torch.softmax(linear(draft_states[index, part].to(dtype), weight, bias), -1)
            difference -= target_distribution
            gradient[index, part] = (difference @ weight).to(draft_states.dtype)
            if index == 0:
                alpha[part] = 1.0 - difference.abs().sum(-1, dtype=torch.float32) / 2
    return KlSlope(gradient, alpha)


class DistributionMatch(NamedTuple):
    """How well distributions agree, (m, n) each.

    alpha: 1 - total variation. survival: min(1, q/p) of the token at the position, the probability that this
    token, drawn from the target, was drafted and accepted. kl: nats. same: whether both have the same best
    token.
    """

    alpha: Tensor
    survival: Tensor
    kl: Tensor
    same: Tensor


@torch.no_grad()
def match(head: nn.Module, target_states: Tensor, draft_states: Tensor, tokens: Tensor) -> DistributionMatch:
    """Return how well the distributions of found (m, n, h) match those of wanted (n, h), computed in float32.

    tokens: (n,) the token at each position.
    """
    parts: list[tuple[Tensor, ...]] = []
    for start in range(0, target_states.shape[0], CHUNK):
        part = slice(start, start + CHUNK)
        target_logs = torch.log_softmax(head(target_states[part]).float(), -1)
        target_distribution = target_logs.exp()
        token_index = tokens[part, None]
        rows = []
        for states in draft_states[:, part]:
            logs = torch.log_softmax(head(states).float(), -1)
            rows.append(
                (
                    torch.minimum(target_distribution, logs.exp()).sum(-1),
                    (logs - target_logs).gather(-1, token_index)[:, 0].clamp(max=0.0).exp(),
                    (target_distribution * (target_logs - logs)).sum(-1),
                    (logs.argmax(-1) == target_logs.argmax(-1)).float(),
                )
            )
        parts.append(tuple(torch.stack(column) for column in zip(*rows, strict=True)))
    return DistributionMatch(*(torch.cat(column, dim=1) for column in zip(*parts, strict=True)))
