"""What tests ask of a tree of drafts beyond what the packages need."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simulator.trees import DraftTree


def leaves(tree: DraftTree) -> list[int]:
    """Nodes without children."""
    return sorted(set(range(tree.nodes)) - set(tree.parents))


def longest_accepted_path(tree: DraftTree, accepted: ArrayLike) -> list[int]:
    """Return the drafts of the longest path from the root whose nodes are all accepted; the first of equals.

    `accepted` is (M,); the root counts as accepted. Where at most one child of a node can be accepted, as in
    greedy decoding, there is no other path as long.
    """
    reached = ~(tree.mask & ~(np.asarray(accepted, dtype=np.bool_) | (np.arange(tree.nodes) == 0))).any(1)
    return tree.path(int(np.argmax(np.where(reached, tree.depths, -1))))
