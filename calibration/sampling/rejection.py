"""The rejection rule that keeps the target's distribution, for chains and for trees of drafts.

A draft x drawn from q is accepted with probability min(1, p(x) / q(x)). After a rejection the token is drawn
from the residual (p - q)+, normalised over the whole vocabulary. When all drafts are accepted, the last row
gives a bonus token (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318). Several candidates
for one position are tried in turn, each against the residual of the earlier ones (SpecInfer, arXiv
2305.09781; Sequoia, arXiv 2402.12374). Greedy decoding is the limit of point masses.

All functions are batched and run on any device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.sampling.distributions import draw


def residual(distribution: Tensor, proposed: Tensor | None, drafts: Tensor) -> Tensor:
    """Return the distribution (..., V) of the token after rejected drafts (...), (distribution - proposed)+
    normalised.

    `proposed`: the distribution that the drafts were drawn from; None: they are deterministic, a point mass
    each. If nothing is left, the rejection had probability 0 up to rounding, and the distribution is
    unchanged.
    """
    index = drafts.unsqueeze(-1)
    difference = (
        distribution.scatter(-1, index, 0.0) if proposed is None else (distribution - proposed).clamp(min=0.0)
    )
    total = difference.sum(-1, keepdim=True)
    return torch.where(total > 0.0, difference / total, distribution)


def accepts(distribution: Tensor, proposed: Tensor | None, drafts: Tensor, uniforms: Tensor) -> Tensor:
    """Return whether drafts (...) are accepted: uniform in [0, 1) below distribution(x) / proposed(x)."""
    index = drafts.unsqueeze(-1)
    target_probability = distribution.gather(-1, index).squeeze(-1)
    draft_probability = 1.0 if proposed is None else proposed.gather(-1, index).squeeze(-1)
    return uniforms * draft_probability < target_probability


def acceptance_probability(distribution: Tensor, proposed: Tensor | None, drafts: Tensor) -> Tensor:
    """Return the probability (...) that a draft drawn from `proposed` is accepted, 1 - TV(distribution,
    proposed).

    For deterministic drafts (`proposed` None) it is the target's probability of the draft.
    """
    if proposed is None:
        return distribution.gather(-1, drafts.unsqueeze(-1)).squeeze(-1)
    return torch.minimum(distribution, proposed).sum(-1)


def accept_chain(p: Tensor, q: Tensor | None, drafts: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Return (accepted drafts (b,), the token after them (b,)) of one round per row.

    p: (b, K + 1, V) the target's distributions, row j before draft j, the last row after all drafts.
    q: (b, K, V) the distributions that the drafts were drawn from; None: deterministic drafts.
    drafts: (b, K) tokens. uniforms: (b, K + 1) in [0, 1): one per draft and one for the token after them.
    """
    draft_length = drafts.shape[1]
    taken = accepts(p[:, :-1], q, drafts, uniforms[:, :-1])
    accepted = taken.long().cumprod(1).sum(1)
    distribution = _row(p, accepted)
    if draft_length == 0:
        return accepted, draw(distribution, uniforms[:, -1])
    first_rejected = accepted.clamp(max=draft_length - 1)
    proposed = None if q is None else _row(q, first_rejected)
    residual_distribution = residual(
        distribution, proposed, drafts.gather(1, first_rejected.unsqueeze(1)).squeeze(1)
    )
    distribution = torch.where((accepted == draft_length).unsqueeze(1), distribution, residual_distribution)
    return accepted, draw(distribution, uniforms[:, -1])


def accept_greedy(best: Tensor, drafts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the result of `accept_chain` at temperature 0, from only the target's best tokens (b, K + 1)."""
    accepted = (best[:, :-1] == drafts).long().cumprod(1).sum(1)
    return accepted, best.gather(1, accepted.unsqueeze(1)).squeeze(1)


def accept_tree(
    p: Tensor, q: Tensor | None, drafts: Tensor, parents: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor]:
    """Return (last accepted node (b,), -1: none; the token after it (b,)) of one round per row.

    p: (b, n + 1, V) the target's distributions, row 0 before all drafts, row 1 + i after node i. q: (b, n, V)
    the distribution of each node, given its parent and its earlier siblings. With replacement, siblings share
    one distribution; without, each distribution excludes the earlier siblings. None: deterministic drafts.
    drafts: (b, n) tokens, parents before children, siblings in the order they were drawn. parents: (n,) the
    one topology of the batch; -1: child of the last emitted token. uniforms: (b, n + 1) in [0, 1), one per
    node and one for the token after the path.

    Which nodes exist may depend on the tokens above them, but not on their own token or on those below;
    otherwise the output does not keep the target's distribution. Trees of deterministic drafts may be chosen
    freely. On a chain this equals `accept_chain`, which is faster and never waits for the device.
    """
    last = torch.full_like(drafts[:, 0], -1) if drafts.shape[1] else drafts.new_full((len(p),), -1)
    distribution = p[:, 0]
    # One sweep suffices: children come after their parent, and an accepted node ends its siblings.
    for node, parent in enumerate(parents.tolist()):
        tried = last == parent
        if not tried.any():
            continue
        token = drafts[:, node]
        proposed = None if q is None else q[:, node]
        taken = tried & accepts(distribution, proposed, token, uniforms[:, node])
        refused = tried & ~taken
        distribution = torch.where(
            refused.unsqueeze(1), residual(distribution, proposed, token), distribution
        )
        distribution = torch.where(taken.unsqueeze(1), p[:, 1 + node], distribution)
        last = torch.where(taken, node, last)
    return last, draw(distribution, uniforms[:, -1])


def _row(distributions: Tensor, index: Tensor) -> Tensor:
    """Return distributions[i, index[i]] of distributions (b, n, V), shape (b, V)."""
    return distributions.gather(1, index.view(-1, 1, 1).expand(-1, 1, distributions.shape[2])).squeeze(1)
