"""Static trees that make the most of measured acceptance by rank."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from simulator.numerics.arrays import Floats, Ints
from simulator.trees.shape import DraftTree, at_least_one, by_depth


@dataclass(frozen=True)
class OptimalTree:
    """The plan of a static tree: of at most `nodes` nodes (root included), `depth` levels and `children` of a
    node, the one with the highest mean acceptance length.
    """

    depth: int
    children: int
    nodes: int

    def __post_init__(self) -> None:
        at_least_one(depth=self.depth, children=self.children, nodes=self.nodes)

    def tree(self, chances: ArrayLike) -> DraftTree:
        """Return the tree for these chances by rank, see `by_depth`: with fewer nodes where fewer can be
        accepted at all.
        """
        table = by_depth(chances, self.depth)
        return optimal_tree(table[:, : self.children], self.nodes, self.depth)


def best_first_tree(chances: ArrayLike, nodes: int, depth: int) -> DraftTree:
    """Return the tree of at most `nodes` nodes that takes the most probable draft in reach, again and again.

    Medusa's sparse tree, from the accuracy of head d's r-th guess (arXiv 2401.10774, section 2.3.3). Where
    probabilities fall with the rank it is optimal, for a draft is never likelier than those above it.
    """
    at_least_one(nodes=nodes)
    table = by_depth(chances, depth)
    paths: list[tuple[int, ...]] = []
    # (minus the product along the path, path, product above its last draft)
    reach: list[tuple[float, tuple[int, ...], float]] = [(-float(table[0, 0]), (0,), 1.0)]
    while reach and len(paths) < nodes - 1:
        negative, path, above = heapq.heappop(reach)
        if negative == 0.0:
            break
        paths.append(path)
        depth_of, rank = len(path) - 1, path[-1]
        if rank + 1 < table.shape[1]:
            heapq.heappush(reach, (-above * float(table[depth_of, rank + 1]), (*path[:-1], rank + 1), above))
        if len(path) < len(table):
            heapq.heappush(reach, (negative * float(table[len(path), 0]), (*path, 0), -negative))
    return DraftTree.from_choices(paths)


def optimal_tree(chances: ArrayLike, nodes: int, depth: int) -> DraftTree:
    """Return the tree of at most `nodes` nodes and `depth` levels with the highest mean acceptance length.

    Sequoia's dynamic programme (arXiv 2402.12374, section 3.1), here with probabilities that may differ by
    depth and rise with the rank. O(depth × ranks × nodes²).
    """
    at_least_one(nodes=nodes)
    table = by_depth(chances, depth)
    subtree: Floats = np.ones(nodes + 1)  # best value of a subtree of at most n nodes below the last depth
    shares: list[Ints] = []  # by depth: nodes given to the child of rank r when m are left
    for row in table[::-1]:
        subtree, share = _forest(row, subtree)
        shares.append(share)
    shares.reverse()
    paths: list[tuple[int, ...]] = []

    def build(path: tuple[int, ...], budget: int) -> None:
        left = budget - 1
        for rank in range(table.shape[1] if len(path) < len(table) else 0):
            share = int(shares[len(path)][rank, left])
            if share == 0:
                return
            paths.append((*path, rank))
            build((*path, rank), share)
            left -= share

    build((), nodes)
    return DraftTree.from_choices(paths)


def _forest(row: Floats, below: Floats) -> tuple[Floats, Ints]:
    """Return the best value of a subtree of at most n nodes (nodes + 1,), and the share of each child.

    `below` is the best value of a child's subtree. The share (ranks, nodes + 1) is what the child of a rank
    gets when n nodes are left for it and the later ranks.
    """
    most = len(below) - 1
    later: Floats = np.zeros(most + 1)  # best value of the children of later ranks, by nodes left for them
    share = np.zeros((len(row), most + 1), dtype=np.int64)
    for rank in range(len(row) - 1, -1, -1):
        best: Floats = np.zeros(most + 1)
        for left in range(1, most + 1):
            values = row[rank] * below[1 : left + 1] + later[left - 1 :: -1][:left]
            taken = int(np.argmax(values))
            if values[taken] > 0.0:
                best[left], share[rank, left] = values[taken], taken + 1
        later = best
    return np.concatenate([[0.0], 1.0 + later[:-1]]), share
