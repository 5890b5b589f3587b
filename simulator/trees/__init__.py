"""Trees of drafts: topologies, masks, growth, optimal trees, expected accepted length (docs/sampling.md)."""

from simulator.trees.growth import Growth, GrowthRule, StaticGrowth, growth_of
from simulator.trees.optimal import OptimalTree, best_first_tree, optimal_tree
from simulator.trees.shape import EAGLE1, DraftTree, mean_acceptance_length

__all__ = [
    "EAGLE1",
    "DraftTree",
    "Growth",
    "GrowthRule",
    "OptimalTree",
    "StaticGrowth",
    "best_first_tree",
    "growth_of",
    "mean_acceptance_length",
    "optimal_tree",
]
