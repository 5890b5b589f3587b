"""Statistics of decoded requests about trees: acceptance by rank, and differences between trees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from calibration.sampling.decode import Decoded, Round
from simulator.numerics.arrays import Floats
from simulator.results.estimate import Estimate, mean_estimate
from simulator.trees import DraftTree


def rank_chances(tree: DraftTree, rounds: Iterable[Round]) -> Floats:
    """Return P(the child of rank r at depth d is the continuation), from rounds that drafted this fixed tree.

    Shape (depth, ranks), for `optimal_tree` and `best_first_tree`: accepted ÷ rounds that reached a node of
    depth d with such a child; 0 if none did. It is the accuracy of Medusa's head d at rank r (arXiv
    2401.10774). The estimate ignores that a child of rank r is likelier below some nodes than below others.
    If later ranks were tried below other nodes than earlier ones, a depth may sum to more than 1; it is then
    scaled to 1.
    """
    children = np.bincount(np.array(tree.parents[1:], dtype=np.int64), minlength=tree.nodes)
    tried = np.zeros((tree.depth, int(children.max())))
    accepted = np.zeros_like(tried)
    for outcome in rounds:
        for depth, node in enumerate((0, *(1 + draft for draft in outcome.path))):
            tried[depth : depth + 1, : children[node]] += 1
        for depth, rank in enumerate(outcome.ranks):
            accepted[depth, rank] += 1
    chances = np.divide(accepted, tried, out=np.zeros_like(tried), where=tried > 0)
    scaled: Floats = chances / np.maximum(chances.sum(1, keepdims=True), 1.0)
    return scaled


def paired_difference(first: Sequence[Decoded], second: Sequence[Decoded]) -> Estimate | None:
    """Return the difference of two mean acceptance lengths, tokens ÷ rounds over all requests: first less
    second.

    Both have the same prompts in the same order, for example with a tree that grows and a fixed tree of as
    many nodes. The interval is that of the linearised difference, with Student's t over requests, so that
    effects common to both cancel. None with fewer than two requests, or without a round with a draft.
    """
    drafted = [
        [outcome for request in requests for outcome in request.rounds if outcome.drafted]
        for requests in (first, second)
    ]
    if len(first) < 2 or not all(drafted):
        return None
    (first_mean, first_terms), (second_mean, second_terms) = _linearised(first), _linearised(second)
    estimate = mean_estimate([a - b for a, b in zip(first_terms, second_terms, strict=True)])
    assert estimate is not None
    half = estimate.half_width
    difference = first_mean - second_mean
    return Estimate(
        difference, (difference - half, difference + half), (difference - half, difference + half)
    )


def _linearised(requests: Sequence[Decoded]) -> tuple[float, list[float]]:
    """The mean acceptance length over all rounds, and each request's influence on it (mean 0)."""
    rounds = [[outcome for outcome in request.rounds if outcome.drafted] for request in requests]
    tokens = [sum(outcome.accepted + 1 for outcome in of_request) for of_request in rounds]
    total = sum(tokens) / sum(map(len, rounds))
    mean_rounds = sum(map(len, rounds)) / len(rounds)
    return total, [(t - total * len(r)) / mean_rounds for t, r in zip(tokens, rounds, strict=True)]
