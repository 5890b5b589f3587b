"""Medusa: several heads, each of which predicts one token further from the same hidden state (arXiv
2401.10774).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from calibration.drafters.feature_head import Features
from calibration.drafters.target_session import TargetSession
from calibration.sampling.grow import grow
from calibration.sampling.protocols import Proposal, Sampling
from simulator.trees import DraftTree, Growth, GrowthRule, StaticGrowth, growth_of

HEADS = 4


class Medusa(nn.Module):
    """Head k: a residual layer on the last feature, then the target's output matrix.

    In the paper each head has its own output matrix, initialised as the target's; here it stays shared.
    """

    kind: ClassVar[str] = "medusa"

    def __init__(self, hidden: int, layers: tuple[int, ...], heads: int = HEADS) -> None:
        super().__init__()
        self.layers = layers
        self.heads = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(heads))

    def guesses(self, feature: Tensor) -> Tensor:
        """Return the inputs (heads, …, h) of the target's output matrix, from features (…, h)."""
        guesses: list[Tensor] = [feature + silu(head(feature)) for head in self.heads]
        return torch.stack(guesses)

    def predict(
        self, tokens: Tensor, features: Features, embed: Callable[[Tensor], Tensor], steps: int
    ) -> tuple[Tensor, Tensor]:
        """As `FeatureHead.predict`: head j is step j."""
        feature = features[self.layers[-1]]
        guesses = self.guesses(feature)[:steps]
        return torch.stack([guess.roll(step, 1) for step, guess in enumerate(guesses, 1)]), guesses[0]


class MedusaDraft:
    """Medusa in one session of the target: all levels of a chain or tree come from one hidden state."""

    kind = "medusa"

    def __init__(
        self, medusa: Medusa, target: TargetSession, plan: DraftTree | GrowthRule | None = None
    ) -> None:
        self._medusa, self._target, self._plan = medusa, target, plan
        target.watch(medusa.layers)

    def start(self, prompt: Tensor) -> None:
        """Nothing to do: the target has read the prompt."""

    def propose(self, last: int, limit: int, sampling: Sampling, generator: torch.Generator) -> Proposal:
        """Draft at most one level per head."""
        network = self._target.network
        _, hidden = self._target.features(self._medusa.layers)
        feature = network.norm(hidden[self._medusa.layers[-1]][-1])
        depth = min(limit, len(self._medusa.heads))
        logits: Tensor = network.lm_head(self._medusa.guesses(feature)[:depth])
        plan = DraftTree.chain(depth) if self._plan is None else self._plan
        level: Iterator[Tensor] = iter(logits)

        def next_logits(growth: Growth | StaticGrowth) -> Tensor:
            return next(level).expand(len(growth.frontier), -1)

        return grow(growth_of(plan, depth), next_logits, sampling, generator)

    def keep(self, tokens: Sequence[int]) -> None:
        """Nothing to do: the features are the target's."""
