"""Suffix drafts: a trie of everything that was said, and the likeliest continuations of how it ends now.

SuffixDecoding (Oliaro et al., arXiv 2411.04975). Leaves out its second trie of earlier requests' outputs:
every sequence starts empty, so that what is measured does not depend on the order of requests.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count

import torch
from torch import Tensor

from calibration.drafters.history import History
from calibration.sampling.protocols import Proposal, Sampling

DEEPEST_MATCH = 24
"""Tokens of the longest suffix that is kept track of."""
NODES_PER_MATCHED_TOKEN = 2
MOST_NODES = 16
LEAST_PROBABILITY = 0.1
"""A draft whose path is less likely than this is not worth its row."""


class _Node:
    """A string that occurred: how often something followed it, and what."""

    __slots__ = ("children", "count")

    def __init__(self) -> None:
        self.count = 0
        self.children: dict[int, _Node] = {}


class Suffix(History):
    """Drafts a tree: from each suffix of the text that occurred before, the likeliest nodes by path
    frequency, as many as the match is long times a factor; the suffix with the largest expected
    acceptance wins.
    """

    kind = "suffix"

    def __init__(self) -> None:
        super().__init__()
        self._root = _Node()
        self._ends: list[_Node] = []  # the strings that the text ends with, the empty one first

    def start(self, prompt: Tensor) -> None:
        """Read the prompt."""
        self._root = _Node()
        self._ends = [self._root]
        super().start(prompt)

    def propose(self, last: int, limit: int, sampling: Sampling, generator: torch.Generator) -> Proposal:
        """Return the best tree, or nothing where no suffix has occurred before."""
        del sampling, generator  # a look-up is certain
        self.begin(last)
        best: tuple[float, list[int], list[int]] = (0.0, [], [])
        for matched, node in enumerate(self._ends):
            if matched and node.children:
                grown = _grow(node, limit, min(MOST_NODES, NODES_PER_MATCHED_TOKEN * matched))
                best = max(best, grown, key=lambda tree: tree[0])
        _, tokens, parents = best
        return Proposal(torch.tensor(tokens, dtype=torch.int64), torch.tensor(parents, dtype=torch.int64))

    def keep(self, tokens: Sequence[int]) -> None:
        """Read the tokens emitted in this round."""
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Take more tokens into the trie."""
        for token in tokens:
            ends = [self._root]
            for node in self._ends[:DEEPEST_MATCH]:
                child = node.children.setdefault(token, _Node())
                child.count += 1
                ends.append(child)
            self._ends = ends
            self.tokens.append(token)


def _grow(start: _Node, depth: int, budget: int) -> tuple[float, list[int], list[int]]:
    """Return (expected accepted drafts, tokens, parents) of the likeliest `budget` nodes below a string."""
    tokens: list[int] = []
    parents: list[int] = []
    expected = 0.0
    order = count()  # of two equally likely nodes the one seen first
    heap: list[
        tuple[float, int, int, int, int, _Node]
    ] = []  # (-probability, order, level, parent, token, node)

    def offer(node: _Node, parent: int, probability: float, level: int) -> None:
        total = sum(child.count for child in node.children.values())
        for token, child in node.children.items():
            here = probability * child.count / total
            if level <= depth and here >= LEAST_PROBABILITY:
                heapq.heappush(heap, (-here, next(order), level, parent, token, child))

    offer(start, -1, 1.0, 1)
    while heap and len(tokens) < budget:
        negative, _, level, parent, token, node = heapq.heappop(heap)
        tokens.append(token)
        parents.append(parent)
        expected -= negative
        offer(node, len(tokens) - 1, -negative, level + 1)
    return expected, tokens, parents
