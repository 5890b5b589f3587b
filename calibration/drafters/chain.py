"""A chain of drafts from any model that returns next-token logits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from calibration.sampling.distributions import draw, filtered_distribution
from calibration.sampling.protocols import Proposal, Sampling


def draft_chain(
    logits_after: Callable[[int], Tensor],
    last: int,
    limit: int,
    sampling: Sampling,
    generator: torch.Generator,
) -> Proposal:
    """Return `limit` drafts after `last`, each the best token or drawn from the distribution at its position.

    `logits_after` reads one token and returns the logits (V,) after it. The last draft is never read.
    """
    greedy = sampling.temperature == 0.0 or sampling.draft == "greedy"
    tokens: list[int] = []
    distributions: list[Tensor] = []
    for _ in range(limit):
        logits = logits_after(tokens[-1] if tokens else last)
        if greedy:
            tokens.append(int(logits.argmax()))
        else:
            distributions.append(filtered_distribution(logits, sampling))
            uniform = torch.rand((), generator=generator, dtype=torch.float64)
            tokens.append(int(draw(distributions[-1], uniform)))
    return chain(tokens, torch.stack(distributions) if distributions else None)


def chain(tokens: list[int], distributions: Tensor | None = None) -> Proposal:
    """Return the proposal of a chain; without distributions its tokens are deterministic."""
    return Proposal(torch.tensor(tokens, dtype=torch.int64), torch.arange(len(tokens)) - 1, distributions)


def tree_of_paths(paths: list[list[int]]) -> Proposal:
    """Return the tree of these paths of deterministic tokens; common prefixes are shared."""
    tokens: list[int] = []
    parents: list[int] = []
    node_of: dict[tuple[int, int], int] = {}
    for path in paths:
        parent = -1
        for token in path:
            node = node_of.get((parent, token))
            if node is None:
                node = node_of[parent, token] = len(tokens)
                tokens.append(token)
                parents.append(parent)
            parent = node
    return Proposal(torch.tensor(tokens, dtype=torch.int64), torch.tensor(parents, dtype=torch.int64))
