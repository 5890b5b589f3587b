"""Drafts from a model's logits, level by level: chains, fixed trees and trees that grow by confidence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from calibration.sampling.distributions import filtered_distribution, siblings
from calibration.sampling.protocols import Proposal, Sampling
from simulator.trees import Growth, StaticGrowth

NextLogits = Callable[[Growth | StaticGrowth], Tensor]
"""Given a growing tree, the drafter's logits (f, V) after each node of `frontier`.

Nodes are numbered as in `growth.parents` and `growth.tokens`; the root, 0, is the token emitted last.
"""


def grow(
    growth: Growth | StaticGrowth,
    next_logits: NextLogits,
    sampling: Sampling,
    generator: torch.Generator,
    replace: bool = False,
) -> Proposal:
    """Return the drafts of one round.

    A fixed tree is filled with the best tokens, or, where drafts are sampled, with draws; siblings are drawn
    without replacement unless `replace`. A tree that grows by confidence always takes the best tokens: a
    choice among drawn ones by their own probability would lose the target's distribution.
    """
    sampled = sampling.draft == "sampled" and sampling.temperature > 0.0 and isinstance(growth, StaticGrowth)
    drawn: list[
        tuple[int, Tensor]
    ] = []  # of each level: its first rows' nodes and the distributions of their children
    while len(growth.frontier):
        logits = next_logits(growth)
        width = min(int(growth.widths.max()), logits.shape[-1])
        if sampled:
            frontier = growth.frontier.tolist()
            tokens, distributions = siblings(
                filtered_distribution(logits, sampling), width, generator, replace
            )
            growth.add(np.zeros(tokens.shape), tokens.cpu().numpy())
            drawn += list(zip(frontier, distributions, strict=True))
        else:
            confidence = torch.softmax(logits.float() / (sampling.temperature or 1.0), -1)
            best = confidence.topk(width)
            growth.add(best.values.double().cpu().numpy(), best.indices.cpu().numpy())
    tree, nodes = growth.finish()
    tokens = torch.tensor([growth.tokens[node] for node in nodes[1:].tolist()], dtype=torch.int64)
    parents = torch.from_numpy(tree.draft_parents)
    if not drawn:
        return Proposal(tokens, parents)
    below = dict(drawn)
    ranks = tree.ranks.tolist()
    distributions = torch.stack([below[tree.parents[node]][ranks[node]] for node in range(1, tree.nodes)])
    return Proposal(tokens, parents, distributions)
