"""What a trained drafter has to beat: the target with layers left out, judged on the same text."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from calibration.drafters.cache import KVPool
from calibration.drafters.feature_head import Features
from calibration.drafters.language_model import LanguageModel, Pass, additive
from calibration.drafters.layer_skip import without_middle


class LayerSkipped:
    """Layer-skip as a drafter to judge: its first draft at each place; the full target read the context."""

    kind: ClassVar[str] = "layer-skip"
    layers: tuple[int, ...] = ()

    def __init__(self, network: LanguageModel) -> None:
        self._network = network
        self._kept = without_middle(network.layer_count)

    @torch.no_grad()
    def predict(
        self, tokens: Tensor, features: Features, embed: Callable[[Tensor], Tensor], steps: int
    ) -> tuple[Tensor, Tensor]:
        """As `FeatureHead.predict`, of one step."""
        network = self._network
        count, length = tokens.shape
        pool = KVPool(network.layer_count, count)
        positions = torch.arange(length, device=tokens.device).expand(count, length)
        hidden = network.embed(tokens, positions)
        causal = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
        every = range(network.layer_count)
        whole = Pass(pool, range(count), [0] * count, additive(causal, hidden))
        network.run_pass(network.layers, hidden, positions, whole, every)
        # Each row again, without some layers: it sees what the target read before it, and itself.
        own = torch.cat([causal.tril(-1), torch.eye(length, dtype=torch.bool, device=tokens.device)], 1)
        short = Pass(pool, range(count), [length] * count, additive(own, hidden))
        kept = [network.layers[layer] for layer in self._kept]
        state = network.norm(network.run_pass(kept, hidden, positions, short, self._kept))
        return state[None], state
