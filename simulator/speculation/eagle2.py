"""EAGLE-2: a dynamic tree of drafts, the best by the confidence of the EAGLE head (arXiv 2406.16858)."""

from simulator.speculation import register
from simulator.speculation.base import Method
from simulator.trees import GrowthRule

EAGLE2 = register(
    Method(
        name="eagle2",
        title="EAGLE head, dynamic tree",
        source="arXiv 2406.16858; SGLang speculative/eagle_utils.py",
        drafter="eagle",
        drafts_trees=True,
        default_tree=GrowthRule.eagle2(),
        loses_last_match=True,
        engines={"sglang": "0.4+"},
    )
)
