"""Acceptance of a tree of drafts: how deep the accepted path reaches, from what each rank is worth.

At most one node of a level is accepted, so P(the path reaches depth d) = S_d = the sum over the nodes of
depth d of the product of chances along their paths (arXiv 2402.12374). The step asks for one position after
another, so it gets the effective conditionals c_d = S_d / S_(d-1), and the accepted length has exactly the
distribution of the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import hypot

import numpy as np
from numpy.typing import NDArray

from simulator.acceptance.base import (
    TABLE,
    AcceptanceModel,
    RequestEffects,
    fault,
    normal_nodes,
)
from simulator.numerics.arrays import Floats
from simulator.trees import DraftTree, Growth, GrowthRule, OptimalTree

_TREES_PER_UNIT = 8
"""A dynamic tree is chosen anew for every 1/8 logit of a request's effect."""


@dataclass(frozen=True)
class TreeAcceptance(AcceptanceModel):
    """The acceptance of a tree from `model`, which says what each rank is worth.

    A dynamic tree is the best one for the round's own chances, which differ between requests and along them
    as `model` says. Leaves out that the drafter's confidence differs between the nodes of one round. Of an
    effect that drifts, a round keeps the value that each position has.
    """

    model: AcceptanceModel
    tree: DraftTree | GrowthRule

    def __post_init__(self) -> None:
        if self.model.kind != TABLE:
            raise fault(
                "acceptance",
                self.model.name,
                "does not say what the ranks of a tree are worth",
                "ranked, or a model of chains such as geometric",
            )

    @property
    def alpha(self) -> float:
        """That of the model: the first choice at position 1."""
        return self.model.alpha

    @property
    def effects(self) -> RequestEffects:
        """Those of the model."""
        return self.model.effects

    def survival_at(self, effects: Floats, depth: int) -> Floats:
        """Return S_1..S_depth of rounds at each logit effect, shape (effects, depth); 0 below the tree."""
        survival = np.zeros((len(effects), max(depth, self.tree.depth)))
        for tree, own in self._trees(effects):
            ranks = int(tree.ranks.max()) + 1
            chances = self.model.rank_chances(effects[own], max(tree.depth, 1), ranks)
            products = np.ones((len(chances), tree.nodes))
            for node in range(1, tree.nodes):
                level = int(tree.depths[node]) - 1
                products[:, node] = products[:, tree.parents[node]] * chances[:, level, tree.ranks[node]]
                survival[own, level] += products[:, node]
        return np.minimum(survival[:, :depth], 1.0)

    def _trees(self, effects: Floats) -> list[tuple[DraftTree, NDArray[np.intp] | slice]]:
        """The trees that rounds at these effects draft, and which of them do."""
        if isinstance(self.tree, DraftTree):
            return [(self.tree, slice(None))]
        cells = np.floor(effects * _TREES_PER_UNIT + 0.5)
        return [
            (_grown(self.tree, self.model, float(cell) / _TREES_PER_UNIT), np.flatnonzero(cells == cell))
            for cell in np.unique(cells)
        ]

    def conditional_at(self, effects: Floats, depth: int) -> Floats:
        """c_d at each effect; 0 where no path reaches."""
        survival = self.survival_at(effects, depth)
        before = np.concatenate([np.ones((len(survival), 1)), survival[:, :-1]], axis=1)[:, :depth]
        rates = np.divide(survival, before, out=np.zeros_like(survival), where=before > 0.0)
        return np.asarray(np.minimum(rates, 1.0))

    def survival(self, depth: int) -> Floats:
        """S_d over requests; an effect that drifts counts with its stationary spread."""
        nodes, weights = normal_nodes(hypot(self.effects.request_sd, self.effects.drift_sd))
        return np.asarray(weights @ self.survival_at(nodes, depth))

    def conditional(self, depth: int) -> Floats:
        """c_d over requests."""
        survival = self.survival(depth)
        before = np.concatenate([np.ones(min(1, depth)), survival[:-1]])
        rates = np.divide(survival, before, out=np.zeros_like(survival), where=before > 0.0)
        return np.asarray(rates)

    def mean_acceptance_lengths_by_request(self, draft_length: int) -> tuple[Floats, Floats]:
        """E of a request and the share of requests like it."""
        nodes, weights = normal_nodes(self.effects.request_sd)
        return 1.0 + self.survival_at(nodes, draft_length).sum(axis=1), weights

    def shifted(self, delta_logit: float) -> TreeAcceptance:
        """Shift the model; a static tree stays as it is."""
        return replace(self, model=self.model.shifted(delta_logit))

    def with_alpha(self, alpha: float) -> TreeAcceptance:
        """Move the model; a static tree stays as it is."""
        return replace(self, model=self.model.with_alpha(alpha))


@lru_cache(maxsize=4096)
def _grown(rule: GrowthRule, model: AcceptanceModel, effect: float) -> DraftTree:
    """Return the tree that a drafter grows whose confidence is what its drafts are worth."""
    chances = model.rank_chances(np.array([effect]), rule.depth, rule.children)[0]
    growth = Growth(rule)
    for level in range(rule.depth):
        frontier = len(growth.frontier)
        if not frontier:
            break
        row = np.broadcast_to(chances[level], (frontier, rule.children))
        growth.add(row, np.zeros((frontier, rule.children), dtype=np.int64))
    return growth.finish()[0]


def planned_tree(
    plan: DraftTree | GrowthRule | OptimalTree, model: Callable[[], AcceptanceModel]
) -> DraftTree | GrowthRule:
    """Return the tree of a plan, level by level; the optimal one is that of the mean request of `model()`."""
    if isinstance(plan, GrowthRule):
        return plan
    if isinstance(plan, OptimalTree):
        acceptance = model()
        nodes, weights = normal_nodes(hypot(acceptance.effects.request_sd, acceptance.effects.drift_sd))
        by_effect = acceptance.rank_chances(nodes, plan.depth, plan.children)
        return plan.tree(np.tensordot(weights, by_effect, axes=1)).by_level
    return plan.by_level
