"""The operations of a round on logits: choose, draw, accept. Batched; no call waits for the device."""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.sampling import rejection
from calibration.sampling.distributions import draw


def greedy(logits: Tensor) -> Tensor:
    """The best token of each row (..., V) -> (...)."""
    return logits.argmax(dim=-1)


def sample(logits: Tensor, uniforms: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """One token of each row (..., V) drawn with a uniform (...), and the distribution (..., V) it was drawn
    from.
    """
    distributions = torch.softmax(logits.float() / temperature, dim=-1)
    return draw(distributions, uniforms), distributions


def accept_greedy(logits: Tensor, drafts: Tensor) -> tuple[Tensor, Tensor]:
    """Accepted drafts (b,) and the token after them (b,) at temperature 0, from (b, K + 1, V) and (b, K)."""
    return rejection.accept_greedy(greedy(logits), drafts)


def accept_sampled(
    logits: Tensor, distributions: Tensor, drafts: Tensor, uniforms: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """The same at a temperature: drafts drawn from `distributions` (b, K, V), uniforms (b, K + 1)."""
    return rejection.accept_chain(
        torch.softmax(logits.float() / temperature, dim=-1), distributions, drafts, uniforms
    )
