"""What decoded requests say about trees: which ranks are the continuation, and which tree keeps more."""

from __future__ import annotations

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
    """Return how much longer the first way's mean acceptance length is: tokens ÷ rounds over all requests.

    The same prompts in the same order, decoded in two ways, for example with a tree that grows and a fixed
    one of as many nodes. The interval is that of the linearised difference, Student's t over requests: what
    prompts have in common cancels. None without two requests, or without a round with a draft.
    """
    drafted = [[one for request in way for one in request.rounds if one.drafted] for way in (first, second)]
    if len(first) < 2 or not all(drafted):
        return None
    (one, of_one), (other, of_other) = _linearised(first), _linearised(second)
    found = mean_estimate([left - right for left, right in zip(of_one, of_other, strict=True)])
    assert found is not None
    half = found.half_width
    difference = one - other
    return Estimate(
        difference, (difference - half, difference + half), (difference - half, difference + half)
    )


def _linearised(requests: Sequence[Decoded]) -> tuple[float, list[float]]:
    """The mean acceptance length of all rounds, and what each request moves it by (mean 0)."""
    rounds = [[one for one in request.rounds if one.drafted] for request in requests]
    tokens = [sum(one.accepted + 1 for one in own) for own in rounds]
    total = sum(tokens) / sum(map(len, rounds))
    mean_rounds = sum(map(len, rounds)) / len(rounds)
    return total, [(t - total * len(own)) / mean_rounds for t, own in zip(tokens, rounds, strict=True)]
