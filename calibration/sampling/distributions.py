"""Turns logits into the distribution that a token is drawn from, and draws by the inverse CDF."""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.sampling.protocols import Sampling


def filtered_distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return the distribution that tokens are drawn from, in the shape of `logits` (..., V); each row sums to
    1.

    Temperature is applied first, then top-k, then top-p: the smallest set of most probable tokens whose mass
    reaches top-p. The rest is normalised. Temperature 0 gives all mass to the best token, so that greedy
    decoding is the limit of the same rules. Ties go to the lower token.
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
    """Return tokens (...) drawn with weights (..., V), normalised or not, by the inverse CDF at uniforms
    (...).

    Uniforms lie in [0, 1). A token of weight 0 is never drawn. Sums run in double precision, because the
    rounding error of 50,000 small terms is too large in single precision.
    """
    cumulative = weights.double().cumsum(-1)
    total = cumulative[..., -1:]
    # Rounding must not raise the threshold to the total, beyond which there is no token.
    threshold = torch.minimum(
        uniforms.double().unsqueeze(-1) * total, total.nextafter(torch.zeros_like(total))
    )
    return torch.searchsorted(cumulative, threshold, right=True).squeeze(-1)


def siblings(
    distribution: Tensor, count: int, generator: torch.Generator, replace: bool
) -> tuple[Tensor, Tensor]:
    """Return candidates (f, count) for one position, drawn from `distribution` (f, V), and theirs (f, count,
    V).

    With replacement, all candidates have the same distribution. Without, each has the rest after the earlier
    candidates; if nothing is left, all tokens not yet drawn are equally likely.
    """
    uniforms = torch.rand(len(distribution), count, generator=generator, dtype=torch.float64).to(
        distribution.device
    )
    tokens, distributions, undrawn = [], [], torch.ones_like(distribution)
    for index in range(count):
        token = draw(distribution, uniforms[:, index])
        tokens.append(token)
        distributions.append(distribution)
        if not replace and index + 1 < count:
            distribution = distribution.scatter(-1, token.unsqueeze(-1), 0.0)
            undrawn = undrawn.scatter(-1, token.unsqueeze(-1), 0.0)
            distribution = torch.where(distribution.sum(-1, keepdim=True) > 0.0, distribution, undrawn)
            distribution = distribution / distribution.sum(-1, keepdim=True)
    return torch.stack(tokens, 1), torch.stack(distributions, 1)
