"""The shape of a tree of drafts, what its nodes see, and how much of it is accepted.

Node 0 is the root, the token emitted last; every other node is a draft. Parents come before children, and
siblings are in the order of their rank. A verifier scores all M nodes, root included, in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.errors import InputError, Problem
from simulator.numerics.arrays import Floats, Ints

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class DraftTree:
    """A topology by the parent of each node, `parents[0] == -1`. Raises InputError when it is no tree."""

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        for node, parent in enumerate(self.parents):
            if (parent != -1) if node == 0 else not 0 <= parent < node:
                allowed = "-1 for the root" if node == 0 else f"0 to {node - 1}"
                raise _fault(f"parents[{node}]", parent, "is no earlier node", allowed)
        if not self.parents:
            raise _fault("parents", self.parents, "is empty", "-1 for the root, then the drafts")

    @staticmethod
    def chain(draft_length: int) -> DraftTree:
        """K drafts one after the other."""
        return DraftTree(tuple(range(-1, draft_length)))

    @staticmethod
    def from_choices(choices: Iterable[Sequence[int]]) -> DraftTree:
        """The tree that holds every path of ranks, as Medusa and EAGLE write it: (0,), (0, 0), (1,) ...

        Raises InputError where a path has no parent or no elder sibling among the others.
        """
        paths = sorted({tuple(path) for path in choices}, key=lambda path: (len(path), path))
        nodes = {(): 0} | {path: 1 + index for index, path in enumerate(paths)}
        for path in paths:
            for needed in (path[:-1], (*path[:-1], path[-1] - 1)):
                if needed not in nodes and needed[-1:] != (-1,):
                    raise _fault("choices", path, f"lacks {needed}", "every parent and elder sibling")
        return DraftTree((-1, *(nodes[path[:-1]] for path in paths)))

    @property
    def by_level(self) -> DraftTree:
        """The same tree with its nodes level by level; siblings keep their order."""
        order = np.argsort(self.depths, kind="stable")
        place = {int(node): index for index, node in enumerate(order)}
        return DraftTree((-1, *(place[self.parents[node]] for node in order[1:])))

    @property
    def nodes(self) -> int:
        """M: nodes that are verified, root included."""
        return len(self.parents)

    @property
    def depth(self) -> int:
        """Levels of drafts."""
        return int(self.depths.max())

    @property
    def draft_parents(self) -> Ints:
        """Parents counted among the drafts alone, -1 for children of the root, shape (M - 1,)."""
        return np.array(self.parents[1:], dtype=np.int64) - 1

    @cached_property
    def depths(self) -> Ints:
        """Drafts on the way from the root to each node, itself included, shape (M,)."""
        depths = np.zeros(self.nodes, dtype=np.int64)
        for node, parent in enumerate(self.parents[1:], start=1):
            depths[node] = depths[parent] + 1
        return depths

    @cached_property
    def ranks(self) -> Ints:
        """Place of each node among its siblings, from 0, shape (M,)."""
        seen = [0] * self.nodes
        ranks = np.zeros(self.nodes, dtype=np.int64)
        for node, parent in enumerate(self.parents[1:], start=1):
            ranks[node] = seen[parent]
            seen[parent] += 1
        return ranks

    @cached_property
    def mask(self) -> Bools:
        """Whether node i sees node j: its ancestors and itself, shape (M, M). All see the whole prefix."""
        mask = np.eye(self.nodes, dtype=np.bool_)
        for node, parent in enumerate(self.parents[1:], start=1):
            mask[node] |= mask[parent]
        return mask

    def position_ids(self, prefix_tokens: int) -> Ints:
        """Position of each node behind a prefix: nodes of one depth share one, shape (M,)."""
        return prefix_tokens + self.depths

    def cut(self, depth: int) -> DraftTree:
        """Its first `depth` levels of drafts."""
        nodes = np.flatnonzero(self.depths <= depth)
        place = {int(node): index for index, node in enumerate(nodes)}
        return DraftTree((-1, *(place[self.parents[node]] for node in nodes[1:])))

    def children(self, node: int) -> list[int]:
        """The children of a node by rank."""
        return [child for child, parent in enumerate(self.parents) if parent == node]

    def path(self, node: int) -> list[int]:
        """The drafts from the root's child down to `node`; none for the root."""
        return [int(step) for step in np.flatnonzero(self.mask[node]) if step > 0]


_EAGLE1 = "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001"

EAGLE1 = DraftTree.from_choices([int(rank) for rank in path] for path in _EAGLE1.split())
"""EAGLE-1's static tree: 25 drafts, 5 levels (arXiv 2401.15077; SafeAILab/EAGLE:model/choices.py@e98fc7c)."""


def by_depth(chances: ArrayLike, depth: int) -> Floats:
    """Return rank probabilities (depth, ranks): a vector (ranks,) holds at every depth.

    `chances[d][r]`: probability that the child of rank r is the continuation of an accepted node at depth d.
    Raises InputError for what is no probability, or adds to more than 1 at a depth.
    """
    at_least_one(depth=depth)
    table = np.asarray(chances, dtype=np.float64)
    table = np.broadcast_to(table, (depth, table.shape[-1])) if table.ndim == 1 else table[:depth]
    if not ((table >= 0.0).all() and (table.sum(1) <= 1.0 + 1e-9).all()):
        allowed = "numbers from 0 to 1 that add to 1 at most at each depth"
        raise _fault("chances", table.tolist(), "are no probabilities of ranks", allowed)
    return table


def mean_acceptance_length(tree: DraftTree, chances: ArrayLike) -> float:
    """Return tokens per verified round: the sum over nodes, root included, of the product along the path.

    `chances` by rank, or by depth and rank, see `by_depth`; ranks and depths that it lacks are never accepted
    (positional acceptance, arXiv 2402.12374; by depth, arXiv 2401.10774). Leaves out that ranks may depend on
    the path.
    """
    table = by_depth(chances, max(tree.depth, 1))
    products = np.ones(tree.nodes)
    for node, parent in enumerate(tree.parents[1:], start=1):
        depth, rank = tree.depths[node] - 1, tree.ranks[node]
        known = depth < table.shape[0] and rank < table.shape[1]
        products[node] = products[parent] * table[depth, rank] if known else 0.0
    return float(products.sum())


def at_least_one(**sizes: int | None) -> None:
    """Raise InputError for a size below 1; None is no size."""
    for field, value in sizes.items():
        if value is not None and value < 1:
            raise _fault(field, value, "is too small", "1 or more")


def _fault(field: str, value: object, message: str, allowed: str) -> InputError:
    """The error of one bad value."""
    return InputError(Problem(field=field, value=value, message=message, allowed=allowed))
