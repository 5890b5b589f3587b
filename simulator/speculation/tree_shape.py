"""The shapes of drafts that are no chain: trees, and the branches of lookahead decoding."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.speculation.shape import Chain
from simulator.trees import DraftTree, GrowthRule


@dataclass(frozen=True)
class TreeShape(Chain):
    """A tree of drafts, all of it or none: a draft length of 0 drafts nothing, any other the whole tree.

    `serial`: the drafter extends the tree level by level, one pass each; otherwise one pass makes all drafts.
    """

    tree: DraftTree | GrowthRule = DraftTree.chain(1)  # noqa: RUF009 (it is frozen)

    @cached_property
    def level_ends(self) -> tuple[int, ...]:
        """Drafts down to each level, itself included, (depth,).

        Which nodes a dynamic tree keeps is decided anew in every round. Its levels count as equally wide.
        """
        drafts, depth = self.tree.nodes - 1, self.tree.depth
        if isinstance(self.tree, GrowthRule):
            return tuple(-(-drafts * level // depth) for level in range(1, depth + 1))
        return tuple(np.cumsum(np.bincount(self.tree.depths)[1:]).tolist())

    @cached_property
    def level_rows(self) -> tuple[int, ...]:
        """Rows of the pass that extends each level but the last, (depth - 1,).

        A static tree extends the nodes that have children. A dynamic tree extends its best nodes: as many as
        its rule says, whether they are kept in the end or not.
        """
        if isinstance(self.tree, GrowthRule):
            return (self.tree.expanded or self.tree.children,) * (self.tree.depth - 1)
        inner = np.unique(np.array(self.tree.parents[1:], dtype=np.int64))
        return tuple(np.bincount(self.tree.depths[inner])[1:].tolist()) if len(inner) else ()

    def nodes(self, draft_length: int) -> int:
        """All drafts of the tree."""
        return self.tree.nodes - 1 if draft_length else 0

    def depth(self, nodes: int) -> int:
        """Levels that are whole."""
        return sum(end <= nodes for end in self.level_ends)

    def pass_rows(self, nodes: int) -> tuple[int, ...]:
        """The pass that makes the first level, then one for each level that has children."""
        return (self.first_pass_rows, *(self.level_rows if self.serial and nodes else ()))

    def kv_rows(self, nodes: int) -> int:
        """Every level as wide as the widest that is extended, or the nodes with the root."""
        widest = max(self.level_rows, default=1)
        return max(self.tree.depth * widest, self.tree.nodes) if nodes else 0


@dataclass(frozen=True)
class LookaheadShape(Chain):
    """Lookahead decoding with K = n - 1 tokens of an n-gram: the target's own step also runs a window of
    `window` positions, K Jacobi iterations deep, and as many n-gram guesses of K tokens each (arXiv
    2402.02057). One guess at most is accepted.
    """

    window: int = 15

    def nodes(self, draft_length: int) -> int:
        """Rows of both branches."""
        return 2 * self.window * draft_length

    def depth(self, nodes: int) -> int:
        """The length of a guess; of a cut round, what all guesses have."""
        return nodes // (2 * self.window)

    def pass_rows(self, nodes: int) -> tuple[int, ...]:
        """No drafter runs."""
        return (0,)
