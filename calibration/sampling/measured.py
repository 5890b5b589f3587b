"""What decoded requests say about trees: which ranks are the continuation, and which tree keeps more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from calibration.sampling.decode import Decoded, Round
from simulator.results.estimate import Estimate, mean_estimate
from simulator.trees import DraftTree
from simulator.trees.shape import Floats


def rank_chances(tree: DraftTree, rounds: Iterable[Round]) -> Floats:
    """Return P(the child of rank r at depth d is the continuation), from rounds that drafted this fixed tree.

    Shape (depth, ranks), for `optimal_tree` and `best_first_tree`: accepted ÷ rounds that reached a node of
    depth d with such a child; 0 where none did. The accuracy of Medusa's head d, rank r (arXiv 2401.10774).
    Leaves out that a child of rank r is likelier below some nodes than below others; where later ranks were
    tried below other nodes than earlier ones, a depth may add to more than 1, and is scaled to 1.
    """
    children = np.bincount(np.array(tree.parents[1:], dtype=np.int64), minlength=tree.nodes)
    tried = np.zeros((tree.depth, int(children.max())))
    accepted = np.zeros_like(tried)
    for one in rounds:
        for depth, node in enumerate((0, *(1 + draft for draft in one.path))):
            tried[depth : depth + 1, : children[node]] += 1
        for depth, rank in enumerate(one.ranks):
            accepted[depth, rank] += 1
    chances = np.divide(accepted, tried, out=np.zeros_like(tried), where=tried > 0)
    scaled: Floats = chances / np.maximum(chances.sum(1, keepdims=True), 1.0)
    return scaled


def paired_difference(first: Sequence[Decoded], second: Sequence[Decoded]) -> Estimate | None:
    """Return how much longer the first way's mean acceptance length is, request by request.

    The same prompts in the same order, decoded in two ways, for example with a tree that grows and a fixed
    one of as many nodes. The interval is Student's t over requests: what prompts have in common cancels. None
    when a request has no round with a draft.
    """
    differences = [
        one.mean_acceptance_length - other.mean_acceptance_length
        for one, other in zip(first, second, strict=True)
    ]
    return None if any(math.isnan(one) for one in differences) else mean_estimate(differences)
