"""Self-speculation by layer skipping: drafts with the target without some of its layers, on the target's
cache.

Draft & Verify (Zhang et al., arXiv 2309.08168) skips layers in the middle; LayerSkip (Elhoushi et al., arXiv
2404.16710) skips all layers after an early exit. Neither needs its own weights, and both share the target's
cache: the keys and values of the context come from the full model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from calibration.drafters.chain import draft_chain
from calibration.drafters.target_session import TargetSession
from calibration.sampling.grow import grow
from calibration.sampling.protocols import Proposal, Sampling
from simulator.trees import DraftTree, Growth, GrowthRule, StaticGrowth, growth_of

SKIPPED_SHARE = 0.2
"""Share of the layers that the default draft skips."""


class LayerSkip:
    """Drafts with some of the target's layers. It must start and propose on the session that verifies."""

    kind = "layer-skip"

    def __init__(
        self,
        target: TargetSession,
        layers: Sequence[int] | None = None,
        plan: DraftTree | GrowthRule | None = None,
    ) -> None:
        self._target, self._plan = target, plan
        self.layers = tuple(layers) if layers is not None else without_middle(target.layer_count)

    def start(self, prompt: Tensor) -> None:
        """Nothing to do: the target has read the prompt."""

    def propose(self, last: int, limit: int, sampling: Sampling, generator: torch.Generator) -> Proposal:
        """Draft a chain, or a tree by the plan. The target's `score` overwrites the rows that it writes."""
        if self._plan is not None:
            return self._tree(growth_of(self._plan, limit), last, sampling, generator)
        cache, length = self._target.cache, self._target.cache.length

        def logits_after(token: int) -> Tensor:
            position = torch.tensor([cache.length])
            read = self._target.network.read(torch.tensor([token]), position, cache, layers=self.layers)
            cache.keep([0])
            return read.logits[0]

        proposal = draft_chain(logits_after, last, limit, sampling, generator)
        cache.crop(length)
        return proposal

    def _tree(
        self, growth: Growth | StaticGrowth, last: int, sampling: Sampling, generator: torch.Generator
    ) -> Proposal:
        """Draft a tree; each level reads its frontier and all ancestors again."""

        def next_logits(growth: Growth | StaticGrowth) -> Tensor:
            paths = {node: growth.path(node) for node in growth.frontier.tolist()}
            nodes = sorted({node for path in paths.values() for node in path})
            row_of = {node: row for row, node in enumerate(nodes)}
            tree = DraftTree((-1, *(row_of[growth.parents[node]] for node in nodes[1:])))
            tokens = torch.tensor([last, *(growth.tokens[node] for node in nodes[1:])])
            cache = self._target.cache
            positions = torch.from_numpy(tree.position_ids(cache.length))
            read = self._target.network.read(
                tokens, positions, cache, torch.from_numpy(tree.mask), layers=self.layers
            )
            return read.logits[[row_of[node] for node in paths]]

        return grow(growth, next_logits, sampling, generator)

    def keep(self, tokens: Sequence[int]) -> None:
        """Nothing to do: the target keeps the cache."""


def without_middle(layer_count: int) -> tuple[int, ...]:
    """Return all layers except those in the middle: the outer ones read the text and write the next token."""
    skipped = min(max(1, round(SKIPPED_SHARE * layer_count)), layer_count - 1)
    first = (layer_count - skipped) // 2
    return (*range(first), *range(first + skipped, layer_count))
