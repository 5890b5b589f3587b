"""Grows drafts level by level from a model's logits: chains, fixed trees, trees grown by confidence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from calibration.sampling.distributions import filtered_distribution, siblings
from calibration.sampling.protocols import Proposal, Sampling
from simulator.trees import Growth, StaticGrowth

NextLogits = Callable[[Growth | StaticGrowth], Tensor]
"""Returns the drafter's logits (f, V) after each node of a growing tree's `frontier`.

Nodes are numbered as in `growth.parents` and `growth.tokens`; the root, 0, is the last emitted token.
"""


def grow(
    growth: Growth | StaticGrowth,
    next_logits: NextLogits,
    sampling: Sampling,
    generator: torch.Generator,
    replace: bool = False,
) -> Proposal:
    """Return the drafts of one round.

    A fixed tree is filled with the best tokens or, for sampled drafts, with draws; siblings are drawn without
    replacement unless `replace`. A tree that grows by confidence always takes the best tokens, because
    choosing among drawn tokens by their own probability would change the output's distribution.
    """
    sampled = sampling.draft == "sampled" and sampling.temperature > 0.0 and isinstance(growth, StaticGrowth)
    drawn_levels: list[tuple[int, Tensor]] = []  # (node, distributions of its children), level by level
    while len(growth.frontier):
        logits = next_logits(growth)
        width = min(int(growth.widths.max()), logits.shape[-1])
        if sampled:
            frontier = growth.frontier.tolist()
            tokens, distributions = siblings(
                filtered_distribution(logits, sampling), width, generator, replace
            )
            growth.add(np.zeros(tokens.shape), tokens.cpu().numpy())
            drawn_levels += list(zip(frontier, distributions, strict=True))
        else:
            confidence = torch.softmax(logits.float() / (sampling.temperature or 1.0), -1)
            best = confidence.topk(width)
            growth.add(best.values.double().cpu().numpy(), best.indices.cpu().numpy())
    tree, nodes = growth.finish()
    tokens = torch.tensor([growth.tokens[node] for node in nodes[1:].tolist()], dtype=torch.int64)
    parents = torch.from_numpy(tree.draft_parents)
    if not drawn_levels:
        return Proposal(tokens, parents)
    children_distributions = dict(drawn_levels)
    ranks = tree.ranks.tolist()
    distributions = torch.stack(
        [children_distributions[tree.parents[node]][ranks[node]] for node in range(1, tree.nodes)]
    )
    return Proposal(tokens, parents, distributions)
