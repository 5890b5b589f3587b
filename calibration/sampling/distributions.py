"""From logits to the distribution that a token is drawn from, and draws by inverse distribution."""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.sampling.protocols import Sampling


def filtered_distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return the distribution that tokens are drawn from, shape of `logits` (..., V), each row adding to 1.

    Temperature first, then top-k, then the smallest set of most probable tokens that holds top-p, its last
    token included; what is left is normalised. Temperature 0 gives the best token all of the mass, so that
    greedy decoding is the limit of the same rules. Ties go to the lower token.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if sampling.temperature == 0.0:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    distribution = torch.softmax(logits / sampling.temperature, -1)
    vocab_size = distribution.shape[-1]
    if not (0 < sampling.top_k < vocab_size or sampling.top_p < 1.0):
        return distribution
    ordered, tokens = distribution.sort(dim=-1, descending=True, stable=True)
    if 0 < sampling.top_k < vocab_size:
        ordered[..., sampling.top_k :] = 0.0
        ordered = ordered / ordered.sum(-1, keepdim=True)
    before = ordered.cumsum(-1) - ordered
    outside = before >= sampling.top_p
    outside[..., 0] = False
    ordered = ordered.masked_fill(outside, 0.0)
    return torch.zeros_like(distribution).scatter_(-1, tokens, ordered / ordered.sum(-1, keepdim=True))


def draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Return tokens (...) of weights (..., V), normalised or not, by inverse distribution at uniforms (...).

    Uniforms lie in [0, 1). A token of weight 0 is never drawn. Sums run in double precision: 50,000 small
    terms lose too much in single.
    """
    cumulative = weights.double().cumsum(-1)
    total = cumulative[..., -1:]
    # Rounding must not lift the threshold to the total itself: no token lies beyond it.
    below = torch.minimum(uniforms.double().unsqueeze(-1) * total, total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(cumulative, below, right=True).squeeze(-1)


def siblings(
    distribution: Tensor, count: int, generator: torch.Generator, replace: bool
) -> tuple[Tensor, Tensor]:
    """Return candidates for one place (f, count), drawn from distribution (f, V), and their distributions (f,
    count, V).

    With replacement all have the distribution itself. Without, each has what is left of it after those
    before; where nothing is left, all tokens not yet drawn are equally likely.
    """
    uniforms = torch.rand(len(distribution), count, generator=generator, dtype=torch.float64).to(
        distribution.device
    )
    tokens, distributions, free = [], [], torch.ones_like(distribution)
    for index in range(count):
        token = draw(distribution, uniforms[:, index])
        tokens.append(token)
        distributions.append(distribution)
        if not replace and index + 1 < count:
            distribution = distribution.scatter(-1, token.unsqueeze(-1), 0.0)
            free = free.scatter(-1, token.unsqueeze(-1), 0.0)
            distribution = torch.where(distribution.sum(-1, keepdim=True) > 0.0, distribution, free)
            distribution = distribution / distribution.sum(-1, keepdim=True)
    return torch.stack(tokens, 1), torch.stack(distributions, 1)
