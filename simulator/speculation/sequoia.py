"""Sequoia: the static tree with the most accepted tokens for the acceptance by rank (arXiv 2402.12374)."""

from simulator.speculation import register
from simulator.speculation.base import Method
from simulator.speculation.shape import Chain
from simulator.trees import OptimalTree

SEQUOIA = register(
    Method(
        name="sequoia",
        title="separate draft model, optimal static tree",
        source="arXiv 2402.12374; github.com/Infini-AI-Lab/Sequoia",
        drafter="draft_model",
        shape=Chain(first_pass_rows=1),
        drafts_trees=True,
        default_tree=OptimalTree(depth=6, children=8, nodes=32),
    )
)
