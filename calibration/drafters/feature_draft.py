"""Drafts chains and trees with a head that reads the target's features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from calibration.drafters.cache import KVCache
from calibration.drafters.feature_head import FeatureHead
from calibration.drafters.target_session import TargetSession
from calibration.sampling.grow import grow
from calibration.sampling.protocols import Proposal, Sampling
from simulator.trees import DraftTree, Growth, GrowthRule, StaticGrowth, growth_of


class FeatureDraft:
    """EAGLE, EAGLE-3 or MTP in one session of the target.

    The head reads all tokens that the target keeps again, with the target's features, and drops its drafted
    rows.
    """

    def __init__(
        self, head: FeatureHead, target: TargetSession, plan: DraftTree | GrowthRule | None = None
    ) -> None:
        self.kind = head.kind
        self._head, self._target, self._plan = head, target, plan
        self._cache = KVCache(1)
        self._unread = torch.zeros(0, 0)  # states of kept tokens that the head has not read
        self._following: list[int] = []  # the tokens after them, except the last one
        target.watch(head.layers)

    def start(self, prompt: Tensor) -> None:
        """Take the features of the prompt."""
        self._cache.clear()
        tokens, self._unread = self._features()
        self._following = tokens[1:].tolist()

    def propose(self, last: int, limit: int, sampling: Sampling, generator: torch.Generator) -> Proposal:
        """Read the tokens that the target has kept since, then draft from there."""
        tokens = torch.tensor([*self._following, last])
        states = self._read(self._unread, tokens, torch.arange(len(tokens)) + self._cache.length, None)
        self._cache.keep(range(len(tokens)))
        base = self._cache.length
        state_of = {0: states[-1]}  # state of each node that has been read
        row_of: dict[int, int] = {}  # its row after `base`

        def next_logits(growth: Growth | StaticGrowth) -> Tensor:
            frontier = [int(node) for node in growth.frontier]
            fresh = [node for node in frontier if node not in state_of]
            if fresh:
                parents = torch.stack([state_of[int(growth.parents[node])] for node in fresh])
                first = len(row_of)
                row_of.update((node, first + index) for index, node in enumerate(fresh))
                paths = [growth.path(node)[1:] for node in fresh]  # the root is part of the prefix
                mask = torch.zeros(len(fresh), base + len(row_of), dtype=torch.bool)
                mask[:, :base] = True
                for row, path in enumerate(paths):
                    mask[row, [base + row_of[node] for node in path]] = True
                positions = torch.tensor([base - 1 + len(path) for path in paths])
                ids = torch.tensor([int(growth.tokens[node]) for node in fresh])
                state_of.update(zip(fresh, self._read(parents, ids, positions, mask), strict=True))
                self._cache.keep(range(len(fresh)))
            rows = torch.stack([state_of[node] for node in frontier])
            return self._target.network.lm_head(self._head.read_out(rows))  # type: ignore[no-any-return]

        plan = DraftTree.chain(limit) if self._plan is None else self._plan
        proposal = grow(growth_of(plan, limit), next_logits, sampling, generator)
        self._cache.crop(base)
        return proposal

    def keep(self, tokens: Sequence[int]) -> None:
        """Take the features of the tokens that the target has just kept: the last token and the accepted
        drafts.
        """
        _, self._unread = self._features()
        self._following = list(tokens[:-1])

    def _features(self) -> tuple[Tensor, Tensor]:
        """The kept tokens (m,), and the states (m, h) fused from their features."""
        network = self._target.network
        tokens, hidden = self._target.features(self._head.layers)
        last_layer = network.layer_count
        features = {
            layer: network.norm(state) if layer == last_layer else state for layer, state in hidden.items()
        }
        return tokens, self._head.fuse(features)

    def _read(self, states: Tensor, tokens: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        """Return the states (n, h) after reading tokens (n,) with states (n, h), as rows after the cache."""
        cache, rows = self._cache, len(tokens)
        if mask is None and cache.length:
            causal = torch.ones(rows, rows, dtype=torch.bool).tril()
            mask = torch.cat([torch.ones(rows, cache.length, dtype=torch.bool), causal], 1)

        def store(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            return cache.pool.write(0, [cache.slot], [cache.length], key, value)

        embedding = self._target.embed(tokens)[None]
        return self._head.step(states[None], embedding, positions, mask, store)[0]
