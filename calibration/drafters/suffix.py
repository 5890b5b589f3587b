"""Suffix decoding: a trie of the text so far, and the likeliest continuations of its current suffix.

SuffixDecoding (Oliaro et al., arXiv 2411.04975). Its second trie, over the outputs of earlier requests, is
left out: every sequence starts with an empty trie, so that measurements do not depend on the order of
requests.
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
"""Tokens of the longest suffix that is tracked."""
NODES_PER_MATCHED_TOKEN = 2
MAX_NODES = 16
MIN_PROBABILITY = 0.1
"""A draft with a less likely path is not worth its row."""


class _Node:
    """A string that occurred: its count and its continuations."""

    __slots__ = ("children", "count")

    def __init__(self) -> None:
        self.count = 0
        self.children: dict[int, _Node] = {}


class Suffix(History):
    """Drafts a tree from the suffix of the text with the largest expected acceptance.

    For each suffix that occurred before, the tree has the likeliest nodes by path frequency; their number is
    proportional to the length of the match.
    """

    kind = "suffix"

    def __init__(self) -> None:
        super().__init__()
        self._root = _Node()
        self._ends: list[_Node] = []  # nodes of the text's suffixes, the empty one first

    def start(self, prompt: Tensor) -> None:
        """Read the prompt."""
        self._root = _Node()
        self._ends = [self._root]
        super().start(prompt)

    def propose(self, last: int, limit: int, sampling: Sampling, generator: torch.Generator) -> Proposal:
        """Return the best tree, or an empty proposal if no suffix has occurred before."""
        del sampling, generator  # the trie is deterministic
        self.begin(last)
        best: tuple[float, list[int], list[int]] = (0.0, [], [])
        for matched, node in enumerate(self._ends):
            if matched and node.children:
                grown = _grow(node, limit, min(MAX_NODES, NODES_PER_MATCHED_TOKEN * matched))
                best = max(best, grown, key=lambda tree: tree[0])
        _, tokens, parents = best
        return Proposal(torch.tensor(tokens, dtype=torch.int64), torch.tensor(parents, dtype=torch.int64))

    def keep(self, tokens: Sequence[int]) -> None:
        """Read the tokens emitted in this round."""
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens to the trie."""
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
    order = count()  # of two equally likely nodes, the earlier one is taken
    heap: list[
        tuple[float, int, int, int, int, _Node]
    ] = []  # (-probability, order, level, parent, token, node)

    def offer(node: _Node, parent: int, probability: float, level: int) -> None:
        total = sum(child.count for child in node.children.values())
        for token, child in node.children.items():
            path_probability = probability * child.count / total
            if level <= depth and path_probability >= MIN_PROBABILITY:
                heapq.heappush(heap, (-path_probability, next(order), level, parent, token, child))

    offer(start, -1, 1.0, 1)
    while heap and len(tokens) < budget:
        negative, _, level, parent, token, node = heapq.heappop(heap)
        tokens.append(token)
        parents.append(parent)
        expected -= negative
        offer(node, len(tokens) - 1, -negative, level + 1)
    return expected, tokens, parents
