"""How a tree of drafts grows level by level, from the drafter's own probabilities or by a fixed plan.

Both kinds of growth are asked for their `frontier`, given the best children of each node of it, and give a
tree in the end, so that a drafter has one loop for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError, Problem
from simulator.numerics.arrays import Floats, Ints
from simulator.trees.shape import DraftTree, at_least_one


@dataclass(frozen=True)
class GrowthRule:
    """What a growing tree keeps. All choices go by the product of probabilities along the path.

    depth: levels of drafts. children: best children looked at per expanded node. nodes: M, nodes kept in the
    end, root included. per_level: nodes kept per level, None: all. expanded: nodes expanded per level,
    None: all. top_p: children of a node beyond this share of its mass are not looked at. Raises InputError.
    """

    depth: int
    children: int
    nodes: int
    per_level: int | None = None
    expanded: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        sizes = ("depth", "children", "nodes", "per_level", "expanded")
        at_least_one(**{field: getattr(self, field) for field in sizes})
        if not 0.0 < self.top_p <= 1.0:
            allowed = "above 0, up to 1"
            raise InputError(
                Problem(field="top_p", value=self.top_p, message="is out of range", allowed=allowed)
            )

    @staticmethod
    def eagle2(depth: int = 6, top_k: int = 10, nodes: int = 60) -> GrowthRule:
        """EAGLE-2: expand the `top_k` best nodes of each level, rerank all that were seen, keep M - 1 of them
        (arXiv 2406.16858).
        """
        return GrowthRule(depth, top_k, nodes, expanded=top_k)

    @staticmethod
    def nucleus(depth: int, top_p: float, children: int, nodes: int) -> GrowthRule:
        """Branch into the smallest set of children that holds `top_p`, wide where the drafter is unsure.

        A node that is not among the best M - 1 of its level leaves no child in the end.
        """
        return GrowthRule(depth, children, nodes, expanded=max(nodes - 1, 1), top_p=top_p)

    @staticmethod
    def beam(depth: int, width: int = 3) -> GrowthRule:
        """The `width` best paths of each depth: three per depth by default."""
        return GrowthRule(depth, width, 1 + depth * width, per_level=width, expanded=width)


class Growing:
    """What both kinds of growth have: nodes with parents and tokens, the root 0 first; its token is -1."""

    parents: list[int]
    tokens: list[int]

    def path(self, node: int) -> list[int]:
        """The nodes from the root down to one, both included."""
        return [*self.path(self.parents[node]), node] if node else [0]


class Growth(Growing):
    """A tree that grows by a rule, at most `depth` levels of it. Nodes are numbered as they are added."""

    def __init__(self, rule: GrowthRule, depth: int | None = None) -> None:
        self.rule = rule
        self.depth = rule.depth if depth is None else min(rule.depth, depth)
        self.parents = [-1]
        self.tokens = [-1]
        self.frontier: Ints = np.zeros(min(self.depth, 1), dtype=np.int64)
        """Nodes whose children are chosen next, best first; empty: the tree is grown."""
        self._products = [1.0]
        self._levels = 0

    @property
    def widths(self) -> Ints:
        """Children looked at per node of the frontier."""
        return np.full(len(self.frontier), self.rule.children, dtype=np.int64)

    def add(self, probabilities: Floats, tokens: Ints) -> None:
        """Add children of the frontier, both (frontier, width), each row from the likeliest token down."""
        before = np.cumsum(probabilities, axis=1) - probabilities
        products = np.array([self._products[node] for node in self.frontier])[:, None] * probabilities
        chosen = before < self.rule.top_p
        chosen[:, self.rule.children :] = False
        rows, ranks = np.nonzero(chosen)
        order = best(products[rows, ranks], self.rule.per_level)
        rows, ranks = rows[order], ranks[order]
        first = len(self.parents)
        self.parents += self.frontier[rows].tolist()
        self.tokens += tokens[rows, ranks].tolist()
        self._products += products[rows, ranks].tolist()
        self._levels += 1
        added = np.arange(first, len(self.parents), dtype=np.int64)
        self.frontier = added[: self.rule.expanded] if self._levels < self.depth else added[:0]

    def finish(self) -> tuple[DraftTree, Ints]:
        """Return the tree of the best M - 1 drafts and which added nodes they are, root first, shape (M,)."""
        chosen = np.sort(best(np.array(self._products), self.rule.nodes))
        place = {int(node): index for index, node in enumerate(chosen)}
        parents = (place[self.parents[node]] if node else -1 for node in chosen.tolist())
        return DraftTree(tuple(parents)), chosen


class StaticGrowth(Growing):
    """A given tree, filled level by level by the calls of `Growth`; nodes keep the tree's numbers."""

    def __init__(self, tree: DraftTree) -> None:
        self.tree = tree
        self.parents = list(tree.parents)
        self.tokens = [-1] * tree.nodes
        self._counts: Ints = np.bincount(np.array(tree.parents[1:], dtype=np.int64), minlength=tree.nodes)
        self._depth = 0
        self.frontier: Ints = self._inner()

    def _inner(self) -> Ints:
        """Nodes of the present depth that have children."""
        return np.flatnonzero((self.tree.depths == self._depth) & (self._counts > 0))

    @property
    def widths(self) -> Ints:
        """Children chosen per node of the frontier."""
        return self._counts[self.frontier]

    def add(self, probabilities: Floats, tokens: Ints) -> None:
        """Fill in the children of the frontier, (frontier, width), by rank; probabilities play no part."""
        for row, node in enumerate(self.frontier.tolist()):
            for child in self.tree.children(node):
                self.tokens[child] = int(tokens[row, self.tree.ranks[child]])
        self._depth += 1
        self.frontier = self._inner()

    def finish(self) -> tuple[DraftTree, Ints]:
        """Return the tree and all of its nodes."""
        return self.tree, np.arange(self.tree.nodes, dtype=np.int64)


def growth_of(plan: DraftTree | GrowthRule, depth: int) -> Growth | StaticGrowth:
    """Return a new tree of at most `depth` levels that grows by a plan."""
    if isinstance(plan, DraftTree):
        return StaticGrowth(plan.cut(depth))
    return Growth(plan, depth)


def best(products: Floats, count: int | None) -> NDArray[np.intp]:
    """Return the indices of the `count` highest products, highest first; the earlier of equals."""
    return np.argsort(-products, kind="stable")[:count]
